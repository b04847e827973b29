"""OffsetCommit and OffsetFetch have the responses of Apache Kafka 4.4."""

from __future__ import annotations

import pytest

from barnabas.coordinator.group.offset_store import CommittedOffset
from barnabas.coordinator.group.requests.offset_requests import GroupOffsets, fetch_group
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.record.reader import read_batches
from steps import finish
from unit.coordinator.coordinator_world import CoordinatorWorld
from unit.replication.replica_set import TOPIC_ID


@pytest.fixture
def world() -> CoordinatorWorld:
    world = CoordinatorWorld()
    world.load()
    return world


def stored(world: CoordinatorWorld) -> list[tuple[str, str]]:
    log = world.log
    content = log.segments[0].file.read_at(log.size, 0)
    return [
        (record.key.hex(), record.value.hex())
        for _, records in read_batches(content)
        for record in records
    ]


@pytest.mark.parametrize("version", [0, 1, 2, 5, 6, 7, 8, 9])
def test_a_client_without_a_group_commits_and_fetches(
    world: CoordinatorWorld, version: int
) -> None:
    assert world.commit(5, version, leader_epoch=3) == ErrorCode.NONE
    assert world.committed() == (ErrorCode.NONE, 5, "m", 3)


def test_a_commit_may_name_topics_by_id(world: CoordinatorWorld) -> None:
    assert world.commit(5, 10, topic_id=TOPIC_ID) == ErrorCode.NONE
    assert world.commit(5, 10, topic_id=b"x" * 16) == ErrorCode.UNKNOWN_TOPIC_ID
    assert world.committed()[1] == 5


def test_the_record_equals_that_of_kafka(world: CoordinatorWorld) -> None:
    world.commit(5)
    ((key, value),) = stored(world)
    assert key == "0001" + "0001" + b"g".hex() + "0007" + b"flights".hex() + "00000000"
    assert value.startswith("0004" + "0000000000000005" + "ffffffff" + "02" + b"m".hex())
    assert value.endswith("01" + "00" + "10" + TOPIC_ID.hex())


def test_a_retention_time_is_stored_as_an_expiry(world: CoordinatorWorld) -> None:
    world.commit(5, 4, retention_ms=100_000)
    ((_, value),) = stored(world)
    timestamp, expiry = int(value[-32:-16], 16), int(value[-16:], 16)
    assert value.startswith("0001" + "0000000000000005" + "0001" + b"m".hex())
    assert expiry == timestamp + 100_000


@pytest.mark.parametrize(
    ("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_commit_with_a_generation_of_a_missing_group_fails(
    world: CoordinatorWorld, version: int, error: ErrorCode
) -> None:
    assert world.commit(5, version, generation=5) == error


def test_a_commit_with_a_generation_of_an_empty_group_fails(world: CoordinatorWorld) -> None:
    world.commit(5)
    for version in (8, 9):
        assert world.commit(6, version, generation=5) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.committed()[1] == 5


def test_a_commit_with_a_member_id_and_no_generation_succeeds(world: CoordinatorWorld) -> None:
    assert world.commit(5, member="x") == ErrorCode.NONE


def test_metadata_is_limited_in_java_characters(world: CoordinatorWorld) -> None:
    assert world.commit(metadata="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert world.commit(metadata="x" * 4096) == ErrorCode.NONE
    assert world.commit(metadata="é" * 4096) == ErrorCode.NONE
    assert world.commit(metadata="😀" * 2049) == ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_a_commit_may_have_null_metadata_an_empty_group_id_or_a_negative_offset(
    world: CoordinatorWorld,
) -> None:
    assert world.commit(-5, metadata=None) == ErrorCode.NONE
    assert world.committed() == (ErrorCode.NONE, -5, "", -1)
    assert world.commit(group="") == ErrorCode.NONE
    assert world.committed(group="")[1] == 5


def test_commits_for_unknown_topics_and_partitions_fail(world: CoordinatorWorld) -> None:
    assert world.commit(topic="nowhere") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.commit(partition=9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_uncommitted_partition_has_offset_minus_one_without_an_error(
    world: CoordinatorWorld,
) -> None:
    assert world.committed() == (ErrorCode.NONE, -1, "", -1)
    world.commit(5)
    assert world.committed(partition=7) == (ErrorCode.NONE, -1, "", -1)


@pytest.mark.parametrize("version", [2, 5, 7])
def test_null_topics_return_all_topics(world: CoordinatorWorld, version: int) -> None:
    world.commit(5)
    request = OffsetFetchRequest(group_id="g", topics=None)
    (topic,) = finish(world.coordinator.offsets.fetch(request, version)).topics
    assert (topic.name, topic.partitions[0].committed_offset) == ("flights", 5)
    other = OffsetFetchRequest(group_id="other", topics=None)
    assert finish(world.coordinator.offsets.fetch(other, version)).topics == []


def test_a_fetch_of_several_groups_returns_offsets_by_topic_name(world: CoordinatorWorld) -> None:
    world.commit(5)
    named = [OffsetFetchRequestTopics(name="flights", partition_indexes=[0])]
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id="g", topics=None),
            OffsetFetchRequestGroup(group_id="other", topics=named),
        ],
        require_stable=True,
    )
    first, second = finish(world.coordinator.offsets.fetch(request, 9)).groups
    assert (first.group_id, first.error_code) == ("g", 0)
    assert first.topics[0].partitions[0].committed_offset == 5
    assert second.topics[0].partitions[0].committed_offset == -1


def test_a_fetch_of_groups_returns_offsets_by_topic_id(world: CoordinatorWorld) -> None:
    world.commit(5)
    topics = [
        OffsetFetchRequestTopics(topic_id=TOPIC_ID, partition_indexes=[0]),
        OffsetFetchRequestTopics(topic_id=b"q" * 16, partition_indexes=[0]),
    ]
    groups = [
        OffsetFetchRequestGroup(group_id="g", topics=topics),
        OffsetFetchRequestGroup(group_id="g", topics=None),
    ]
    some, every = finish(
        world.coordinator.offsets.fetch(OffsetFetchRequest(groups=groups), 10)
    ).groups
    assert some.topics[0].partitions[0].committed_offset == 5
    assert some.topics[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert every.topics[0].topic_id == TOPIC_ID


def test_a_group_error_has_the_format_of_the_version() -> None:
    world = CoordinatorWorld()
    topic = OffsetFetchRequestTopic(name="flights", partition_indexes=[0])
    request = OffsetFetchRequest(group_id="g", topics=[topic])
    old = finish(world.coordinator.offsets.fetch(request, 1))
    assert old.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    newer = finish(world.coordinator.offsets.fetch(request, 2))
    assert (newer.error_code, newer.topics) == (ErrorCode.NOT_COORDINATOR, [])
    groups = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    newest = finish(world.coordinator.offsets.fetch(groups, 8))
    assert newest.groups[0].error_code == ErrorCode.NOT_COORDINATOR


class OneTopic:
    """Knows the topic "flights" by one id."""

    def topic_id(self, name: str) -> bytes | None:
        return TOPIC_ID if name == "flights" else None

    def topic_name(self, topic_id: bytes) -> str | None:
        return "flights" if topic_id == TOPIC_ID else None

    def has_partition(self, name: str, partition: int) -> bool:
        return partition < self.partition_count(name)

    def partition_count(self, name: str) -> int:
        return 3 if name == "flights" else 0


def found_in(
    offsets: dict[tuple[str, int], CommittedOffset],
    topics: list[OffsetFetchRequestTopics] | None,
    version: int,
) -> list[tuple[str, list[tuple[int, int]]]]:
    group = OffsetFetchRequestGroup(group_id="g", topics=topics)
    slices = fetch_group(GroupOffsets(offsets, frozenset()), OneTopic(), group, version)
    while True:
        try:
            next(slices)
        except StopIteration as end:
            response = end.value
            break
    return [
        (topic.name, [(each.partition_index, each.committed_offset) for each in topic.partitions])
        for topic in response.topics
    ]


def test_offsets_of_a_deleted_topic_with_the_same_name_are_hidden() -> None:
    offsets = {
        ("flights", 0): CommittedOffset(5, -1, "", 0, -1, b"before".ljust(16)),
        ("flights", 1): CommittedOffset(6, -1, "", 0, -1, TOPIC_ID),
        ("flights", 2): CommittedOffset(7, -1, "", 0, -1, bytes(16)),
    }
    numbers = [0, 1, 2]
    by_name = [OffsetFetchRequestTopics(name="flights", partition_indexes=numbers)]
    by_id = [OffsetFetchRequestTopics(name="", topic_id=TOPIC_ID, partition_indexes=numbers)]
    assert found_in(offsets, by_name, 9) == [("flights", [(0, -1), (1, 6), (2, 7)])]
    assert found_in(offsets, by_id, 10) == [("", [(0, -1), (1, 6), (2, 7)])]


def test_a_fetch_of_all_topics_by_id_returns_existing_topics() -> None:
    offsets = {
        ("flights", 0): CommittedOffset(5, -1, "", 0, -1, b"before".ljust(16)),
        ("flights", 1): CommittedOffset(6, -1, "", 0, -1, TOPIC_ID),
        ("gone", 0): CommittedOffset(7, -1, "", 0, -1, bytes(16)),
    }
    assert found_in(offsets, None, 10) == [("flights", [(1, 6)])]
    assert found_in(offsets, None, 9) == [("flights", [(0, 5), (1, 6)]), ("gone", [(0, 7)])]
