"""Groups whose members are replaced one by one, from the classic to the consumer protocol and back.

Each partition has one owner, each record is processed once, and the broker is killed meanwhile.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient

from barnabas.testing.broker_process import BrokerProcess
from conformance.client_program import ClientProgram
from conformance.client_scenarios import Group
from jvm.java import java_command
from selection import nightly_rows_unless
from waiting import PATIENCE_S, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.conformance

PROGRAMS = Path(__file__).parent / "programs"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "100",
}
MEMBERS, PARTITIONS, RECORDS = 3, 6, 30
# Longer than a restart on a slow machine, and shorter than the patience of this test.
SESSION_MS = 45_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), SETTINGS)
    process.start()
    yield process
    process.kill()


def program(name: str, bootstrap: str) -> ClientProgram:
    if name == "java":
        source = PROGRAMS / "JavaProgram.java"
        words = [*java_command("kafka", log_level="ERROR", source=source), source.stem]
    else:
        words = [sys.executable, str(PROGRAMS / f"{name}_program.py")]
    return ClientProgram(words, bootstrap)


def kind_of(admin: AdminClient, group: str) -> str:
    """Return the type of the group, in lower case."""
    listed = admin.list_consumer_groups(request_timeout=PATIENCE_S).result(PATIENCE_S)
    (found,) = (each.type.name for each in listed.valid if each.group_id == group)
    return str(found).lower()


@pytest.mark.parametrize(
    ("client", "strategy"),
    nightly_rows_unless(
        ("librdkafka", "range").__eq__,
        [
            ("java", "cooperative-sticky"),
            ("librdkafka", "range"),
            ("barnabas", "cooperative-sticky"),
        ],
    ),
    ids=lambda value: value,
)
def test_members_are_replaced_by_those_of_the_other_protocol(
    broker: BrokerProcess, client: str, strategy: str
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    made = Group(
        program(client, broker.bootstrap),
        PARTITIONS,
        strategy=strategy,
        session_timeout_ms=SESSION_MS,
    )
    with made as group:
        for _ in range(MEMBERS):
            group.start(protocol="classic")
        group.settle(MEMBERS)
        group.fill_and_read(RECORDS)
        for protocol, other in (("consumer", "classic"), ("classic", "consumer")):
            for replaced in range(MEMBERS):
                assert kind_of(admin, group.name) == (other if replaced == 0 else "consumer")
                old = group.running()[0]
                group.start(protocol=protocol)
                group.fill(RECORDS)
                group.settle(MEMBERS + 1)
                if replaced == 1 and protocol == "consumer":
                    # The next coordinator loads a group with members of both protocols.
                    broker.kill()
                    broker.start()
                    # All members have found the coordinator when their records are committed.
                    group.fill_and_read(RECORDS)
                old.leave()
                group.settle(MEMBERS)
                group.fill_and_read(RECORDS)
            eventually(lambda protocol=protocol: kind_of(admin, group.name) == protocol)
        while group.running():
            group.running()[0].leave()
        group.check_committed()
        seen = Counter(value for member in group.members for value in member.values)
        assert [value for value, count in seen.items() if count > 1] == []
