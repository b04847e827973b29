"""Directories with consumer groups (KIP-848), which the other broker continues, in both orders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.coordinator.group.classic.classic_member import decode_assignment
from barnabas.protocol.errors import ErrorCode
from differential.consumer_members import DESCRIBE, HEARTBEAT, Members
from differential.conversion_stories import Mixed, classic_group
from differential.scene import exchange
from differential.side import Side
from jvm.directory_pair import directory_pair, start_with_coordinator
from jvm.directory_settings import SETTINGS
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from barnabas.protocol.messages.consumer_group_describe import DescribedGroup
    from jvm.directory_pair import Broker

pytestmark = [pytest.mark.conformance, pytest.mark.nightly]

GROUP, TOPIC = "travellers", "roads"
GROUPS = {
    **SETTINGS,
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}


@pytest.fixture
def pair(tmp_path: Path, kafka_jars: Callable[[str], str]) -> Iterator[tuple[Broker, Broker]]:
    """Both brokers on one directory."""
    with directory_pair(tmp_path, GROUPS) as brokers:
        yield brokers


def described(side: Side) -> DescribedGroup:
    (found,) = exchange(side, DESCRIBE, 1, {"group_ids": [GROUP]}).groups
    found.members.sort(key=lambda each: each.member_id)
    for member in found.members:
        for assignment in (member.assignment, member.target_assignment):
            assignment.topic_partitions.sort(key=lambda each: each.topic_name)
    return found


def heartbeat_epoch(side: Side, member: str, epoch: int) -> int:
    """Return the epoch in the response to a heartbeat, or -100 for an error."""
    values = {"group_id": GROUP, "member_id": member, "member_epoch": epoch}
    response = exchange(side, HEARTBEAT, 1, values)
    return -100 if response.error_code else response.member_epoch


both_orders = pytest.mark.parametrize(
    "is_kafka_first", [True, False], ids=["kafka-first", "ours-first"]
)


def start_and_await_coordinator(broker: Broker) -> Side:
    """Start a broker, and wait for its coordinator."""
    side = start_with_coordinator(broker, GROUP)
    eventually(lambda: described(side).error_code == 69)
    return side


@both_orders
def test_the_other_broker_continues_the_group(
    pair: tuple[Broker, Broker], is_kafka_first: bool
) -> None:
    first, second = pair if is_kafka_first else pair[::-1]
    side = start_and_await_coordinator(first)
    members = Members(side, GROUP, {TOPIC: 4})
    members.heartbeat("m1", 0, subscribed_topic_names=[TOPIC], instance_id="i", rack_id="r")
    members.heartbeat("m2", 0, subscribed_topic_regex=f"{TOPIC}.*", server_assignor="range")
    eventually(lambda: described(side).group_epoch >= 4)
    members.heartbeat("m1", 2, instance_id="i")
    before = described(side)
    side.close_all()
    first.kill()
    second.start()
    side.move(second.bootstrap)
    eventually(lambda: described(side).error_code == 0)
    assert described(side) == before
    m1, m2 = (each.member_epoch for each in before.members)
    assert heartbeat_epoch(side, "m2", m2) >= m2
    values = {"group_id": GROUP, "member_id": "m1", "member_epoch": m1, "instance_id": "i"}
    owned = {"topic_partitions": [{"topic_id": members.ids[TOPIC], "partitions": [0, 1]}]}
    response = exchange(side, HEARTBEAT, 1, {**values, **owned})
    assert response.error_code == 0
    assert response.member_epoch > m1
    side.close_all()


@both_orders
def test_the_other_broker_continues_a_group_with_members_of_both_protocols(
    pair: tuple[Broker, Broker], is_kafka_first: bool
) -> None:
    """The second broker serves the classic member, and converts the group."""
    first, second = pair if is_kafka_first else pair[::-1]
    side = start_and_await_coordinator(first)
    members = Mixed(side, GROUP, {TOPIC: 4})
    classic, _ = classic_group(members, TOPIC)
    members.heartbeat("m1", 0, subscribed_topic_names=[TOPIC])
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
    assert members.heartbeat_classic(classic, epoch) == ErrorCode.NONE
    assert decode_assignment(members.sync(classic, epoch).assignment).assigned_partitions
    assert heartbeat_epoch(side, "m1", epoch) == epoch
    members.heartbeat("m1", -1)
    assert members.heartbeat_classic(classic, epoch) == ErrorCode.REBALANCE_IN_PROGRESS
    again = members.join(classic, TOPIC)
    assert (again.leader, again.generation_id) == (classic, epoch + 1)
    side.close_all()
