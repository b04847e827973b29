"""Directories with a streams group (KIP-1071), which both brokers continue in turn.

The first broker is killed, and the second one stops cleanly. Both orders are tested, so each broker
opens a directory of the other one after each kind of end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from differential.scene import exchange
from differential.streams_members import (
    DESCRIBE,
    RETRIABLE,
    StreamsMembers,
    counting,
    sort_members,
    tasks,
)
from jvm.directory_pair import directory_pair, start_with_coordinator
from jvm.directory_settings import SETTINGS
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from barnabas.protocol.messages.streams_group_describe import DescribedGroup
    from differential.side import Side
    from jvm.directory_pair import Broker

pytestmark = [pytest.mark.conformance, pytest.mark.nightly]

GROUP, TOPIC = "boats", "rivers"
# The tasks of `counting` over a topic of two partitions.
ALL_TASKS = {"s0": [0, 1], "s1": [0, 1]}
STREAMS = {
    **SETTINGS,
    "group.streams.assignment.interval.ms": "0",
    "group.streams.initial.rebalance.delay.ms": "0",
    # No member is removed while a slow machine starts a broker.
    "group.streams.session.timeout.ms": "60000",
    "offsets.topic.num.partitions": "1",
}
ENDPOINT = {"host": "boat.example", "port": 7001}
TAGS = [{"key": "zone", "value": "a"}]

Owned = dict[str, list[int]]


@pytest.fixture
def pair(tmp_path: Path, kafka_jars: Callable[[str], str]) -> Iterator[tuple[Broker, Broker]]:
    """Both brokers on one directory."""
    with directory_pair(tmp_path, STREAMS) as brokers:
        yield brokers


def retried(send: Callable[[], Any]) -> Any:
    """Return the first response of a coordinator that has loaded the group.

    Kafka also unloads its groups for a moment when it lacks processor time.
    """

    def loaded() -> Any:
        response = send()
        is_loaded = response.error_code not in RETRIABLE - {ErrorCode.NONE}
        return response if is_loaded else None

    return eventually(loaded)


def described(side: Side) -> DescribedGroup:
    found: DescribedGroup = retried(
        lambda: exchange(side, DESCRIBE, 1, {"group_ids": [GROUP]}).groups[0]
    )
    sort_members(found)
    for subtopology in found.topology.subtopologies if found.topology else ():
        for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
            # The number depends on the last configuration of the topology, which a start repeats.
            topic.partitions = 0
    return found


def lines_of(group: DescribedGroup) -> list[str]:
    """Return each field on a line, so that a failure shows the different field."""
    return str(group).replace(", ", ",\n").splitlines()


def owned_by(side: Side) -> dict[str, Owned]:
    """Return the active tasks of each member."""
    return {
        each.member_id: {
            f"s{task.subtopology_id}": task.partitions for task in each.assignment.active_tasks
        }
        for each in described(side).members
    }


def report(members: StreamsMembers, member: str, owned: Owned) -> Any:
    """Send a heartbeat with the tasks that a member owns."""
    values = {"active_tasks": tasks(**owned), "standby_tasks": [], "warmup_tasks": []}
    response = retried(lambda: members.heartbeat_uncompared(member, **values))
    assert response.error_code == ErrorCode.NONE, response
    return response


def report_until_stable(members: StreamsMembers) -> dict[str, Owned]:
    """Let all members release and take tasks until the group is stable. Return the tasks."""

    def is_stable() -> bool:
        for member, owned in owned_by(members.side).items():
            report(members, member, owned)
        return described(members.side).group_state == "Stable"

    eventually(is_stable, lambda: str(described(members.side)))
    return owned_by(members.side)


def commit(members: StreamsMembers, member: str, epoch: int, offset: int) -> ErrorCode:
    """Commit an offset of each partition of the source topic."""
    partitions = [
        {"partition_index": index, "committed_offset": offset + index, "committed_metadata": "note"}
        for index in range(2)
    ]
    topics = [{"topic_id": members.ids[TOPIC], "partitions": partitions}]
    sender = {"member_id": member, "generation_id_or_member_epoch": epoch}
    values = {"group_id": GROUP, **sender, "topics": topics}

    def send() -> Any:
        first, last = exchange(members.side, ApiKey.OFFSET_COMMIT, 10, values).topics[0].partitions
        assert first.error_code == last.error_code
        return first

    return ErrorCode(retried(send).error_code)


def offsets(side: Side) -> list[str]:
    """Return the committed offsets."""
    group = {"group_id": GROUP, "member_id": None, "member_epoch": -1, "topics": None}
    values = {"groups": [group], "require_stable": False}
    found = retried(lambda: exchange(side, ApiKey.OFFSET_FETCH, 10, values).groups[0])
    assert found.error_code == ErrorCode.NONE, found
    return sorted(str(each) for topic in found.topics for each in topic.partitions)


def continue_on(members: StreamsMembers, end: Callable[[], int], successor: Broker) -> None:
    """End the broker. Check that its successor has the group and offsets, and serves all members.

    Args:
        members: the members, all of whose tasks are stable.
        end: stops or kills the broker.
        successor: the other broker, which is started.
    """
    side, epochs = members.side, dict(members.epochs)
    before, committed = lines_of(described(side)), offsets(side)
    assert len(committed) == 2
    side.close_all()
    end()
    successor.start()
    side.move(successor.bootstrap)
    assert lines_of(described(side)) == before
    assert offsets(side) == committed
    for member, owned in owned_by(side).items():
        # The status shows missing topics until the coordinator knows all topics.
        eventually(lambda member=member, owned=owned: not report(members, member, owned).status)
    assert members.epochs == epochs
    assert lines_of(described(side)) == before


@pytest.mark.parametrize("is_kafka_first", [True, False], ids=["kafka-first", "ours-first"])
def test_the_other_broker_continues_the_group(
    pair: tuple[Broker, Broker], is_kafka_first: bool
) -> None:
    first, second = pair if is_kafka_first else pair[::-1]
    side = start_with_coordinator(first, GROUP)
    members = StreamsMembers(side, GROUP, {TOPIC: 2})
    topology = counting(GROUP, TOPIC)
    retried(lambda: members.join("s1", topology, client_tags=TAGS, user_endpoint=ENDPOINT))
    assert report_until_stable(members) == {"s1": ALL_TASKS}
    epoch = members.epochs["s1"]
    assert commit(members, "s1", epoch, 10) == ErrorCode.NONE

    continue_on(members, first.kill, second)
    assert commit(members, "s1", epoch - 1, 0) == ErrorCode.STALE_MEMBER_EPOCH
    # A new member of another process gets half of the tasks.
    retried(lambda: members.join("s2", topology, process_id="other"))
    owned = report_until_stable(members)
    assert [len(owned["s1"][each]) for each in ALL_TASKS] == [1, 1]
    assert [sorted(owned["s1"][each] + owned["s2"][each]) for each in ALL_TASKS] == [[0, 1], [0, 1]]
    assert members.epochs["s1"] == members.epochs["s2"] > epoch
    assert commit(members, "s1", epoch, 0) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(members, "s2", members.epochs["s2"], 20) == ErrorCode.NONE

    continue_on(members, second.stop, first)
    retried(lambda: members.heartbeat("s2", -1))
    assert report_until_stable(members) == {"s1": ALL_TASKS}
    assert commit(members, "s2", members.epochs["s1"], 0) == ErrorCode.UNKNOWN_MEMBER_ID
    side.close_all()
