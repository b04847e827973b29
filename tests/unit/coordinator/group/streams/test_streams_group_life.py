"""Offsets, deletion, conversion and metrics of streams groups (KIP-1071)."""

from __future__ import annotations

import pytest

from barnabas.coordinator.group.group_coordinator import group_families
from barnabas.coordinator.group.offset_changes import MemberClaim, OffsetsToCommit
from barnabas.coordinator.group.offset_store import CommittedOffset
from barnabas.metrics import names
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from barnabas.protocol.messages.groups import DeleteGroupsResponse, ListGroupsRequest
from steps import finish
from unit.coordinator.streams_world import StreamsWorld, by_subtopology, topology


@pytest.fixture
def world() -> StreamsWorld:
    made = StreamsWorld()
    made.create_topic("orders", 2)
    made.beat_streams("a", 0, topology("orders"))
    return made


def deleted(world: StreamsWorld, group: str = "g") -> int:
    found: list[DeleteGroupsResponse] = []
    finish(world.coordinator.groups.delete([group], found.append))
    (response,) = found
    (result,) = response.results
    return result.error_code


def test_a_member_commits_with_its_epoch(world: StreamsWorld) -> None:
    assert world.commit(version=9, member="a", generation=2) == 0
    assert world.commit(version=9, member="a", generation=3) == ErrorCode.STALE_MEMBER_EPOCH
    assert world.commit(version=9, member="b", generation=2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit(version=8, member="a", generation=2) == ErrorCode.UNSUPPORTED_VERSION


def test_a_member_commits_with_an_older_epoch_for_tasks_that_it_had_then(
    world: StreamsWorld,
) -> None:
    world.beat_streams("b", 0, topology("orders"))
    kept = by_subtopology(world.beat_streams("a", 2, owned={"0": {0, 1}}).active_tasks)
    world.beat_streams("a", 2, owned=kept)
    (mine,) = kept["0"]
    assert world.commit(version=9, member="a", generation=2, partition=mine, topic="orders") == 0
    lost = world.commit(version=9, member="a", generation=2, partition=1 - mine, topic="orders")
    assert lost == ErrorCode.STALE_MEMBER_EPOCH


def test_only_clients_without_a_membership_commit_to_an_empty_group(world: StreamsWorld) -> None:
    assert world.commit(version=9) == ErrorCode.UNKNOWN_MEMBER_ID
    world.beat_streams("a", -1)
    assert world.commit(version=9) == 0


def test_only_new_clients_learn_in_a_transaction_that_their_member_epoch_is_stale(
    world: StreamsWorld,
) -> None:
    offset = CommittedOffset(5, -1, "", 0, -1, world.id_of("orders"))
    offsets = [(("orders", 0), offset)]

    def error(version: int, group: str, epoch: int) -> int:
        claim = MemberClaim(group, "a", epoch)
        request = OffsetsToCommit(claim, offsets, version, is_transactional=True)
        result = world.coordinator.runtime.read(
            group, lambda shard: shard.offset_changes.commit(request)
        )
        return result.response[0]

    assert error(9, "g", 2) == 0
    assert error(9, "g", 3) == ErrorCode.ILLEGAL_GENERATION
    assert error(10, "g", 3) == ErrorCode.STALE_MEMBER_EPOCH
    assert error(9, "missing", 3) == ErrorCode.ILLEGAL_GENERATION
    assert error(10, "missing", 3) == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_are_fetched_with_the_epoch_of_the_member(world: StreamsWorld) -> None:
    world.commit(version=9, member="a", generation=2)

    def error(member: str | None, epoch: int) -> int:
        group = OffsetFetchRequestGroup(
            group_id="g", member_id=member, member_epoch=epoch, topics=None
        )
        response = finish(world.coordinator.offsets.fetch(OffsetFetchRequest(groups=[group]), 9))
        return response.groups[0].error_code

    assert (error("a", 2), error(None, -1)) == (0, 0)
    assert error("a", 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert error("b", 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_only_empty_groups_are_deleted(world: StreamsWorld) -> None:
    world.commit(version=9, member="a", generation=2)
    assert deleted(world) == ErrorCode.NON_EMPTY_GROUP
    world.beat_streams("a", -1)
    assert deleted(world) == 0
    assert world.describe_streams().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.coordinator.memory.held_bytes == 0
    world.coordinator = world.new_coordinator()
    world.load(1)
    assert deleted(world) == ErrorCode.GROUP_ID_NOT_FOUND


def test_groups_are_listed_by_type_and_state(world: StreamsWorld) -> None:
    world.beat_streams("b", 0, topology("trains"), group="waiting")

    def listed(**filters: list[str]) -> list[tuple[str, str, str]]:
        request = ListGroupsRequest(**filters)
        response = finish(world.coordinator.groups.list_groups(request))
        return [(each.group_id, each.group_type, each.group_state) for each in response.groups]

    assert listed(types_filter=["Streams"], states_filter=[]) == [
        ("g", "streams", "Stable"),
        ("waiting", "streams", "NotReady"),
    ]
    assert listed(states_filter=["not_ready"]) == [("waiting", "streams", "NotReady")]
    assert listed(types_filter=["share"]) == []


def test_other_requests_do_not_see_a_streams_group(world: StreamsWorld) -> None:
    assert world.coordinator.groups.describe("g", 6).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    joined = world.beat("c", 0, {}, subscribed_topic_names=["flights"], rebalance_timeout_ms=1)
    assert joined.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert joined.error_message == "Group g is not a consumer group."


def test_a_group_with_offsets_alone_becomes_a_streams_group() -> None:
    world = StreamsWorld()
    world.create_topic("orders", 1)
    world.commit(offset=7)
    assert world.beat_streams("a", 0, topology("orders")).error_code == 0
    assert world.committed()[1] == 7
    world.coordinator = world.new_coordinator()
    world.load(1)
    assert (world.state_of(), world.committed()[1]) == ("Stable", 7)


def test_a_consumer_group_does_not_become_a_streams_group() -> None:
    world = StreamsWorld()
    world.beat("c", 0, {}, subscribed_topic_names=["flights"], rebalance_timeout_ms=1)
    refused = world.beat_streams("a", 0, topology("orders"))
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused.error_message == "Group g is not a streams group."


def test_metrics_count_groups_and_rebalances(world: StreamsWorld) -> None:
    families = {each.name: list(each.samples) for each in group_families(world.coordinator)}
    states = dict(families[names.STREAMS_GROUPS])
    assert states[("state", "stable"),] == 1
    assert states[("state", "not_ready"),] == 0
    assert families[names.STREAMS_GROUP_REBALANCES] == [((), 1)]


def test_an_empty_streams_group_becomes_a_classic_group(world: StreamsWorld) -> None:
    refused = world.join("")
    assert refused.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    world.beat_streams("a", -1)
    world.begin()
    assert world.describe_streams().error_message == "Group g is not a streams group."
    assert world.describe().error_code == 0
    world.fail_over()
    assert world.describe_streams().error_message == "Group g is not a streams group."


def test_an_empty_group_without_offsets_is_removed_at_the_next_check(world: StreamsWorld) -> None:
    world.beat_streams("a", -1)
    assert world.state_of() == "Empty"
    world.run_for(601_000)
    assert world.describe_streams().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_a_topic_that_the_topology_reads_are_not_deleted(world: StreamsWorld) -> None:
    world.commit(version=9, member="a", generation=2, topic="orders")
    world.commit(version=9, member="a", generation=2)
    assert world.delete_offsets(0, topic="orders") == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    assert world.delete_offsets(0) == [0]
