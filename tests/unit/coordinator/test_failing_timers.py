"""Each timer of each coordinator fails once: the work that it does is done nevertheless."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from barnabas.coordinator.group.consumer import consumer_targets
from barnabas.coordinator.group.share import share_membership
from barnabas.coordinator.group.streams import group_epochs
from barnabas.coordinator.runtime.shard import ShardTimers
from barnabas.coordinator.runtime.state_partition import StatePartition
from barnabas.coordinator.transaction.transaction_metadata import (
    TransactionMetadata,
    TransactionState,
)
from unit.coordinator.consumers_world import ConsumersWorld
from unit.coordinator.group.consumer.mixed_world import MixedWorld
from unit.coordinator.members_world import (
    DELAY_MS,
    REBALANCE_MS,
    SESSION_MS,
    MembersWorld,
    subscription,
)
from unit.coordinator.share.share_world import COLD_MS, PRUNE_MS, ShareWorld
from unit.coordinator.shares_world import SharesWorld
from unit.coordinator.streams_world import StreamsWorld, topology
from unit.coordinator.transaction.transaction_world import (
    ID,
    P0,
    TIMEOUT_MS,
    World as TransactionWorld,
)
from unit.replication.replica_set import TOPIC_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult

    Operation = Callable[[], CoordinatorResult[None]]

# Longer than the backoff and each timeout below.
LONG_MS = 120_000
EXPIRY = {"offsets_retention_minutes": 1, "offsets_retention_check_interval_ms": 10_000}


def name_of(key: Hashable) -> object:
    """Return the kind of a timer."""
    return key[0] if isinstance(key, tuple) else key


class Failure(NamedTuple):
    """The timer that fails, and how often it has failed."""

    kind: str
    count: list[int]


@pytest.fixture
def failure(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Failure:
    """Let the first run of the timers of a kind fail: in its operation, or in its batch."""
    kind, where = request.param
    made = Failure(kind, [])
    schedule, build = ShardTimers.schedule, StatePartition._batch
    armed: list[bool] = []

    def failing(self: ShardTimers, key: Hashable, delay_ms: float, operation: Operation) -> None:
        def fail_once() -> CoordinatorResult[None]:
            if made.count:
                return operation()
            if where == "operation":
                made.count.append(1)
                raise MemoryError
            armed.append(True)
            result = operation()
            if not result.records:
                armed.clear()
            return result

        schedule(self, key, delay_ms, fail_once if name_of(key) == kind else operation)

    def batch(self: StatePartition, *arguments: object) -> bytearray | None:
        if not armed:
            return build(self, *arguments)
        armed.clear()
        made.count.append(1)
        return None

    monkeypatch.setattr(ShardTimers, "schedule", failing)
    monkeypatch.setattr(StatePartition, "_batch", batch)
    return made


# Stories: each waits for its timer, and checks the work of the timer.


def a_classic_group_starts_its_first_generation() -> None:
    world = MembersWorld()
    waiting = world.join(world.new_id())
    world.run_for(2 * DELAY_MS)
    assert waiting.one.generation_id == 1


def a_classic_member_without_sync_is_removed() -> None:
    world = MembersWorld()
    world.begin(rebalance_ms=SESSION_MS // 2)
    world.run_for(SESSION_MS * 3 // 4)
    assert not world.group.members


def a_classic_member_without_heartbeats_is_removed() -> None:
    world = MembersWorld()
    world.stable()
    world.run_for(SESSION_MS + 5_000)
    assert not world.group.members


def offsets_expire() -> None:
    world = MembersWorld(**EXPIRY)
    world.commit(5)
    world.run_for(LONG_MS)
    assert world.committed()[1] == -1


def offsets_of_a_deleted_topic_are_removed() -> None:
    world = MembersWorld()
    world.commit(5)
    world.coordinator.on_topics_deleted({"flights": TOPIC_ID})
    world.run_for(LONG_MS)
    # The failed append of a pass is repeated by the next expiry, which keeps this offset.
    assert world.committed()[1] == -1


def consumers() -> ConsumersWorld:
    world = ConsumersWorld()
    world.create_topic("a", 4)
    return world


def a_consumer_without_heartbeats_is_removed() -> None:
    world = consumers()
    world.subscribe("m", "a")
    world.run_for(LONG_MS)
    assert not world.describe_consumers().members


def a_consumer_that_revokes_nothing_is_removed() -> None:
    world = consumers()
    epoch = world.subscribe("m", "a", rebalance_timeout_ms=1_000).member_epoch
    world.subscribe("n", "a")
    for _ in range(10):
        world.beat("m", epoch)
        world.run_for(1_000)
    assert "m" not in [each.member_id for each in world.describe_consumers().members]


def a_classic_member_of_a_consumer_group_does_not_rejoin() -> None:
    world = MixedWorld()
    member, generation = world.classic_member()
    only_m1_stays(world, world.subscribe("m1", "a").member_epoch, member, generation)


def a_classic_member_of_a_consumer_group_does_not_sync() -> None:
    world = MixedWorld()
    epoch = world.subscribe("m1", "a").member_epoch
    joined = world.join("c1", protocols={"range": subscription("no-such-topic")}).one
    only_m1_stays(world, epoch, "c1", joined.generation_id)


def only_m1_stays(world: MixedWorld, epoch: int, member: str, generation: int) -> None:
    """Send heartbeats of both members, and check that the timeout removes the classic one."""
    for _ in range(2 * REBALANCE_MS // 1_000):
        world.run_for(1_000)
        world.heartbeat(member, generation)
        epoch = world.beat("m1", epoch).member_epoch
    assert [each.member_id for each in world.describe_consumers().members] == ["m1"]


def a_consumer_gets_its_target() -> None:
    world = consumers()
    gets_all(world, subscribed_topic_names=["a"])


def gets_all(world: ConsumersWorld, **fields: object) -> None:
    """Join, send heartbeats, and check that the member gets all partitions."""
    epoch = world.subscribe("m", **fields).member_epoch
    owned = None
    for _ in range(10):
        world.run_for(1_000)
        response = world.beat("m", epoch)
        epoch, owned = response.member_epoch, world.owned(response) or owned
    assert owned == {"a": {0, 1, 2, 3}}


def a_consumer_gets_the_topics_of_its_regex() -> None:
    world = consumers()
    gets_all(world, subscribed_topic_regex="a")


def a_share_member_without_heartbeats_is_removed() -> None:
    world = SharesWorld()
    world.create_topic("a", 1)
    world.share_beat("m", 0, "a")
    world.run_for(LONG_MS)
    assert not world.describe_shares().members


def a_share_member_gets_its_target() -> None:
    world = SharesWorld()
    world.create_topic("a", 2)
    epoch = world.share_beat("m", 0, "a").member_epoch
    for _ in range(10):
        world.run_for(1_000)
        epoch = world.share_beat("m", epoch).member_epoch
    (member,) = world.describe_shares().members
    assert [each.partitions for each in member.assignment.topic_partitions] == [[0, 1]]


def share_state_of_a_deleted_topic_is_removed() -> None:
    world = SharesWorld()
    world.create_topic("a", 1)
    world.share_beat("m", 0, "a")
    world.coordinator.on_topics_deleted({"a": world.id_of("a")})
    world.run_for(LONG_MS)
    assert not world.shard.share_groups.groups.find("g").state_topics.topic_ids()


def streams(**config: int) -> StreamsWorld:
    world = StreamsWorld(**config)
    world.create_topic("a", 2)
    return world


def a_streams_member_without_heartbeats_is_removed() -> None:
    world = streams()
    world.beat_streams("m", 0, topology("a"))
    world.run_for(LONG_MS)
    assert not world.describe_streams().members


def a_streams_member_that_releases_nothing_is_removed() -> None:
    world = streams()
    epoch = world.beat_streams("m", 0, topology("a")).member_epoch
    world.beat_streams("n", 0, topology("a"))
    for _ in range(10):
        world.beat_streams("m", epoch)
        world.run_for(1_000)
    assert "m" not in [each.member_id for each in world.describe_streams().members]


def a_streams_member_gets_its_tasks(**config: int) -> None:
    world = streams(**config)
    epoch = world.beat_streams("m", 0, topology("a")).member_epoch
    for _ in range(10):
        world.run_for(1_000)
        epoch = world.beat_streams("m", epoch).member_epoch
    (member,) = world.describe_streams().members
    assert [each.partitions for each in member.assignment.active_tasks] == [[0, 1]]


def a_streams_group_ends_its_initial_delay() -> None:
    a_streams_member_gets_its_tasks(group_streams_initial_rebalance_delay_ms=1_000)


def a_transaction_that_takes_too_long_is_aborted() -> None:
    world = TransactionWorld()
    world.add(world.producer(), P0)
    world.run_for(TIMEOUT_MS + 10_000)
    assert world.state() is TransactionState.PREPARE_ABORT
    world.markers.write()
    assert isinstance(world.initialize(), TransactionMetadata)


def an_unused_transactional_id_expires() -> None:
    world = TransactionWorld()
    world.producer()
    world.run_for(LONG_MS)
    assert not isinstance(world.coordinator.describe(ID), TransactionMetadata)


def redundant_share_state_is_deleted() -> None:
    world = ShareWorld()
    world.initialize()
    for offset in range(9):
        world.write((offset, offset, 2, 1))
    world.run_for(5 * PRUNE_MS)
    assert world.log.log_start_offset > 0


def cold_share_partitions_get_a_snapshot() -> None:
    world = ShareWorld()
    world.initialize()
    world.run_for(4 * COLD_MS)
    assert {each.state.snapshot_epoch for each in world.shard.partitions.values()} == {1}


# Timers whose operation writes records may also fail there.
STORIES: dict[Callable[[], None], tuple[str, bool]] = {
    a_classic_group_starts_its_first_generation: ("join", False),
    a_classic_member_without_sync_is_removed: ("sync", False),
    a_classic_member_without_heartbeats_is_removed: ("session", False),
    offsets_expire: ("expiry", False),
    offsets_of_a_deleted_topic_are_removed: ("cleaning", False),
    a_consumer_without_heartbeats_is_removed: ("consumer-session", True),
    a_consumer_that_revokes_nothing_is_removed: ("consumer-rebalance", True),
    a_classic_member_of_a_consumer_group_does_not_rejoin: ("consumer-join", True),
    a_classic_member_of_a_consumer_group_does_not_sync: ("consumer-sync", True),
    a_consumer_gets_its_target: ("consumer-targets", True),
    a_consumer_gets_the_topics_of_its_regex: ("consumer-regexes", True),
    a_share_member_without_heartbeats_is_removed: ("share-session", True),
    a_share_member_gets_its_target: ("share-targets", True),
    share_state_of_a_deleted_topic_is_removed: ("share-topics", False),
    a_streams_member_without_heartbeats_is_removed: ("streams-session", True),
    a_streams_member_that_releases_nothing_is_removed: ("streams-rebalance", True),
    a_streams_member_gets_its_tasks: ("streams-targets", True),
    a_streams_group_ends_its_initial_delay: ("streams-delay", False),
    a_transaction_that_takes_too_long_is_aborted: ("timeouts", True),
    an_unused_transactional_id_expires: ("expiry", True),
    redundant_share_state_is_deleted: ("prune", False),
    cold_share_partitions_get_a_snapshot: ("snapshot cold share partitions", True),
}
CASES = [
    (story, (kind, where))
    for story, (kind, writes) in STORIES.items()
    for where in ("operation", *(["batch"] if writes else []))
]


@pytest.mark.parametrize(
    ("story", "failure"),
    CASES,
    indirect=["failure"],
    ids=[f"{story.__name__}-{where}" for story, (_, where) in CASES],
)
def test_the_work_of_a_timer_that_fails_once_is_done(
    story: Callable[[], None], failure: Failure, monkeypatch: pytest.MonkeyPatch
) -> None:
    if failure.kind.endswith("-targets"):
        # Targets of large groups are computed in slices; these groups are small.
        monkeypatch.setattr(consumer_targets, "AT_ONCE_MAX", 0)
        monkeypatch.setattr(group_epochs, "_AT_ONCE_MAX", 0)
        monkeypatch.setattr(share_membership, "AT_ONCE_MAX", 0)
    story()
    assert failure.count, f"the timer {failure.kind!r} did not run"
