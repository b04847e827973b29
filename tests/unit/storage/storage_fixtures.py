"""A log on a simulated disk, and batches for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.record.batch import ControlType, encode_control_key, encode_end_marker
from barnabas.record.builder import BatchBuilder
from barnabas.record.reader import read_batches
from barnabas.runtime.executor import InlineExecutor, run_in_order
from barnabas.runtime.rng import SeededRng
from barnabas.sim.clock import WALL_START_MS
from barnabas.sim.disk import SimDisk
from barnabas.storage.config import LogConfig
from barnabas.storage.log.batch_inspection import InspectionNeededError
from barnabas.storage.log.log import Log
from barnabas.storage.log_dependencies import LogDependencies, LogOpening
from barnabas.storage.results import AppendInfo, AppendOrigin, FetchIsolation, ReadResult
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.record.record import Record

NOW_MS = WALL_START_MS
PARTITION = TopicPartition("topic", 0)
DIRECTORY = "/data/topic-0"
LEADER_EPOCH = 3


class ManualClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_ms = 0

    def wall_ms(self) -> int:
        return NOW_MS + self.now_ms

    def monotonic_ms(self) -> float:
        return float(self.now_ms)


class ManualTimer:
    """A timer whose callbacks a test runs."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> ManualTimer:
        self.waiting.append((delay_ms, callback))
        return self

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.waiting.append((0.0, callback))

    def cancel(self) -> None:
        """Do nothing: a test runs the timers."""

    def run(self) -> None:
        waiting, self.waiting = self.waiting, []
        for _, callback in waiting:
            callback()


class LaterExecutor:
    """An executor whose work a test runs."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], object], Callable[..., None]]] = []

    def submit(self, work: Callable[[], object], on_done: Callable[..., None]) -> None:
        self.waiting.append((work, on_done))

    def run_all(self, works: Sequence[Callable[[], None]]) -> list[BaseException | None]:
        return run_in_order(works)

    def run(self) -> None:
        waiting, self.waiting = self.waiting, []
        for work, on_done in waiting:
            InlineExecutor().submit(work, on_done)


class Bench:
    """One log that can be killed, crashed and reopened."""

    def __init__(
        self, config: LogConfig | None = None, seed: int = 1, disk: type[SimDisk] = SimDisk
    ) -> None:
        self.clock = ManualClock()
        self.timer = ManualTimer()
        self.disk = disk(self.clock, SeededRng(seed))
        self.disk.make_directory("/data")
        self.disk.sync_directory("/")
        self.failures: list[tuple[str, OSError]] = []
        self.log_dependencies = LogDependencies(
            self.disk,
            self.clock,
            InlineExecutor(),
            self.timer,
            SeededRng(seed + 1),
            lambda path, error: self.failures.append((path, error)),
        )
        self.config = config or LogConfig()
        self.log = self.open()

    def open(self, **opening: object) -> Log:
        values = LogOpening(PARTITION)
        self.log = Log.open(
            DIRECTORY, self.config, self.log_dependencies, replace(values, **opening)
        )
        return self.log

    def reopen_cleanly(self) -> Log:
        self.log.close()
        point = self.log.recovery_point
        return self.open(
            clean_shutdown=True, recovery_point=point, high_watermark=self.log.high_watermark
        )

    def kill_and_reopen(self, **opening: object) -> Log:
        self.disk.kill()
        opening.setdefault("recovery_point", self.log.recovery_point)
        return self.open(**opening)

    def append(self, records: bytes | bytearray, epoch: int = LEADER_EPOCH) -> AppendInfo:
        now_ms, origin = self.clock.wall_ms(), AppendOrigin.CLIENT
        view = memoryview(bytearray(records))
        try:
            return self.log.appender.append_as_leader(view, epoch, origin, now_ms)
        except InspectionNeededError as needed:
            return self.log.appender.append_as_leader(
                needed.inspection.run(), epoch, origin, now_ms
            )

    def append_many(self, count: int, size: int = 100) -> None:
        for index in range(count):
            self.append(batch([b"%08d" % index + bytes(size)]))

    def coordinate(self, records: bytes | bytearray, epoch: int = LEADER_EPOCH) -> AppendInfo:
        view = memoryview(bytearray(records))
        origin = AppendOrigin.COORDINATOR
        return self.log.appender.append_as_leader(view, epoch, origin, self.clock.wall_ms())

    def names(self) -> list[str]:
        return self.disk.list(DIRECTORY)


def batch(values: list[bytes | None], **options: object) -> bytearray:
    """Return a producer's batch; all records have `timestamp`."""
    timestamp = int(options.pop("timestamp", NOW_MS))
    key = options.pop("key", b"key")
    builder = BatchBuilder(**options)
    for value in values:
        builder.append(timestamp, key, value)
    return builder.build()


def marker(kind: ControlType, producer_id: int, epoch: int = 0, coordinator: int = 0) -> bytearray:
    """Return the batch that ends a transaction."""
    builder = BatchBuilder(
        producer_id=producer_id, producer_epoch=epoch, transactional=True, control=True
    )
    builder.append(NOW_MS, encode_control_key(kind), encode_end_marker(coordinator))
    return builder.build()


def read(
    log: Log,
    offset: int = 0,
    max_bytes: int = 1 << 30,
    isolation: FetchIsolation = FetchIsolation.LOG_END,
) -> ReadResult:
    return log.reader.read(offset, max_bytes, isolation, True)


def content(result: ReadResult) -> bytes:
    records = result.records
    return records if isinstance(records, bytes) else records.read()


def all_records(log: Log) -> list[Record]:
    """Return all local records of the log, read in slices."""
    found: list[Record] = []
    offset = log.local_log_start_offset
    while offset < log.log_end_offset:
        batches = list(read_batches(content(read(log, offset))))
        assert batches, offset
        for header, records in batches:
            found.extend(
                record for record in records if record.offset >= log.local_log_start_offset
            )
            offset = header.next_offset
    return found
