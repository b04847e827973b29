"""Both brokers with an authorizer, and the permissions of each host.

Every client is anonymous, so permissions differ by host: a client binds another address of the
loopback network. Scenes are set up from the brokers' own host, which has all permissions. The
compared requests come from a host with fewer permissions.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.resources import AclOperation, AclPermission, AclResourceType, PatternType
from barnabas.testing.broker_process import BrokerProcess
from differential.broker_pair import SETTINGS
from differential.scene import Pair, Scene, exchange
from differential.side import Side
from differential.warm_up import describe_first_share_offsets, warm_up
from jvm.kafka_process import KafkaProcess
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from differential.scene import Build

ALL_RIGHTS = "127.0.0.1"
# All requests are allowed until the tests create the first ACLs.
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
ANONYMOUS = "User:ANONYMOUS"
TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
CLUSTER, ID = AclResourceType.CLUSTER, AclResourceType.TRANSACTIONAL_ID
ALL = AclOperation.ALL
# Operations without a host of their own; Kafka refuses the first in an entry.
_WITHOUT_MATRIX = ("UNKNOWN", "ANY", "ALL", "CREATE_TOKENS", "DESCRIBE_TOKENS")
# The name of a resource that stands for all resources of a type.
EVERY = {TOPIC: "*", GROUP: "*", CLUSTER: "kafka-cluster", ID: "*"}
# The host "by prefix" may use resources whose names begin with this prefix.
PREFIX = "may-"

Entry = dict[str, Any]


def entry(
    host: str,
    kind: int,
    operation: int = ALL,
    name: str = "",
    pattern: int = PatternType.LITERAL,
    permission: int = AclPermission.ALLOW,
) -> Entry:
    """Return an ACL of the anonymous user, by default for all resources of the type."""
    return {
        "resource_type": kind,
        "resource_name": name or EVERY[AclResourceType(kind)],
        "resource_pattern_type": pattern,
        "principal": ANONYMOUS,
        "host": host,
        "operation": operation,
        "permission_type": permission,
    }


def _hosts() -> dict[str, tuple[str, list[Entry]]]:
    """Return the address and the ACLs of each host by its name."""
    deny = AclPermission.DENY
    made: dict[str, list[Entry]] = {"nothing": []}
    for operation in AclOperation:
        if operation.name not in _WITHOUT_MATRIX:
            made[operation.name.lower()] = [(kind, operation) for kind in EVERY]  # type: ignore[misc]
    for kind in EVERY:
        made[f"all of {kind.name.lower()}"] = [(kind,)]  # type: ignore[list-item]
        made[f"all but {kind.name.lower()}"] = [(each,) for each in EVERY if each != kind]  # type: ignore[misc]
    hosts = {}
    for number, (name, entries) in enumerate(made.items(), 10):
        host = f"127.0.1.{number}"
        hosts[name] = host, [entry(host, *each) for each in entries]
    prefixed = PatternType.PREFIXED
    host = "127.0.2.1"
    hosts["by prefix"] = (
        host,
        [entry(host, kind, ALL, PREFIX, prefixed) for kind in (TOPIC, GROUP, ID)],
    )
    host = "127.0.2.2"
    hosts["all but describing topics"] = (
        host,
        [
            *(entry(host, kind) for kind in EVERY),
            entry(host, TOPIC, AclOperation.DESCRIBE, permission=deny),
        ],
    )
    host = "127.0.2.3"
    hosts["all by a range"] = host, [entry("127.0.2.3/32", kind) for kind in EVERY]
    return hosts


HOSTS = _hosts()
# The hosts that send all versions in `make nightly`.
FEW_HOSTS = ("nothing", "read", "describe", "all but topic", "all but cluster")
# The only hosts in `make check`: all is refused, and a part is refused.
CHECK_HOSTS = ("nothing", "all but topic")


def all_entries() -> list[Entry]:
    """Return all ACLs that are created at the start."""
    first = [entry(ALL_RIGHTS, kind) for kind in EVERY]
    return [*first, *(each for _, entries in HOSTS.values() for each in entries)]


class SecuredSide(Side):
    """A broker. The name of a connection begins with the name of its source host."""

    def host_of(self, on: str) -> str:
        name = on.partition("/")[0]
        return HOSTS[name][0] if name in HOSTS else ALL_RIGHTS


class SecuredScene(Scene):
    """A scene whose compared requests come from a host with few permissions.

    All other requests come from a host with all permissions.
    """

    def __init__(self, pair: Pair, api: ApiKey, name: str, version: int, host: str) -> None:
        super().__init__(pair, api, name, version)
        self._host = host

    def send(
        self, build: Build, api: ApiKey | None = None, version: int | None = None, on: str = ""
    ) -> None:
        super().send(build, api, version, f"{self._host}/{on}")

    def compare_response(
        self, api: ApiKey | None = None, version: int | None = None, on: str = ""
    ) -> tuple[Any, Any]:
        return super().compare_response(api, version, f"{self._host}/{on}")


@contextlib.contextmanager
def started_secured_pair(directory: Path) -> Iterator[Pair]:
    """Run both brokers with all ACLs.

    Args:
        directory: contains the directories of both brokers.
    """
    settings = {**SETTINGS, **AUTHORIZER}
    kafka = KafkaProcess(directory / "kafka", settings)
    barnabas = BrokerProcess(directory / "barnabas", settings)
    try:
        kafka.launch()
        barnabas.start()
        kafka.await_ready()
        made = Pair(
            SecuredSide("kafka", kafka.bootstrap), SecuredSide("barnabas", barnabas.bootstrap)
        )
        for side in made.sides():
            create(side, all_entries())
        warm_up(made)
        describe_first_share_offsets(made)
        yield made
        made.close()
    finally:
        kafka.close()
        barnabas.close()


def create(side: Side, entries: list[Entry]) -> None:
    """Create ACLs, and wait until the broker lists them."""
    made = exchange(side, ApiKey.CREATE_ACLS, 3, {"creations": entries})
    assert all(each.error_code == 0 for each in made.results), made
    eventually(lambda: count(side) >= len(entries), side.name)


def count(side: Side) -> int:
    """Return the number of ACLs that a broker lists."""
    anything = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    found = exchange(side, ApiKey.DESCRIBE_ACLS, 3, anything)
    return sum(len(each.acls) for each in found.resources)
