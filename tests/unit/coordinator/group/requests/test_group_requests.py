"""DescribeGroups, ListGroups, DeleteGroups and OffsetDelete as Apache Kafka 4.4 answers them."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.protocol.messages.groups import ListGroupsRequest
from steps import counted, finish
from unit.coordinator.members_world import MembersWorld, subscription


@pytest.fixture
def world() -> MembersWorld:
    return MembersWorld()


def test_a_stable_group_is_described_with_its_members(world: MembersWorld) -> None:
    leader, _ = world.stable(2)
    group = world.describe()
    assert (group.error_code, group.group_state) == (ErrorCode.NONE, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    member = group.members[0]
    assert (member.member_id, member.client_id) == (leader, "client")
    assert member.client_host == "/127.0.0.1"
    assert member.member_metadata == subscription("flights")
    assert member.member_assignment == b"for " + leader.encode()


def test_a_rebalancing_group_is_described_with_its_last_assignments_and_no_protocol(
    world: MembersWorld,
) -> None:
    (leader,) = world.stable()
    world.join(world.new_id())
    group = world.describe()
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [(each.member_metadata, each.member_assignment) for each in group.members] == [
        (b"", b"for " + leader.encode()),
        (b"", b""),
    ]


def test_a_group_that_does_not_exist_is_dead_and_from_version_6_on_an_error(
    world: MembersWorld,
) -> None:
    assert (world.describe("x", 5).error_code, world.describe("x", 5).group_state) == (0, "Dead")
    newer = world.describe("x", 6)
    assert (newer.error_code, newer.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert newer.error_message == "Group x not found."


def test_offsets_without_members_are_an_empty_group_without_a_protocol(
    world: MembersWorld,
) -> None:
    world.commit(5)
    assert (world.describe().group_state, world.describe().protocol_type) == ("Empty", "")
    assert world.list_groups() == [("g", "", "Empty", "classic")]


def test_groups_are_listed_by_state_and_type(world: MembersWorld) -> None:
    world.commit(5, group="a")
    world.stable(group="b")
    assert [each[0] for each in world.list_groups()] == ["a", "b"]
    assert world.list_groups(("stable",)) == [("b", "consumer", "Stable", "classic")]
    assert [each[0] for each in world.list_groups(("Empty", "STABLE"))] == ["a", "b"]
    assert world.list_groups(("bogus",)) == []
    assert [each[0] for each in world.list_groups(types=("Classic",))] == ["a", "b"]
    assert world.list_groups(types=("consumer",)) == []


def test_a_group_without_members_is_deleted_with_its_offsets(world: MembersWorld) -> None:
    (member,) = world.stable()
    world.commit(5, generation=1, member=member)
    assert world.delete("g", "x") == [ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_ID_NOT_FOUND]
    world.leave(member)
    assert world.delete("g") == [ErrorCode.NONE]
    assert world.committed()[1] == -1
    assert world.list_groups() == []
    world.fail_over()
    assert world.list_groups() == []
    assert world.committed()[1] == -1


def test_a_deleted_group_can_be_created_again(world: MembersWorld) -> None:
    world.commit(5)
    world.delete("g")
    assert world.begin()[0].generation_id == 1


def test_a_deletion_is_answered_after_its_commit() -> None:
    world = MembersWorld((1, 2))
    world.commit(5)
    world.follow(1)
    answers: list = []
    finish(world.coordinator.groups.delete(["g"], answers.append))
    assert not answers
    assert world.committed()[1] == 5, "nothing is hidden that a fail-over can bring back"
    world.follow(3)
    assert answers[0].results[0].error_code == ErrorCode.NONE
    assert world.committed()[1] == -1


def test_offsets_of_unsubscribed_topics_can_be_deleted(world: MembersWorld) -> None:
    (member,) = world.stable(protocols={"range": subscription("trains")})
    world.commit(5, generation=1, member=member)
    assert world.delete_offsets(0, 9) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]
    assert world.committed()[1] == -1
    world.fail_over()
    assert world.committed()[1] == -1


def test_offsets_of_subscribed_topics_cannot_be_deleted(world: MembersWorld) -> None:
    (member,) = world.stable()
    world.commit(5, generation=1, member=member)
    assert world.delete_offsets(0) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    world.leave(member)
    assert world.delete_offsets(0, 0) == [ErrorCode.NONE] * 2


def test_offsets_of_other_protocol_types_cannot_be_deleted_while_members_exist(
    world: MembersWorld,
) -> None:
    waiting = world.join(world.new_id(protocol_type="connect"), protocol_type="connect")
    world.run_for(5_000)
    world.sync(waiting.one.member_id, 1, protocol_type="connect")
    assert world.delete_offsets(0) == ErrorCode.NON_EMPTY_GROUP


def test_an_unreadable_subscription_keeps_the_offsets_of_all_topics(world: MembersWorld) -> None:
    world.stable(protocols={"range": b"\x00"})
    assert world.delete_offsets(0) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_deleting_offsets_needs_a_group(world: MembersWorld) -> None:
    assert world.delete_offsets(0, group="x") == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.delete_offsets(0, group="") == ErrorCode.INVALID_GROUP_ID
    answers: list = []
    nothing = OffsetDeleteRequest(group_id="x", topics=[])
    deleting = world.coordinator.groups.delete_offsets(nothing, answers.append)
    finish(deleting)
    answers = [finish(each) for each in answers]
    assert answers[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_admin_requests_fail_while_the_groups_are_loaded(world: MembersWorld) -> None:
    world.commit(5)
    world.coordinator = world.new_coordinator()
    world.coordinator.runtime.on_elected(0, 1)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert world.describe().error_code == loading
    assert world.delete("g") == [loading]
    assert world.delete_offsets(0) == loading
    listed = finish(world.coordinator.groups.list_groups(ListGroupsRequest()))
    assert (listed.error_code, listed.groups) == (loading, [])


def test_admin_requests_fail_on_another_broker_than_the_coordinator(world: MembersWorld) -> None:
    world.coordinator.runtime.on_resigned(0)
    assert world.describe().error_code == ErrorCode.NOT_COORDINATOR
    assert world.delete("g") == [ErrorCode.NOT_COORDINATOR]
    assert world.list_groups() == []


def _deletion(count: int) -> OffsetDeleteRequest:
    """A request that names topics that do not exist, and each of them twice."""
    names = [f"unknown-{number}" for number in range(count)]
    return OffsetDeleteRequest(
        group_id="g",
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
            )
            for name in names + names
        ],
    )


@pytest.mark.parametrize("count", [10, 1000])
def test_the_slices_of_a_deletion_grow_with_its_size(world: MembersWorld, count: int) -> None:
    world.commit(5)
    answers: list = []
    _, before = counted(world.coordinator.groups.delete_offsets(_deletion(count), answers.append))
    response, behind = counted(answers[0])
    # A step per topic and one per partition, before and after the records are written.
    assert before == behind == 4 * count
    assert len(response.topics) == count
    assert {len(topic.partitions) for topic in response.topics} == {2}
