"""Access control entries that a link copies, and those of the operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas import Client
from barnabas.client.admin.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from barnabas.testing.broker_process import BROKER_SETTINGS, BrokerProcess
from conformance.linked_clusters import LINK, Linked
from waiting import eventually_equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.conformance

SETTINGS = {
    **BROKER_SETTINGS,
    "offsets.topic.num.partitions": "2",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def topic_acl(name: str, principal: str, operation: AclOperation = AclOperation.READ) -> Acl:
    return Acl(AclResourceType.TOPIC, name, principal, operation)


# Of the source. The last ones are not copied.
READ = topic_acl("orders", "User:reader")
DENIED = Acl(
    AclResourceType.TOPIC, "orders", "User:other", AclOperation.READ, AclPermission.DENY, "10.0.0.1"
)
WRITE = topic_acl("orders", "User:writer", AclOperation.WRITE)
IN_GROUP = Acl(AclResourceType.GROUP, "readers", "User:reader", AclOperation.READ)
UNWANTED = [
    topic_acl("other", "User:reader"),
    topic_acl("*", "User:all"),
    Acl(AclResourceType.GROUP, "strangers", "User:reader", AclOperation.READ),
    Acl(
        AclResourceType.TOPIC,
        "ord",
        "User:prefix",
        AclOperation.READ,
        pattern_type=PatternType.PREFIXED,
    ),
]
# Of the cluster with the mirrors.
OWN = topic_acl("orders", "User:own")


@pytest.fixture
def source(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "source", SETTINGS) as process:
        yield process


@pytest.fixture
def target(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "target", SETTINGS) as process:
        yield process


def acls(client: Client) -> set[Acl]:
    return set(client.admin.describe_acls())


def delete(client: Client, acl: Acl) -> None:
    wanted = AclFilter(
        acl.resource_type, acl.resource_name, acl.principal, acl.operation, acl.permission, acl.host
    )
    client.admin.delete_acls([wanted])


def test_a_link_copies_acls_and_leaves_those_of_the_operator(
    source: BrokerProcess, target: BrokerProcess, tmp_path: Path
) -> None:
    linked = Linked(source.bootstrap, target.bootstrap, tmp_path)
    linked.options = ["--acls"]
    linked.create_topic("orders")
    with Client(source.bootstrap) as theirs, Client(target.bootstrap) as own:
        theirs.admin.create_acls([READ, DENIED, IN_GROUP, OWN, *UNWANTED])
        own.admin.create_acls([OWN, WRITE])
        linked.create_link("orders", "readers")
        eventually_equal(lambda: acls(own), {OWN, WRITE, READ, DENIED, IN_GROUP})
        # The operator has these entries too, and has had them before the source.
        theirs.admin.create_acls([WRITE])
        later = topic_acl("orders", "User:later")
        theirs.admin.create_acls([later])
        eventually_equal(lambda: acls(own), {OWN, WRITE, READ, DENIED, IN_GROUP, later})
        for each in (READ, IN_GROUP, WRITE, OWN):
            delete(theirs, each)
        eventually_equal(lambda: acls(own), {OWN, WRITE, DENIED, later})
        # The entries of a promoted topic stay.
        linked.await_mirrored("orders")
        linked.shell.ok("links", "promote", LINK)
        delete(theirs, later)
        prefix = f"barnabas.link.{LINK}.acl."
        eventually_equal(
            lambda: prefix in linked.shell.ok("configs", "describe", "broker", "default", "--all"),
            False,
        )
        assert acls(own) == {OWN, WRITE, DENIED, later}


def test_acls_are_refused_without_an_authorizer(tmp_path: Path, target: BrokerProcess) -> None:
    with BrokerProcess(tmp_path / "plain", BROKER_SETTINGS) as plain:
        linked = Linked(plain.bootstrap, target.bootstrap, tmp_path)
        linked.options = ["--acls"]
        with pytest.raises(AssertionError, match="SECURITY_DISABLED"):
            linked.create_link(".*")
