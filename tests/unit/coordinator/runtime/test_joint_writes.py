"""Writes of one turn of the event loop, which share a batch."""

from __future__ import annotations

from barnabas.coordinator.group.consumer.heartbeats import ConsumerHeartbeat
from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from barnabas.record.batch import batches
from barnabas.storage.config import LogConfig
from barnabas.storage.results import FetchIsolation
from unit.coordinator.consumers_world import CLIENT, ConsumersWorld
from unit.coordinator.coordinator_world import OFFSETS_TOPIC
from unit.coordinator.members_world import DELAY_MS, Answers


class JointWorld(ConsumersWorld):
    """A loaded coordinator, whose responses may follow at the end of a turn."""

    shares_batches = True

    def __init__(self, replicas: tuple[int, ...] = (1,)) -> None:
        super().__init__(replicas)
        self.create_topic("a", 2)
        # Group and error of each response, in their order.
        self.answered: list[tuple[str, int]] = []
        # The last response by group and member.
        self.last: dict[tuple[str, str], ConsumerGroupHeartbeatResponse] = {}

    def begin(self, group: str, member: str = "m", topics: tuple[str, ...] = ("a",)) -> None:
        """Let a member join, without waiting for the end of the turn."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member,
            member_epoch=0,
            topic_partitions=[],
            subscribed_topic_names=list(topics),
            rebalance_timeout_ms=1_000,
        )

        def answer(response: ConsumerGroupHeartbeatResponse) -> None:
            self.answered.append((group, response.error_code))
            self.last[group, member] = response

        self.coordinator.consumers.heartbeat(ConsumerHeartbeat(request, CLIENT, None), 1, answer)

    def end_turn(self) -> None:
        self.run_for(1)

    def batch_counts(self) -> list[int]:
        """Return the number of records in each batch of the log."""
        records = self.log.reader.read(0, 1 << 20, FetchIsolation.LOG_END, True).records
        content = records if isinstance(records, bytes) else records.read()
        return [header.record_count for _, header in batches(memoryview(content))]

    def limit_batches(self, size: int) -> None:
        self.replicas.logs.update_config(OFFSETS_TOPIC, LogConfig(max_message_bytes=size))


def test_the_writes_of_a_turn_share_a_batch() -> None:
    world = JointWorld()
    for group in ("g1", "g2", "g3"):
        world.begin(group)
    assert world.answered == []
    world.end_turn()
    assert world.answered == [(group, ErrorCode.NONE) for group in ("g1", "g2", "g3")]
    assert world.batch_counts() == [15]
    before = [world.describe_consumers(group) for group in ("g1", "g2", "g3")]
    world.restart()
    assert [world.describe_consumers(group) for group in ("g1", "g2", "g3")] == before


def test_a_write_of_the_same_group_sees_the_pending_one() -> None:
    world = JointWorld()
    world.begin("other")
    world.begin("g", "m1")
    world.begin("g", "m2")
    world.end_turn()
    assert world.last["g", "m1"].member_epoch == 2
    assert world.last["g", "m2"].member_epoch == 3
    assert len(world.describe_consumers("g").members) == 2
    assert world.batch_counts() == [10, 6]


def test_another_request_sees_the_pending_writes() -> None:
    world = JointWorld()
    world.begin("other")
    world.begin("g")
    assert world.delete("g") == [ErrorCode.NON_EMPTY_GROUP]
    assert world.answered == [("other", ErrorCode.NONE), ("g", ErrorCode.NONE)]


def test_a_timer_sees_the_pending_writes() -> None:
    world = JointWorld()
    timers, seen = world.shard.consumer_groups.timers, []

    def begin_two() -> CoordinatorResult[None]:
        world.begin("first")
        world.begin("g")
        return CoordinatorResult(None)

    def look() -> CoordinatorResult[None]:
        seen.append(world.shard.consumer_groups.groups.has("g"))
        return CoordinatorResult(None)

    timers.schedule("begin", 5, begin_two)
    timers.schedule("look in the same turn", 5, look)
    world.run_for(10)
    assert seen == [True]


def test_writes_whose_shared_batch_is_too_large_are_appended_one_by_one() -> None:
    world = JointWorld()
    world.limit_batches(700)
    world.begin("first")
    world.begin("g1")
    world.begin("large", topics=("a", "b" * 600))
    world.begin("g2")
    world.end_turn()
    assert dict(world.answered) == {
        "first": ErrorCode.NONE,
        "g1": ErrorCode.NONE,
        "large": ErrorCode.UNKNOWN_SERVER_ERROR,
        "g2": ErrorCode.NONE,
    }
    assert world.batch_counts() == [5, 5, 5]
    assert not world.shard.consumer_groups.groups.has("large")


def test_a_large_batch_does_not_wait_for_the_end_of_the_turn() -> None:
    world = JointWorld()
    world.begin("first")
    world.begin("g1")
    world.begin("large", topics=("a", "b" * 20_000))
    assert [group for group, _ in world.answered] == ["first", "g1", "large"]
    assert world.batch_counts() == [15]


def test_pending_writes_fail_if_this_broker_loses_the_partition() -> None:
    world = JointWorld()
    world.begin("g")
    world.coordinator.runtime.on_resigned(0)
    assert world.answered == [("g", ErrorCode.NOT_COORDINATOR)]
    world.end_turn()
    assert world.batch_counts() == []


def test_responses_of_a_shared_batch_wait_for_its_commit() -> None:
    world = JointWorld((1, 2))
    for group in ("g1", "g2", "g3"):
        world.begin(group)
    world.end_turn()
    assert world.answered == []
    world.follow(14)
    assert world.answered == []
    world.follow(15)
    assert world.answered == [(group, ErrorCode.NONE) for group in ("g1", "g2", "g3")]


def test_all_writes_of_a_shared_batch_fail_if_it_is_not_committed_in_time() -> None:
    world = JointWorld((1, 2))
    for group in ("g1", "g2", "g3"):
        world.begin(group)
    world.run_for(6_000)
    assert world.answered == [
        (group, ErrorCode.COORDINATOR_NOT_AVAILABLE) for group in ("g1", "g2", "g3")
    ]


def _stable_soon(world: JointWorld, groups: tuple[str, ...]) -> dict[str, Answers]:
    """Let the only member of each classic group send its assignment, within one turn."""
    ids = {group: world.new_id(group=group) for group in groups}
    world.end_turn()
    for group, member in ids.items():
        world.join(member, group=group)
    world.run_for(DELAY_MS + 1)
    return {
        group: world.sync(member, 1, group=group, assign={member: b"all"})
        for group, member in ids.items()
    }


def test_new_classic_groups_of_a_turn_share_a_batch() -> None:
    world = JointWorld()
    for group in ("g1", "g2", "g3"):
        assert world.new_id(group=group)
    assert world.batch_counts() == []
    world.end_turn()
    assert world.batch_counts() == [3]


def test_assignments_of_classic_groups_share_a_batch() -> None:
    world = JointWorld()
    synced = _stable_soon(world, ("g1", "g2"))
    assert list(synced.values()) == [[], []]
    world.end_turn()
    assert [each.one.assignment for each in synced.values()] == [b"all", b"all"]
    assert world.batch_counts() == [2, 2]


def test_a_heartbeat_sees_the_pending_assignment_of_its_group() -> None:
    world = JointWorld()
    synced = _stable_soon(world, ("g1", "g2"))
    (member,) = world.shard.groups.find("g2").members
    assert world.heartbeat(member, 1, group="g2") == ErrorCode.NONE
    assert [each.one.assignment for each in synced.values()] == [b"all", b"all"]


def test_a_heartbeat_of_another_group_does_not_divide_a_shared_batch() -> None:
    world = JointWorld()
    _stable_soon(world, ("stable",))
    world.end_turn()
    (member,) = world.shard.groups.find("stable").members
    for group in ("g1", "g2"):
        world.new_id(group=group)
        assert world.heartbeat(member, 1, group="stable") == ErrorCode.NONE
    world.end_turn()
    assert world.batch_counts() == [1, 1, 2]


def test_pending_assignments_of_classic_groups_fail_with_the_loss_of_the_partition() -> None:
    world = JointWorld()
    synced = _stable_soon(world, ("g1", "g2"))
    world.coordinator.runtime.on_resigned(0)
    assert [each.error for each in synced.values()] == [ErrorCode.NOT_COORDINATOR] * 2
    world.end_turn()
    assert world.batch_counts() == [2]
