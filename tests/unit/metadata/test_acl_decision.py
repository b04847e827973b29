"""Decisions by access control entries, as in Kafka's StandardAuthorizer."""

from __future__ import annotations

import sys
from types import FrameType

import msgspec
import pytest

from barnabas.metadata.acl_decision import Action, decide, is_allowed_somewhere
from barnabas.metadata.acls import Acl, AclsImage
from barnabas.protocol.resources import AclOperation, AclPermission, AclResourceType, PatternType

TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
READ, WRITE, DESCRIBE, ALL = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.ALL,
)
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY

READ_T = Acl(TOPIC, "t", LITERAL, "User:a", "*", READ, ALLOW)
ASKED = Action("User:a", "10.0.0.1", READ, TOPIC, "t")


def image_of(*acls: Acl) -> AclsImage:
    return AclsImage().evolve({number.to_bytes(16): each for number, each in enumerate(acls)})


def is_allowed(action: Action, *acls: Acl, by_default: bool = False) -> bool:
    return decide(image_of(*acls), action).is_allowed(by_default=by_default)


def but(acl: Acl, **changes: object) -> Acl:
    return msgspec.structs.replace(acl, **changes)


def asked(**changes: object) -> Action:
    return msgspec.structs.replace(ASKED, **changes)


def test_an_entry_allows_its_principal_operation_and_resource_only() -> None:
    assert is_allowed(ASKED, READ_T)
    for change in (
        {"principal": "User:b"},
        {"operation": WRITE},
        {"resource_type": GROUP},
        {"name": "u"},
    ):
        assert not is_allowed(asked(**change), READ_T), change


def test_a_principal_of_another_type_is_another_principal() -> None:
    assert not is_allowed(asked(principal="Group:a"), READ_T)
    assert is_allowed(asked(principal="Group:a"), but(READ_T, principal="Group:a"))


def test_the_wildcard_principal_is_user_star_and_covers_every_principal() -> None:
    assert is_allowed(asked(principal="Group:a"), but(READ_T, principal="User:*"))
    assert is_allowed(asked(principal="User:b"), but(READ_T, principal="User:*"))
    assert not is_allowed(asked(principal="User:b"), but(READ_T, principal="*"))


def test_a_denying_entry_wins_over_all_allowing_ones() -> None:
    deny = but(READ_T, permission=DENY, resource_name="*", principal="User:*")
    decision = decide(image_of(READ_T, but(READ_T, operation=ALL), deny), ASKED)
    assert decision.acl == deny
    assert not decision.is_allowed(by_default=True)


@pytest.mark.parametrize("operation", ["READ", "WRITE", "DELETE", "ALTER", "DESCRIBE", "ALL"])
def test_describe_is_implied_by_allowed_operations(operation: str) -> None:
    entry = but(READ_T, operation=AclOperation[operation])
    assert is_allowed(asked(operation=DESCRIBE), entry)


@pytest.mark.parametrize("operation", ["CREATE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS"])
def test_describe_is_not_implied_by_other_operations(operation: str) -> None:
    entry = but(READ_T, operation=AclOperation[operation])
    assert not is_allowed(asked(operation=DESCRIBE), entry)


def test_describe_configs_is_implied_by_alter_configs_but_not_by_alter() -> None:
    wanted = asked(operation=AclOperation.DESCRIBE_CONFIGS)
    assert is_allowed(wanted, but(READ_T, operation=AclOperation.ALTER_CONFIGS))
    assert not is_allowed(wanted, but(READ_T, operation=AclOperation.ALTER))


def test_a_denied_operation_implies_no_other_denial() -> None:
    wanted = asked(operation=DESCRIBE)
    deny_read = but(READ_T, permission=DENY)
    assert is_allowed(wanted, but(READ_T, operation=WRITE), deny_read)
    assert not is_allowed(wanted, but(READ_T, operation=WRITE), but(deny_read, operation=ALL))


def test_hosts_are_addresses_ranges_or_all() -> None:
    assert is_allowed(ASKED, but(READ_T, host="10.0.0.1"))
    assert is_allowed(ASKED, but(READ_T, host="10.0.0.99/24"))
    assert not is_allowed(ASKED, but(READ_T, host="10.0.0.2"))
    assert not is_allowed(ASKED, but(READ_T, host="10.0.1.0/24"))
    assert not is_allowed(ASKED, but(READ_T, host="10.0.0.1/x"))


def test_the_default_counts_only_without_any_entry_for_the_resource() -> None:
    assert is_allowed(ASKED, by_default=True)
    assert not is_allowed(ASKED)
    others = but(READ_T, principal="User:b")
    assert not is_allowed(ASKED, others, by_default=True)
    assert is_allowed(ASKED, but(others, resource_name="u"), by_default=True)


def test_an_unknown_operation_of_the_log_allows_nothing() -> None:
    assert not is_allowed(ASKED, but(READ_T, operation=77))
    assert not is_allowed(ASKED, but(READ_T, permission=77))


# Whether any resource of a type is allowed


def somewhere(*acls: Acl) -> bool:
    return is_allowed_somewhere(image_of(*acls), asked(operation=WRITE))


WRITE_T = but(READ_T, operation=WRITE)


def test_one_allowed_resource_is_enough() -> None:
    assert somewhere(WRITE_T)
    assert somewhere(but(WRITE_T, pattern_type=PREFIXED))
    assert somewhere(but(WRITE_T, operation=ALL, principal="User:*"))
    assert not somewhere(READ_T)
    assert not somewhere(but(WRITE_T, resource_type=GROUP))
    assert not somewhere(but(WRITE_T, host="10.0.0.2"))


def test_entries_of_others_do_not_add_to_the_work() -> None:
    def lines_of_code(others: int) -> int:
        count = 0

        def trace(_frame: FrameType, event: str, _argument: object) -> object:
            nonlocal count
            count += event == "line"
            return trace

        foreign = [
            but(WRITE_T, principal=f"User:{n}", resource_name=f"t{n}") for n in range(others)
        ]
        image = image_of(READ_T, *foreign)
        asking = asked(operation=WRITE)
        before = sys.gettrace()
        sys.settrace(trace)  # type: ignore[arg-type]  # typeshed wants a recursive type
        try:
            assert not is_allowed_somewhere(image, asking)
        finally:
            sys.settrace(before)
        return count

    assert lines_of_code(others=0) == lines_of_code(others=2000)


def test_a_denial_of_all_resources_leaves_none() -> None:
    assert not somewhere(WRITE_T, but(WRITE_T, permission=DENY, resource_name="*"))


def test_a_denial_leaves_the_resources_that_it_does_not_cover() -> None:
    deny = but(WRITE_T, permission=DENY)
    assert not somewhere(WRITE_T, deny)
    assert somewhere(but(WRITE_T, pattern_type=PREFIXED), deny)
    deny_prefix = but(deny, pattern_type=PREFIXED)
    assert not somewhere(but(WRITE_T, resource_name="topic"), deny_prefix)
    assert somewhere(but(WRITE_T, resource_name="other"), deny_prefix)
    assert somewhere(but(WRITE_T, resource_name="*"), deny_prefix)
