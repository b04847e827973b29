"""What a principal may do by the entries of a cluster."""

from __future__ import annotations

from barnabas.client.admin.acls import (
    Acl,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from barnabas.console.pages.rights import Right, rights

TOPIC = AclResourceType.TOPIC
DENY, PREFIXED = AclPermission.DENY, PatternType.PREFIXED


def test_denials_win_and_operations_imply_others() -> None:
    acls = [
        Acl(TOPIC, "orders", "User:eve", AclOperation.READ),
        Acl(TOPIC, "orders", "User:eve", AclOperation.WRITE),
        Acl(TOPIC, "orders", "User:*", AclOperation.WRITE, DENY),
    ]
    assert rights(acls, "User:eve", "*") == [
        Right(TOPIC, "orders", ("read", "describe"), ("write",))
    ]


def test_entries_of_other_patterns_count_for_a_resource() -> None:
    acls = [
        Acl(TOPIC, "*", "User:eve", AclOperation.READ),
        Acl(
            TOPIC, "secret", "User:eve", AclOperation.READ, DENY, pattern_type=PatternType.PREFIXED
        ),
        Acl(TOPIC, "open", "User:bob", AclOperation.WRITE),
    ]
    found = {each.resource: each for each in rights(acls, "User:eve", "*")}
    assert set(found) == {"*", "secret..."}
    assert found["*"].allowed == ("read", "describe")
    assert found["secret..."].denied == ("read",)
    assert "read" not in found["secret..."].allowed


def test_an_entry_for_an_address_counts_for_that_address() -> None:
    acls = [Acl(TOPIC, "orders", "User:eve", AclOperation.READ, host="10.0.0.0/8")]
    assert rights(acls, "User:eve", "10.1.2.3")[0].allowed == ("read", "describe")
    assert rights(acls, "User:eve", "*")[0].allowed == ()
