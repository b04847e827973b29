"""A broker that leads a tiered partition, a simulated store, and a metadata topic in memory.

The parts of the tier, the logs and the replica manager are the real ones. Time is virtual.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.config import ReplicationConfig
from barnabas.replication.remote.remote_access import RemoteAccess, RemoteReplication
from barnabas.replication.remote.remote_log_manager import ManagerDependencies, RemoteLogManager
from barnabas.replication.remote.remote_metrics import RemoteMetrics
from barnabas.replication.remote.remote_quota import RemoteQuota
from barnabas.replication.remote.remote_tier import (
    RemoteReadDependencies,
    RemoteReadLimits,
    RemoteReads,
)
from barnabas.replication.remote.tier_dependencies import TierDependencies
from barnabas.replication.replica_manager import ReplicaManager, ReplicationDependencies
from barnabas.replication.replica_metrics import ReplicaMetrics
from barnabas.server.process.tiered_storage import describe_topic
from barnabas.sim.remote_storage import SimRemoteStorage
from barnabas.storage.remote.config import RemoteLogConfig
from barnabas.storage.remote.remote_storage import RemoteSegment, SegmentState
from barnabas.storage.remote.segment_states import RemoteLog, started_record, update_record
from unit.replication.replica_set import LEADER, PARTITION, TOPIC_ID, WHERE, ReplicaSet, batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.replication.remote.interfaces import SegmentRecord
    from barnabas.storage.remote.segment_states import Applied
    from barnabas.storage.topic_partition import TopicIdPartition
    from barnabas.waiting.timing_wheel import TimingWheel

STARTED = SegmentState.COPY_SEGMENT_STARTED
FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETING = SegmentState.DELETE_SEGMENT_STARTED
DELETED = SegmentState.DELETE_SEGMENT_FINISHED
# Long enough for a few events and works of a pool.
A_WHILE_MS = 2_000
UNLIMITED = 0x7FFF_FFFF_FFFF_FFFF


class MetadataInMemory:
    """The events of all partitions in one order. An event takes effect after a millisecond."""

    def __init__(self, wheel: TimingWheel) -> None:
        self._wheel = wheel
        self.logs: dict[TopicIdPartition, RemoteLog] = {}
        self.assigned: set[TopicIdPartition] = set()
        # Every event that took effect or was dropped: the state in it.
        self.states: list[SegmentState] = []
        # Whether the earlier events are known.
        self.is_ready = True
        self._waiting: list[tuple[TopicIdPartition, Callable[[], None]]] = []
        # Results of the next publishes instead of the event. With `applies_failed`, the events take
        # effect all the same.
        self.errors: deque[ErrorCode] = deque()
        self.applies_failed = False
        self.delay_ms = 1.0
        # Partitions that `find_deleted` reports.
        self.left_over: list[TopicIdPartition] = []

    def assign(self, partitions: Iterable[TopicIdPartition]) -> None:
        self.assigned.update(partitions)

    def unassign(self, partitions: Iterable[TopicIdPartition]) -> None:
        self.assigned.difference_update(partitions)

    def log_of(self, where: TopicIdPartition) -> RemoteLog | None:
        if not self.is_ready or where not in self.assigned:
            return None
        return self.events_of(where)

    def events_of(self, where: TopicIdPartition) -> RemoteLog:
        """Return the segments of a partition, whether it is assigned or not."""
        return self.logs.setdefault(where, RemoteLog(where))

    def on_ready(self, where: TopicIdPartition, call: Callable[[], None]) -> None:
        if self.is_ready:
            call()
        else:
            self._waiting.append((where, call))

    def become_ready(self) -> None:
        self.is_ready = True
        waiting, self._waiting = self._waiting, []
        for where, call in waiting:
            if where in self.assigned:
                call()

    def publish(
        self,
        where: TopicIdPartition,
        record: SegmentRecord,
        on_done: Callable[[Applied | ErrorCode], None],
    ) -> None:
        error = self.errors.popleft() if self.errors else None

        def deliver() -> None:
            if error is None:
                on_done(self._apply(where, record))
                return
            if self.applies_failed:
                self._apply(where, record)
            on_done(error)

        self._wheel.add(self.delay_ms, deliver)

    def add(self, where: TopicIdPartition, segment: RemoteSegment) -> None:
        """Apply the events of another broker that lead to a segment."""
        self._apply(where, started_record(replace(segment, state=STARTED)))
        if segment.state is not STARTED:
            self._apply(where, update_record(replace(segment, state=FINISHED)))
        if segment.state is DELETING:
            self._apply(where, update_record(segment))

    def find_deleted(
        self,
        partition: int,
        exists: Callable[[bytes], bool],
        on_found: Callable[[list[TopicIdPartition]], None],
    ) -> None:
        found = [each for each in self.left_over if not exists(each.topic_id)]
        self._wheel.add(1, lambda: on_found(found))

    def _apply(self, where: TopicIdPartition, record: SegmentRecord) -> Applied:
        applied = self.events_of(where).apply(record)
        self.states.append(SegmentState(record.remote_log_segment_state))
        return applied


class TieredBroker(ReplicaSet):
    """Broker 1, which leads a partition. Each batch gets a segment of its own."""

    def __init__(
        self,
        replicas: tuple[int, ...] = (1,),
        config: RemoteLogConfig | None = None,
        copy_bytes_per_second: int = UNLIMITED,
        **log_config: object,
    ) -> None:
        self.config = RemoteLogConfig() if config is None else config
        self.copy_bytes_per_second = copy_bytes_per_second
        self.store: SimRemoteStorage | None = None
        log_config = {
            "segment_bytes": 150,
            "is_remote": True,
            "index_interval_bytes": 0,
        } | log_config
        super().__init__(replicas, **log_config)
        self.manager.start()

    def new_manager(self) -> ReplicaManager:
        runtime = self.runtime
        if self.store is None:
            self.store = SimRemoteStorage(runtime.clock, runtime.rng)
            self.metadata = MetadataInMemory(self.wheel)
            self.metrics = RemoteMetrics()
        storage = self.store.on(runtime.disk)
        self.copying = runtime.worker_pool("copy", 4, 100)
        self.deleting = runtime.worker_pool("delete", 4, 1_000)
        reading = runtime.worker_pool("read", 2, 100)
        quota = RemoteQuota(runtime.clock, UNLIMITED, 11, 1)
        self.reads = RemoteReads(
            RemoteReadDependencies(
                storage=storage,
                metadata=self.metadata,
                pool=reading,
                disk=runtime.disk,
                clock=runtime.clock,
                timer=runtime.timer,
                metrics=self.metrics,
                quota=quota,
            ),
            RemoteReadLimits(index_directory="/data/remote-log-index-cache"),
        )
        self.tier = RemoteLogManager(
            TierDependencies(
                node_id=LEADER,
                config=self.config,
                storage=storage,
                metadata=self.metadata,
                metrics=self.metrics,
                copies=self.copying,
                deletes=self.deleting,
                clock=runtime.clock,
                trusted_clock=runtime.clock,
                wheel=self.wheel,
                rng=runtime.rng,
            ),
            ManagerDependencies(
                copy_quota=RemoteQuota(runtime.clock, self.copy_bytes_per_second, 11, 1),
                search=self.metadata,
                timer=runtime.timer,
                topic_exists=lambda topic_id: self.image.topics.by_id(topic_id) is not None,
                describe_topic=lambda topic_id: describe_topic(self.image, topic_id),
                forget_segment=self.reads.forget_segment,
                restart_log=self.logs.restart_log,
            ),
        )
        access = RemoteAccess(storage, self.metadata, reading, self.metrics, lambda: False)
        parts = ReplicationDependencies(
            self.wheel,
            runtime.clock,
            self.sender,
            ReplicaMetrics(),
            lambda *_: self.log_config,
            tiering=RemoteReplication(self.reads, access, self.tier),
        )
        return ReplicaManager(LEADER, ReplicationConfig(), self.logs, parts)

    def restart(self) -> None:
        self.tier.close(lambda: None)
        super().restart()
        self.tier.on_changes(self.changes)
        self.manager.start()

    def replay(self, *records: object) -> None:
        before = self.image
        super().replay(*records)
        self.tier.on_changes(self.changes)
        gone = {
            topic.name: topic.id
            for topic in before.topics
            if self.image.topics.by_id(topic.id) is None
        }
        if gone:
            self.tier.on_deleted(gone)

    def configure(self, **log_config: object) -> None:
        """Change the topic's configuration."""
        self.log_config = replace(self.log_config, **log_config)
        self.manager._apply_topic_config(PARTITION.topic)

    def fill(self, batches: int, timestamp: int | None = None) -> None:
        """Append batches of one record. All but the last one are in closed segments then."""
        now_ms = self.runtime.clock.wall_ms() if timestamp is None else timestamp
        for _ in range(batches):
            self.append(batch(b"v" * 50, timestamp=now_ms))

    def append(self, records: memoryview) -> None:
        from barnabas.storage.results import AppendOrigin

        self.manager.append_records(
            1_000, 1, {PARTITION: records}, AppendOrigin.COORDINATOR, self.answers.produced.append
        )

    def wait(self, milliseconds: float = A_WHILE_MS) -> None:
        self.world.run_for(milliseconds)

    def sweep(self) -> None:
        """Let the next sweep run, and what it starts."""
        self.wait(self.config.remote_log_manager_task_interval_ms + A_WHILE_MS)

    @property
    def remote(self) -> RemoteLog:
        return self.metadata.events_of(WHERE)

    def segments(self, state: SegmentState | None = FINISHED) -> list[tuple[int, int]]:
        """Return first and last offsets of the remote segments in a state; None for any."""
        return [
            (each.start_offset, each.end_offset)
            for each in self.remote.segments()
            if state in (None, each.state)
        ]

    def stored(self) -> list[int]:
        """Return the base offsets of the segments in the store, whole or not."""
        names = {name.rpartition("/")[2].partition("-")[0] for name in self.store.names()}
        return sorted(map(int, names))

    def foreign_segment(self, start: int, end: int, **fields: object) -> RemoteSegment:
        """Return a segment that another broker has copied."""
        segment = RemoteSegment(
            topic=WHERE.topic,
            topic_id=WHERE.topic_id,
            partition=WHERE.partition,
            id=self.runtime.rng.uuid(),
            start_offset=start,
            end_offset=end,
            size=100,
            max_timestamp=self.runtime.clock.wall_ms(),
            leader_epochs=((0, start),),
            has_transactions=False,
            broker_id=2,
            event_ms=self.runtime.clock.wall_ms(),
            state=FINISHED,
        )
        return replace(segment, **fields)

    def resign(self, leader_epoch_leader: int = 2) -> None:
        """Make another broker the leader."""
        self.change(leader=leader_epoch_leader, isr=[leader_epoch_leader, LEADER])

    def lead(self) -> None:
        """Make this broker the leader, in a new leader epoch."""
        self.change(leader=LEADER)


__all__ = ["LEADER", "PARTITION", "TOPIC_ID", "WHERE", "TieredBroker", "batch"]
