"""Access control lists in the metadata log, opened by Apache Kafka 4.4 and Barnabas in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import barnabas
from barnabas.client.admin.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from barnabas.testing.broker_process import BrokerProcess
from jvm.directory_settings import SETTINGS
from jvm.kafka_process import KafkaProcess
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.conformance, pytest.mark.nightly]

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
Broker = BrokerProcess | KafkaProcess


def acl(number: int) -> Acl:
    return Acl(
        AclResourceType.TOPIC if number % 2 else AclResourceType.GROUP,
        f"name-{number}",
        f"User:user-{number}",
        AclOperation.READ,
        AclPermission.DENY if number % 3 else AclPermission.ALLOW,
        "10.0.0.0/8" if number % 5 else "*",
        PatternType.PREFIXED if number % 7 else PatternType.LITERAL,
    )


def entries_of(broker: Broker) -> set[Acl]:
    with barnabas.Admin(broker.bootstrap) as admin:
        return set(admin.describe_acls(AclFilter()))


def change(broker: Broker, added: list[Acl], removed: Acl | None = None) -> None:
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_acls(added)
        if removed is not None:
            admin.delete_acls([AclFilter(principal=removed.principal)])


@pytest.mark.parametrize("first", ["kafka", "barnabas"])
def test_each_broker_finds_the_entries_of_the_other(first: str, tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    # Both brokers write snapshots early, so that entries are read from them too.
    settings = {
        **SETTINGS,
        **AUTHORIZER,
        "metadata.log.max.record.bytes.between.snapshots": "20000",
    }
    kafka = KafkaProcess(tmp_path, {**settings, "log.dirs": path})
    ours = BrokerProcess(tmp_path, settings, ["--data-dir", path])
    turns: list[Broker] = [kafka, ours, kafka] if first == "kafka" else [ours, kafka, ours]
    expected: set[Acl] = set()
    try:
        for number, broker in enumerate(turns):
            broker.start()
            found = broker
            eventually(lambda: entries_of(found) == expected, pause_s=0.1)  # noqa: B023
            added = [acl(number * 1000 + each) for each in range(200)]
            removed = next(iter(expected), None)
            change(broker, added, removed)
            expected = {*expected, *added} - {removed}  # type: ignore[arg-type]
            eventually(lambda: entries_of(found) == expected, pause_s=0.1)  # noqa: B023
            broker.kill() if number % 2 else broker.stop()
    finally:
        kafka.close()
        ours.close()
