"""Directories with a consumer group (KIP-848) that the other broker goes on with, both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.testing.broker_process import BrokerProcess
from differential.consumer_members import DESCRIBE, HEARTBEAT, Members
from differential.scene import ask
from differential.side import Side
from jvm.features import FEATURES
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
        features=FEATURES,
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


@pytest.mark.parametrize("is_kafka_first", [True, False], ids=["kafka-first", "ours-first"])
def test_the_other_broker_goes_on_with_the_group(
    pair: tuple[Broker, Broker], is_kafka_first: bool
) -> None:
    first, second = pair if is_kafka_first else pair[::-1]
    first.start()
    side = Side("first", first.bootstrap)
    warm = {"key_type": 0, "coordinator_keys": [GROUP]}
    eventually(lambda: not ask(side, 10, 4, warm).coordinators[0].error_code)
    eventually(lambda: described(side).error_code == 69)
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
