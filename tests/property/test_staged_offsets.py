"""Committed and staged offsets: the live state is a replay of the log, also of a compacted log.

Random commits, transactions, expiry, deletion, compaction, and changes of the coordinator. A staged
offset belongs to an open transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from barnabas.coordinator.group.group_coordinator import GroupCoordinator
from barnabas.coordinator.runtime.loader import Loader
from barnabas.coordinator.runtime.shard import ShardContext, ShardTimers
from barnabas.protocol.errors import ErrorCode
from barnabas.record.batch import batches
from unit.coordinator.consumers_world import ConsumersWorld
from unit.coordinator.coordinator_world import STATE
from unit.storage.cleaner_fixtures import COMPACTED, CleanerBench

if TYPE_CHECKING:
    from barnabas.coordinator.group.group_shard import GroupShard
    from barnabas.storage.log.log import Log

TOPIC = "trains"
CHECK_MS = 10_000
# Consumers join the second group.
GROUPS = ("g", "h")
PARTITIONS = st.integers(0, 1)
PRODUCERS = st.integers(1, 2)


class State(NamedTuple):
    """The state that requests see, by group and partition."""

    committed: dict[str, dict[tuple[str, int], int]]
    staged: dict[str, dict[tuple[str, int], list[int]]]
    # Groups with offsets or with records of their own.
    groups: set[str]


def state_of(shard: GroupShard) -> State:
    committed: dict[str, dict[tuple[str, int], int]] = {}
    for group, key, value in shard.offsets.items():
        committed.setdefault(group, {})[key] = value.offset
    known = set(shard.groups.ids())
    staged = {}
    for group in GROUPS:
        found = shard.offsets.staged(group)
        # The records of replaced offsets are compacted.
        values = {key: sorted(v.offset for v in each) for key, each in found.items() if each}
        if values:
            staged[group] = values
    # A group that only had offsets has no record of its own.
    with_records = {group.group_id for group in shard.consumer_groups.groups.all()}
    return State(committed, staged, {*committed, *staged, *with_records} & known)


class StagedOffsets(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = ConsumersWorld(
            broker_config={
                "offsets_retention_minutes": 1,
                "offsets_retention_check_interval_ms": CHECK_MS,
            }
        )
        self.world.create_topic(TOPIC, 2)
        # A copy of the log, which the cleaner compacts.
        self.copy = CleanerBench(replace(COMPACTED, delete_retention_ms=0))
        self.counter = 0

    def write(self, group: str, partition: int, **options: int) -> None:
        self.counter += 1
        options["partition"] = partition
        error = self.world.commit(self.counter, topic=TOPIC, group=group, **options)
        assert error == ErrorCode.NONE

    @rule(group=st.sampled_from(GROUPS), partition=PARTITIONS)
    def commit(self, group: str, partition: int) -> None:
        self.write(group, partition)

    @rule(group=st.sampled_from(GROUPS), partition=PARTITIONS, producer=PRODUCERS)
    def stage(self, group: str, partition: int, producer: int) -> None:
        self.write(group, partition, producer=producer)

    @rule(producer=PRODUCERS, is_commit=st.booleans())
    def end(self, producer: int, is_commit: bool) -> None:
        self.world.end_transaction(producer, commit=is_commit)

    @rule(group=st.sampled_from(GROUPS), partition=PARTITIONS)
    def delete_offset(self, group: str, partition: int) -> None:
        self.world.delete_offsets(partition, topic=TOPIC, group=group)
        for offsets in (self.state.committed, self.state.staged):
            assert (TOPIC, partition) not in offsets.get(group, {})

    @rule(group=st.sampled_from(GROUPS))
    def delete_group(self, group: str) -> None:
        self.world.delete(group)
        assert group not in (*self.state.committed, *self.state.staged, *self.state.groups)

    @rule()
    def delete_topic(self) -> None:
        self.world.coordinator.on_topics_deleted({TOPIC: self.world.id_of(TOPIC)})
        self.world.run_for(10)
        assert (self.state.committed, self.state.staged) == ({}, {})

    @rule()
    def join_and_leave(self) -> None:
        if self.world.shard.classic_groups.find(GROUPS[1]) is None:
            self.world.subscribe("a-member", "other", group=GROUPS[1])
            self.world.beat("a-member", -1, group=GROUPS[1])

    @rule(checks=st.integers(1, 7))
    def pass_time(self, checks: int) -> None:
        staged = self.state.staged
        self.world.run_for(CHECK_MS * checks)
        assert self.state.staged == staged, "an open transaction never expires"

    @rule()
    def change_coordinator(self) -> None:
        self.world.fail_over()

    @rule()
    def compact(self) -> None:
        self.catch_up()
        self.copy.seal_and_clean()

    @property
    def state(self) -> State:
        return state_of(self.world.shard)

    def catch_up(self) -> None:
        """Copy new batches of the log."""
        end = self.copy.log.log_end_offset
        for segment in self.world.log.segments:
            content = segment.file.read_at(segment.size, 0)
            for position, header in batches(content):
                if header.base_offset >= end:
                    self.copy.log.appender.append_as_follower(
                        memoryview(content)[position : position + header.size]
                    )
        self.copy.replicate()

    def replayed(self, log: Log) -> State:
        """Return the state of a new coordinator of the log."""
        runtime = self.world.replicas.runtime
        wheel = self.world.replicas.wheel
        timers = ShardTimers(wheel, runtime.clock, lambda _: None, lambda _: None)
        coordinator: GroupCoordinator = self.world._make_coordinator()
        shard = coordinator.runtime._make_shard(ShardContext(STATE, 9, timers))
        outcomes: list[bool] = []
        Loader(log, shard, runtime.timer, runtime.executor, outcomes.append).start()
        self.world.run_for(1)
        assert outcomes == [True]
        return state_of(shard)

    @invariant()
    def the_log_gives_the_live_state(self) -> None:
        assert self.replayed(self.world.log) == self.state

    @invariant()
    def the_compacted_log_gives_the_live_state(self) -> None:
        self.catch_up()
        assert self.replayed(self.copy.log) == self.state


TestStagedOffsets = StagedOffsets.TestCase
TestStagedOffsets.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    suppress_health_check=[HealthCheck.too_slow],
)
