"""The log of a leader whose old segments are in a remote store, and a broker that follows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from barnabas.record.batch import set_offset_and_epoch
from barnabas.record.builder import BatchBuilder
from barnabas.replication.remote.remote_access import RemoteAccess
from barnabas.replication.remote.remote_metrics import RemoteMetrics
from barnabas.runtime.disk import FileSlice
from barnabas.sim.remote_storage import SimRemoteStorage
from barnabas.storage.config import LogConfig
from barnabas.storage.log.log import Log
from barnabas.storage.log_dependencies import LogDependencies, LogOpening
from barnabas.storage.remote.remote_storage import RemoteSegment, SegmentState
from barnabas.storage.remote.segment_states import RemoteLog, started_record, update_record
from barnabas.storage.results import FetchIsolation
from barnabas.storage.topic_partition import TopicIdPartition
from unit.replication.following_broker import FollowingBroker
from unit.replication.replicated_cluster import PARTITION, TOPIC, topic_id_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.protocol.errors import ErrorCode
    from barnabas.replication.remote.interfaces import SegmentRecord
    from barnabas.storage.remote.segment_states import Applied
    from barnabas.storage.topic_partition import TopicPartition

WHERE = TopicIdPartition(topic_id_of(TOPIC), *PARTITION)
SOURCE = "source"


class KnownSegments:
    """The metadata of remote segments, which the test writes. Implements `RemoteMetadata`."""

    def __init__(self) -> None:
        self.logs: dict[TopicIdPartition, RemoteLog] = {}
        # Partitions whose metadata is not read yet.
        self.unread: set[TopicIdPartition] = set()
        self._awaiting: list[tuple[TopicIdPartition, Callable[[], None]]] = []

    def assign(self, partitions: Iterable[TopicIdPartition]) -> None:
        for each in partitions:
            self.logs.setdefault(each, RemoteLog(each))

    def unassign(self, partitions: Iterable[TopicIdPartition]) -> None:
        for each in partitions:
            self.logs.pop(each, None)

    def log_of(self, where: TopicIdPartition) -> RemoteLog | None:
        return None if where in self.unread else self.logs.get(where)

    def on_ready(self, where: TopicIdPartition, call: Callable[[], None]) -> None:
        if self.log_of(where) is None:
            self._awaiting.append((where, call))
        else:
            call()

    def publish(
        self,
        where: TopicIdPartition,
        record: SegmentRecord,
        on_done: Callable[[Applied | ErrorCode], None],
    ) -> None:
        on_done(self.logs[where].apply(record))

    def finish_reading(self, where: TopicIdPartition) -> None:
        """The metadata of a partition has been read."""
        self.unread.discard(where)
        ready = [call for each, call in self._awaiting if each == where]
        self._awaiting = [each for each in self._awaiting if each[0] != where]
        for call in ready:
            call()


class TieredFollower(FollowingBroker):
    """A broker with a remote tier, and the log of its leader, broker 2, with its remote segments.

    The test answers the broker's requests as the leader.
    """

    def __init__(self, partitions: int = 1, **settings: Any) -> None:
        self.metadata = KnownSegments()
        self.metrics = RemoteMetrics()
        self.starts_at_last_tiered = False
        settings = {"log_settings": {"is_remote": True}, **settings}
        node_settings = {"remote": self._access, **settings.pop("node_settings", {})}
        super().__init__(partitions, node_settings=node_settings, **settings)
        self.metadata.assign([WHERE._replace(partition=index) for index in range(partitions)])
        runtime = self.cluster.world.host(SOURCE).runtime
        self.source_log = Log.open(
            f"/source/{PARTITION}",
            LogConfig(is_remote=True),
            LogDependencies(
                disk=runtime.disk,
                clock=runtime.clock,
                executor=runtime.executor,
                timer=runtime.timer,
                rng=runtime.rng,
            ),
            LogOpening(PARTITION, WHERE.topic_id),
        )
        self._segments = 0

    def _access(self, node: Any) -> RemoteAccess:
        """Return the remote tier of a process of the broker."""
        if not hasattr(self, "store"):
            self.store = SimRemoteStorage(node.host.clock, node.host.rng)
        self.pool = node.host.runtime.worker_pool("remote-read", 10, 100)
        self.access = RemoteAccess(
            self.store.on(node.host.disk),
            self.metadata,
            self.pool,
            self.metrics,
            lambda: self.starts_at_last_tiered,
        )
        return self.access

    # The leader's log.

    def append(self, *values: bytes, epoch: int = 0, producer_id: int = -1) -> None:
        """Append one batch per value to the leader's log."""
        for value in values:
            offset = self.source_log.log_end_offset
            has_producer = producer_id >= 0
            builder = BatchBuilder(
                producer_id=producer_id,
                producer_epoch=0 if has_producer else -1,
                base_sequence=self._sequence(producer_id) if has_producer else -1,
            )
            builder.append(self.node.host.clock.wall_ms(), None, value)
            content = memoryview(builder.build())
            set_offset_and_epoch(content, 0, offset, epoch)
            self.source_log.appender.append_as_follower(content)
        self.source_log.update_high_watermark(self.source_log.log_end_offset)

    def _sequence(self, producer_id: int) -> int:
        entry = self.source_log.producer_state.entries.get(producer_id)
        return 0 if entry is None else entry.last_sequence + 1

    def copy(self) -> RemoteSegment:
        """Roll the leader's log, and copy the closed segment to the store."""
        log = self.source_log
        log.roll()
        base = [each.base_offset for each in log.segments][-2]
        files = log.open_for_copy(base)
        assert files is not None
        self._segments += 1
        epochs = log.leader_epochs.entries_in(base, log.log_end_offset)
        segment = RemoteSegment(
            topic=TOPIC,
            topic_id=WHERE.topic_id,
            partition=0,
            id=self._segments.to_bytes(16, "big"),
            start_offset=base,
            end_offset=log.log_end_offset - 1,
            size=files.log_size,
            max_timestamp=self.node.host.clock.wall_ms(),
            leader_epochs=tuple((each.epoch, each.start_offset) for each in epochs),
            has_transactions=False,
            broker_id=2,
            event_ms=1,
            state=SegmentState.COPY_SEGMENT_STARTED,
        )
        self.metadata.logs[WHERE].apply(started_record(segment))
        source = self.store.on(self.cluster.world.host(SOURCE).disk)
        custom = source.copy_segment(segment, files)
        finished = replace(segment, custom=custom, state=SegmentState.COPY_SEGMENT_FINISHED)
        assert self.metadata.logs[WHERE].apply(update_record(finished)).was_allowed
        return finished

    def source_bytes(self, offset: int) -> bytes:
        """Return the batches of the leader's log from an offset on."""
        read = self.source_log.reader.read(offset, 1 << 20, FetchIsolation.LOG_END, True)
        found = read.records
        return bytes(found.read() if isinstance(found, FileSlice) else found)

    # The broker.

    def offsets(self, key: TopicPartition = PARTITION) -> tuple[int, int, int]:
        """Return log start, local log start and log end of the broker's log."""
        log = self.node.log(key)
        return (log.log_start_offset, log.local_log_start_offset, log.log_end_offset)
