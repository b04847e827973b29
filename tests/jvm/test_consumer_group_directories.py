"""Directories with consumer groups (KIP-848) that the other broker goes on with, both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.coordinator.group.classic.embedded_protocol import decode_assignment
from barnabas.protocol.errors import ErrorCode
from barnabas.testing.broker_process import BrokerProcess
from differential.consumer_members import DESCRIBE, HEARTBEAT, Members
from differential.conversion_stories import Mixed, classic_group
from differential.scene import ask
from differential.side import Side
from jvm.kafka_process import KafkaProcess
from jvm.test_directories import SETTINGS
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from barnabas.protocol.messages.consumer_group_describe import DescribedGroup

pytestmark = pytest.mark.conformance

Broker = BrokerProcess | KafkaProcess
GROUP, TOPIC = "travellers", "roads"
GROUPS = {
    **SETTINGS,
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}


@pytest.fixture
def pair(tmp_path: Path, kafka_jars: Callable[[str], str]) -> Iterator[tuple[Broker, Broker]]:
    """Both brokers over one directory."""
    kafka = KafkaProcess(
        tmp_path / "kafka",
        {**GROUPS, "log.dirs": str(tmp_path / "data")},
    )
    kafka.data_directory = tmp_path / "data"
    ours = BrokerProcess(tmp_path / "ours", GROUPS, ["--data-dir", str(tmp_path / "data")])
    try:
        yield kafka, ours
    finally:
        kafka.close()
        ours.close()


def described(side: Side) -> DescribedGroup:
    (found,) = ask(side, DESCRIBE, 1, {"group_ids": [GROUP]}).groups
    found.members.sort(key=lambda each: each.member_id)
    for member in found.members:
        for assignment in (member.assignment, member.target_assignment):
            assignment.topic_partitions.sort(key=lambda each: each.topic_name)
    return found


def beats(side: Side, member: str, epoch: int) -> int:
    """The epoch that a heartbeat returns, or -100 for an error."""
    values = {"group_id": GROUP, "member_id": member, "member_epoch": epoch}
    answer = ask(side, HEARTBEAT, 1, values)
    return -100 if answer.error_code else answer.member_epoch


both_ways = pytest.mark.parametrize(
    "is_kafka_first", [True, False], ids=["kafka-first", "ours-first"]
)


def started(broker: Broker) -> Side:
    """Start a broker, and wait for its coordinator."""
    broker.start()
    side = Side("first", broker.bootstrap)
    warm = {"key_type": 0, "coordinator_keys": [GROUP]}
    eventually(lambda: not ask(side, 10, 4, warm).coordinators[0].error_code)
    eventually(lambda: described(side).error_code == 69)
    return side


@both_ways
def test_the_other_broker_goes_on_with_the_group(
    pair: tuple[Broker, Broker], is_kafka_first: bool
) -> None:
    first, second = pair if is_kafka_first else pair[::-1]
    side = started(first)
    members = Members(side, GROUP, {TOPIC: 4})
    members.beat("m1", 0, subscribed_topic_names=[TOPIC], instance_id="i", rack_id="r")
    members.beat("m2", 0, subscribed_topic_regex=f"{TOPIC}.*", server_assignor="range")
    eventually(lambda: described(side).group_epoch >= 4)
    members.beat("m1", 2, instance_id="i")
    before = described(side)
    side.close_all()
    first.kill()
    second.start()
    side = Side("second", second.bootstrap)
    eventually(lambda: described(side).error_code == 0)
    assert described(side) == before
    m1, m2 = (each.member_epoch for each in before.members)
    assert beats(side, "m2", m2) >= m2
    values = {"group_id": GROUP, "member_id": "m1", "member_epoch": m1, "instance_id": "i"}
    owned = {"topic_partitions": [{"topic_id": members.ids[TOPIC], "partitions": [0, 1]}]}
    answer = ask(side, HEARTBEAT, 1, {**values, **owned})
    assert answer.error_code == 0
    assert answer.member_epoch > m1
    side.close_all()


@both_ways
def test_the_other_broker_goes_on_with_members_of_both_protocols(
    pair: tuple[Broker, Broker], is_kafka_first: bool
) -> None:
    """The second broker has the classic member, and converts the group."""
    first, second = pair if is_kafka_first else pair[::-1]
    side = started(first)
    members = Mixed(side, GROUP, {TOPIC: 4})
    classic, _ = classic_group(members, TOPIC)
    members.beat("m1", 0, subscribed_topic_names=[TOPIC])
    revoking = members.join(classic, TOPIC, owned={TOPIC: range(4)})
    members.sync(classic, revoking.generation_id)
    epoch = members.join(classic, TOPIC, owned={TOPIC: [0, 1]}).generation_id
    before = described(side)
    assert sorted(each.member_type for each in before.members) == [0, 1]
    side.close_all()
    first.kill()
    second.start()
    side.move(second.bootstrap)
    eventually(lambda: described(side).error_code == 0)
    assert described(side) == before
    assert members.alive(classic, epoch) == ErrorCode.NONE
    assert decode_assignment(members.sync(classic, epoch).assignment).assigned_partitions
    assert beats(side, "m1", epoch) == epoch
    members.beat("m1", -1)
    assert members.alive(classic, epoch) == ErrorCode.REBALANCE_IN_PROGRESS
    again = members.join(classic, TOPIC)
    assert (again.leader, again.generation_id) == (classic, epoch + 1)
    side.close_all()
