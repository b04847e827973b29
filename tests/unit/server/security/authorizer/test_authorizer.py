"""The authorizer: super users, the default, and the memory of its decisions."""

from __future__ import annotations

import pytest

from barnabas.metadata.acls import Acl, AclsImage
from barnabas.protocol.resources import AclOperation, AclPermission, AclResourceType, PatternType
from barnabas.server.configs.config import AuthorizerConfig, parse_super_users
from barnabas.server.security.authorizer.authorizer import DECISIONS_MAX, Authorizer, NotLoadedError

READ, WRITE, TOPIC = AclOperation.READ, AclOperation.WRITE, AclResourceType.TOPIC
ENTRY = Acl(TOPIC, "t", PatternType.LITERAL, "User:a", "*", READ, AclPermission.ALLOW)


class Cluster:
    """The current entries, which a test replaces."""

    def __init__(self, acls: AclsImage | None = None) -> None:
        self.acls = acls
        self.lookups = 0

    def find(self) -> AclsImage | None:
        self.lookups += 1
        return self.acls


def make_authorizer(cluster: Cluster, **config: object) -> Authorizer:
    return Authorizer(AuthorizerConfig(**config), cluster.find)


def reads(authorizer: Authorizer, name: str = "t", principal: str = "User:a") -> bool:
    return authorizer.allows(principal, "10.0.0.1", READ, TOPIC, name)


def test_a_super_user_may_do_everything_even_against_a_denial() -> None:
    deny = Acl(TOPIC, "*", PatternType.LITERAL, "User:*", "*", READ, AclPermission.DENY)
    authorizer = make_authorizer(
        Cluster(AclsImage().evolve({b"1": deny})), super_users=frozenset({"User:root"})
    )
    assert reads(authorizer, principal="User:root")
    assert not reads(authorizer)


def test_a_changed_entry_counts_for_the_next_request() -> None:
    cluster = Cluster(AclsImage())
    authorizer = make_authorizer(cluster)
    assert not reads(authorizer)
    cluster.acls = AclsImage().evolve({b"1": ENTRY})
    assert reads(authorizer)
    cluster.acls = cluster.acls.evolve({b"1": None})
    assert not reads(authorizer)


def test_before_the_entries_are_loaded_only_super_users_are_known() -> None:
    cluster = Cluster()
    authorizer = make_authorizer(cluster, super_users=frozenset({"User:root"}))
    assert reads(authorizer, principal="User:root")
    with pytest.raises(NotLoadedError):
        reads(authorizer)
    cluster.acls = AclsImage().evolve({b"1": ENTRY})
    assert reads(authorizer)


def test_without_entries_the_default_decides() -> None:
    assert reads(make_authorizer(Cluster(AclsImage()), allows_by_default=True))
    assert not reads(make_authorizer(Cluster(AclsImage())))


def test_cached_decisions_are_bounded_in_number_and_size() -> None:
    authorizer = make_authorizer(Cluster(AclsImage().evolve({b"1": ENTRY})))
    for number in range(DECISIONS_MAX + 10):
        assert not reads(authorizer, f"other-{number}")
    assert len(authorizer._decisions) <= DECISIONS_MAX
    before = len(authorizer._decisions)
    assert not reads(authorizer, "n" * 30_000)
    assert len(authorizer._decisions) == before
    assert reads(authorizer)


def test_any_resource_of_a_type_is_enough_for_some_questions() -> None:
    cluster = Cluster(AclsImage().evolve({b"1": ENTRY}))
    authorizer = make_authorizer(cluster)
    assert authorizer.allows_any("User:a", "10.0.0.1", READ, TOPIC)
    assert not authorizer.allows_any("User:a", "10.0.0.1", WRITE, TOPIC)
    cluster.acls = AclsImage()
    assert not authorizer.allows_any("User:a", "10.0.0.1", READ, TOPIC)


@pytest.mark.parametrize(
    ("text", "users"),
    [
        ("", set()),
        ("User:a", {"User:a"}),
        (" User:a ; User:CN=x,OU=y;", {"User:a", "User:CN=x,OU=y"}),
    ],
)
def test_super_users_are_separated_by_semicolons(text: str, users: set[str]) -> None:
    assert parse_super_users(text) == users


def test_a_super_user_without_a_type_is_refused() -> None:
    assert parse_super_users("alice") is None
