"""Directories with consumer groups (KIP-848) and streams groups (KIP-1071), on both brokers.

The second broker continues the groups of the first one, in both orders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.coordinator.group.classic.embedded_protocol import decode_assignment
from barnabas.protocol.errors import ErrorCode
from barnabas.testing.broker_process import BrokerProcess
from differential.consumer_members import DESCRIBE, HEARTBEAT, Members
from differential.conversion_stories import Mixed, classic_group
from differential.scene import exchange
from differential.side import Side
from differential.streams_members import (
    DESCRIBE as DESCRIBE_STREAMS,
    StreamsMembers,
    counting,
    sort_members,
    tasks,
)
from jvm.kafka_process import KafkaProcess
from jvm.test_directories import SETTINGS
from waiting import eventually, eventually_equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from barnabas.protocol.messages.consumer_group_describe import DescribedGroup
    from barnabas.protocol.messages.streams_group_describe import (
        DescribedGroup as DescribedStreamsGroup,
    )

pytestmark = pytest.mark.conformance

Broker = BrokerProcess | KafkaProcess
GROUP, TOPIC = "travellers", "roads"
STREAMS_GROUP, STREAMS_TOPIC = "boats", "rivers"
# The tasks of `counting` over a topic of two partitions.
ALL_TASKS = {"s0": [0, 1], "s1": [0, 1]}
TAGS = [{"key": "zone", "value": "a"}]
GROUPS = {
    **SETTINGS,
    "group.consumer.assignment.interval.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
}


@pytest.fixture
def pair(tmp_path: Path, kafka_jars: Callable[[str], str]) -> Iterator[tuple[Broker, Broker]]:
    """Both brokers on one directory."""
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
    (found,) = exchange(side, DESCRIBE, 1, {"group_ids": [GROUP]}).groups
    found.members.sort(key=lambda each: each.member_id)
    for member in found.members:
        for assignment in (member.assignment, member.target_assignment):
            assignment.topic_partitions.sort(key=lambda each: each.topic_name)
    return found


def described_streams(side: Side) -> DescribedStreamsGroup:
    (found,) = exchange(side, DESCRIBE_STREAMS, 1, {"group_ids": [STREAMS_GROUP]}).groups
    sort_members(found)
    for subtopology in found.topology.subtopologies if found.topology else ():
        for topics in (
            subtopology.repartition_source_topics,
            subtopology.state_changelog_topics,
        ):
            for topic in topics:
                # The number depends on the last configuration of the topology, which a start
                # repeats.
                topic.partitions = 0
    return found


def lines_of(group: DescribedStreamsGroup) -> list[str]:
    """Return each field on a line, so that a failure shows the different field."""
    return str(group).replace(", ", ",\n").splitlines()


def stable_streams_group(side: Side) -> StreamsMembers:
    """Create a group with a store, whose only member has all tasks."""
    members = StreamsMembers(side, STREAMS_GROUP, {STREAMS_TOPIC: 2})
    members.create_internal_topics(2)
    topology = counting(STREAMS_GROUP, STREAMS_TOPIC)
    eventually(
        lambda: members.join("s1", topology, client_tags=TAGS).error_code == ErrorCode.NONE,
        lambda: members.lines[-1],
    )
    eventually(
        lambda: keeps_tasks(members, "s1", **ALL_TASKS) and is_stable(side),
        lambda: str(described_streams(side)),
    )
    return members


def is_stable(side: Side) -> bool:
    """Return whether the only member of the streams group has all tasks."""
    found = described_streams(side)
    active = found.members[0].assignment.active_tasks
    assigned = {f"s{each.subtopology_id}": each.partitions for each in active}
    return found.group_state == "Stable" and assigned == ALL_TASKS


def keeps_tasks(members: StreamsMembers, member: str, **owned: list[int]) -> bool:
    """Send a heartbeat with a member's tasks, and return whether its assignment is unchanged."""
    active = tasks(**owned)
    response = members.heartbeat_uncompared(
        member, active_tasks=active, standby_tasks=[], warmup_tasks=[]
    )
    assert response.error_code == ErrorCode.NONE, response
    found = {f"s{each.subtopology_id}": each.partitions for each in response.active_tasks or ()}
    return not response.status and found in ({}, owned)


def check_streams_group(members: StreamsMembers, before: DescribedStreamsGroup) -> None:
    """Check that the group is unchanged, its member continues, and a new member gets tasks."""
    side = members.side
    eventually_equal(lambda: described_streams(side).error_code, ErrorCode.NONE)
    eventually(lambda: keeps_tasks(members, "s1", **ALL_TASKS))
    assert lines_of(described_streams(side)) == lines_of(before)
    epoch = members.epochs["s1"]
    members.join("s2", counting(STREAMS_GROUP, STREAMS_TOPIC), process_id="other")

    def share() -> list[int]:
        active = [each for each in described_streams(side).members if each.member_id == "s1"]
        target = active[0].target_assignment.active_tasks
        return [len(each.partitions) for each in target]

    eventually_equal(share, [1, 1])
    response = members.heartbeat_uncompared("s1")
    assert response.error_code == ErrorCode.NONE
    # The member must release tasks before its epoch grows.
    assert response.member_epoch == epoch
    assert [len(each.partitions) for each in response.active_tasks] == [1, 1]


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
    broker.start()
    side = Side("first", broker.bootstrap)
    warm = {"key_type": 0, "coordinator_keys": [GROUP]}
    eventually(lambda: not exchange(side, 10, 4, warm).coordinators[0].error_code)
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
    streams = stable_streams_group(side)
    streams_before = described_streams(side)
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
    check_streams_group(streams, streams_before)
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
