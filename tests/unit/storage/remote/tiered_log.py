"""A log whose closed segments are copied to a simulated store, and a reader of that store.

Time is virtual. Only the metadata is kept without a metadata topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.sim.remote_storage import SimRemoteStorage
from barnabas.sim.world import sim_runtime
from barnabas.storage.config import LogConfig
from barnabas.storage.log.batch_inspection import InspectionNeededError
from barnabas.storage.log.log import Log
from barnabas.storage.log_dependencies import LogDependencies, LogOpening
from barnabas.storage.remote.index_cache import IndexFiles, IndexLimits, RemoteIndexCache
from barnabas.storage.remote.load_queue import LoadQueue
from barnabas.storage.remote.range_cache import RangeCache, RangeLimits
from barnabas.storage.remote.remote_reader import Miss, RemoteLogReader
from barnabas.storage.remote.remote_storage import RemoteSegment, SegmentState
from barnabas.storage.remote.segment_states import RemoteLog, started_record, update_record
from barnabas.storage.results import AppendOrigin, FetchIsolation, ReadResult
from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition
from unit.storage.storage_fixtures import batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.storage.remote.remote_storage import RemoteStorageError
    from barnabas.storage.remote.time_search import Search

WHERE = TopicIdPartition(b"flights-topic-id", "flights", 0)
INDEX_DIRECTORY = "/data/remote-log-index-cache"
A_WHILE_MS = 1_000
MIB = 1 << 20


class TieredLog:
    """One log, its copies, and a reader with caches."""

    def __init__(self, seed: int = 1, **config: object) -> None:
        self.world, self.runtime = sim_runtime(seed)
        runtime = self.runtime
        runtime.disk.make_directory("/data")
        fields: dict[str, object] = {"is_remote": True, "index_interval_bytes": 0}
        self.config = replace(LogConfig(), **(fields | config))
        dependencies = LogDependencies(
            disk=runtime.disk,
            clock=runtime.clock,
            executor=runtime.executor,
            timer=runtime.timer,
            rng=runtime.rng,
        )
        opening = LogOpening(TopicPartition(WHERE.topic, WHERE.partition), WHERE.topic_id)
        self.log = Log.open("/data/flights-0", self.config, dependencies, opening)
        self.store = SimRemoteStorage(runtime.clock, runtime.rng)
        self.storage = self.store.on(runtime.disk)
        self.remote = RemoteLog(WHERE)
        self.epoch = 0
        self.index_limits = IndexLimits(MIB, MIB, 900_000)
        self.range_limits = RangeLimits(8 * MIB, 4 * MIB, 0)
        # Loads that the reads of a test have needed: "indexes" or "range".
        self.loads: list[str] = []
        self.open_caches()

    def open_caches(self) -> None:
        """Start with empty memory, as a new process does."""
        runtime = self.runtime
        self.pool = runtime.worker_pool("read", 2, 100)
        queue = LoadQueue(self.pool, runtime.timer)
        self.indexes = RemoteIndexCache(
            self.storage,
            IndexFiles(runtime.disk, INDEX_DIRECTORY),
            queue,
            runtime.clock,
            runtime.timer,
            lambda: self.index_limits,
        )
        self.indexes.start()
        self.ranges = RangeCache(
            self.storage,
            LoadQueue(self.pool, runtime.timer),
            runtime.clock,
            runtime.timer,
            lambda: self.range_limits,
            self.indexes.boundary,
        )
        self.reader = RemoteLogReader(self.indexes, self.ranges)
        self.world.run_for(A_WHILE_MS)

    # The log.

    def append(self, *values: bytes, **options: object) -> None:
        """Append a batch."""
        self._append(batch(list(values), **options), AppendOrigin.CLIENT)

    def coordinate(self, records: bytearray) -> None:
        """Append a marker of a transaction."""
        self._append(records, AppendOrigin.COORDINATOR)

    def _append(self, records: bytearray, origin: AppendOrigin) -> None:
        now_ms = self.runtime.clock.wall_ms()
        appender = self.log.appender
        try:
            appender.append_as_leader(memoryview(records), self.epoch, origin, now_ms)
        except InspectionNeededError as needed:
            appender.append_as_leader(needed.inspection.run(), self.epoch, origin, now_ms)
        self.log.update_high_watermark(self.log.log_end_offset)

    def fill(self, segments: int, batches: int = 2, size: int = 100) -> None:
        """Append segments with batches of one record each."""
        for _ in range(segments):
            for _ in range(batches):
                self.append(b"%08d" % self.log.log_end_offset + bytes(size))
            self.log.roll()

    # The tier.

    def copy(self) -> list[RemoteSegment]:
        """Copy all closed segments that are not copied yet; return all copies."""
        log = self.log
        first = log.highest_remote_offset + 1
        for each in log.copyable_segments(first, log.last_stable_offset):
            segment = self.segment(each.base_offset, each.next_base_offset - 1, each.size)
            files = log.open_for_copy(each.base_offset)
            assert files is not None
            segment = replace(
                segment,
                max_timestamp=each.max_timestamp,
                has_transactions=files.transaction_index is not None,
            )
            custom = self.storage.copy_segment(segment, files)
            self.finish(segment, custom)
            log.raise_highest_remote_offset(segment.end_offset)
            log.raise_verified_remote_offset(segment.end_offset)
        return self.remote.segments()

    def segment(self, start: int, end: int, size: int) -> RemoteSegment:
        """Return a segment whose copy has started."""
        entries = self.log.leader_epochs.entries
        inside = [(epoch, max(start, at)) for epoch, at in entries if at <= end]
        before = [each for each in entries if each.start_offset <= start][-1:]
        epochs = [each for each in inside if not before or each[0] >= before[0].epoch]
        return RemoteSegment(
            topic=WHERE.topic,
            topic_id=WHERE.topic_id,
            partition=WHERE.partition,
            id=self.runtime.rng.uuid(),
            start_offset=start,
            end_offset=end,
            size=size,
            max_timestamp=0,
            leader_epochs=tuple(epochs),
            has_transactions=False,
            broker_id=1,
            event_ms=0,
            state=SegmentState.COPY_SEGMENT_STARTED,
        )

    def finish(self, segment: RemoteSegment, custom: bytes) -> None:
        """Apply both events of a copy."""
        finished = SegmentState.COPY_SEGMENT_FINISHED
        self.remote.apply(started_record(segment))
        self.remote.apply(update_record(replace(segment, state=finished, custom=custom)))

    def leave(self) -> None:
        """Delete the local segments that were copied."""
        self.log.update_config(replace(self.config, local_retention_bytes=1))
        self.log.delete_old_segments(self.runtime.clock.wall_ms())
        self.log.update_config(self.config)

    def tier(self, segments: int, **options: int) -> None:
        """Append segments, copy them, and delete them locally."""
        self.fill(segments, **options)
        self.copy()
        self.leave()

    # Reads.

    def read(
        self,
        offset: int,
        max_bytes: int = MIB,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
        *,
        min_one: bool = True,
    ) -> ReadResult:
        """Read, and load whatever the read has missed."""
        while True:
            found = self.read_once(offset, max_bytes, isolation, min_one=min_one)
            if not isinstance(found, Miss):
                return found
            self.load(found)

    def read_once(
        self,
        offset: int,
        max_bytes: int = MIB,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
        *,
        min_one: bool = True,
    ) -> ReadResult | Miss:
        """Read from memory."""
        return self.reader.read(self.log, self.remote, offset, (max_bytes, min_one), isolation)

    def load(self, miss: Miss) -> None:
        """Load what a read has missed. Raises the error of the store."""
        outcome: list[RemoteStorageError | None] = []
        if miss.position is None:
            self.loads.append("indexes")
            self.indexes.load(miss.segment, lambda _, error: outcome.append(error))
        else:
            self.loads.append("range")
            self.ranges.load(miss.segment, miss.position, miss.needed, outcome.append)
        assert not outcome, "never called before it returns"
        self.run_until(lambda: bool(outcome))
        if outcome[0] is not None:
            raise outcome[0]

    def run_until(self, is_done: Callable[[], bool]) -> None:
        """Let time pass until a condition holds."""
        for _ in range(1_000):
            if is_done():
                return
            self.world.run_for(10)
        raise AssertionError("nothing happens any more")

    def find(self, search: Search) -> tuple[int, int, int] | None:
        """Run a search by time to its end."""
        answer: object = None
        while True:
            try:
                wanted = search.send(answer)
            except StopIteration as end:
                return end.value
            answer = None
            if isinstance(wanted, Miss):
                self.load(wanted)
            elif wanted is not None:
                answer = wanted.work()
