"""A compacted log on a simulated disk, with a cleaner that works on the loop, slice by slice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.record.builder import BatchBuilder
from barnabas.record.reader import read_batches
from barnabas.runtime.rng import SeededRng
from barnabas.storage.cleaner.log_cleaner import LogCleaner
from barnabas.storage.config import CleanerConfig, LogConfig
from barnabas.storage.files.log_directory import LogDirectory
from unit.storage.storage_fixtures import DIRECTORY, NOW_MS, PARTITION, Bench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.record.batch import BatchHeader
    from barnabas.record.record import Record
    from barnabas.storage.log.log import Log
    from barnabas.storage.topic_partition import TopicPartition

DAY_MS = 86_400_000
COMPACTED = LogConfig(
    cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, index_interval_bytes=200
)


class DueTimer:
    """Callbacks in the order of their time; a test advances the time."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self._count = 0
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> _Entry:
        self._count += 1
        self._waiting.append((self.now_ms + delay_ms, self._count, callback))
        return _Entry(self, self._count)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.call_later(0, callback)

    def clear(self) -> None:
        self._waiting.clear()

    def cancel(self, number: int) -> None:
        self._waiting = [each for each in self._waiting if each[1] != number]

    def step(self) -> bool:
        """Run the next due callback; return whether there was one."""
        due = min(self._waiting, default=None, key=lambda each: each[:2])
        if due is None or due[0] > self.now_ms:
            return False
        self._waiting.remove(due)
        due[2]()
        return True

    def run_for(self, duration_ms: float) -> None:
        end = self.now_ms + duration_ms
        while True:
            while self.step():
                pass
            later = [each[0] for each in self._waiting if each[0] <= end]
            if not later:
                break
            self.now_ms = min(later)
        self.now_ms = end


class _Entry:
    def __init__(self, timer: DueTimer, number: int) -> None:
        self._timer = timer
        self._number = number

    def cancel(self) -> None:
        self._timer.cancel(self._number)


class CleanerBench(Bench):
    """One log and its cleaner."""

    def __init__(
        self,
        config: LogConfig = COMPACTED,
        cleaner_config: CleanerConfig | None = None,
        seed: int = 1,
    ) -> None:
        self.cleaner_config = cleaner_config or CleanerConfig()
        self.data_directory: LogDirectory | None = None
        self.due = DueTimer()
        super().__init__(config, seed)
        self.log_dependencies = replace(self.log_dependencies, timer=self.due)
        self.open()

    @property
    def logs(self) -> dict[TopicPartition, Log]:
        return {PARTITION: self.log}

    def directory_of(self, partition: TopicPartition) -> LogDirectory | None:
        return self.data_directory if partition == PARTITION else None

    def open(self, **opening: object) -> Log:
        # The process has ended, and its timers with it.
        self.due.clear()
        log = super().open(**opening)
        if self.data_directory is not None:
            self.data_directory.close()
        rng = SeededRng(7)
        self.data_directory = LogDirectory.open(self.disk, "/data", 1, "cluster", rng)
        self.cleaner = LogCleaner(self, self.cleaner_config, self.log_dependencies)
        return log

    def put(self, *pairs: tuple[bytes, bytes | None], **options: object) -> None:
        """Append one batch of keyed records."""
        self.append(keyed(pairs, **options))

    def replicate(self) -> None:
        """Raise the high watermark to the log end."""
        self.log.update_high_watermark(self.log.log_end_offset)

    def seal(self) -> None:
        """Roll the log, so that all records can be compacted."""
        self.replicate()
        self.log.roll()
        self.log.sync.flush(force=True)

    def clean(self) -> None:
        """Compact until no work is left."""
        self.cleaner.start()
        while self.due.step():
            pass
        self.cleaner.stop()

    def seal_and_clean(self) -> None:
        self.seal()
        self.clean()

    def pass_time(self, duration_ms: int) -> None:
        """Advance the clock and the timers together."""
        for _ in range(0, duration_ms, 10):
            self.clock.now_ms += 10
            self.due.run_for(10)

    def pairs(self) -> list[tuple[bytes | None, bytes | None]]:
        return [(record.key, record.value) for record in data_records(self.log)]

    def offsets(self) -> list[int]:
        return [record.offset for record in data_records(self.log)]

    def checkpoint(self) -> int | None:
        assert self.data_directory is not None
        return self.data_directory.cleaner_offsets.read().get(PARTITION)

    def suffixes(self) -> list[str]:
        """Return the suffixes of the temporary files of a running compaction."""
        ends = (".cleaned", ".swap")
        return [name for name in self.disk.list(DIRECTORY) if name.endswith(ends)]


def all_batches(log: Log) -> list[tuple[BatchHeader, list[Record]]]:
    """Return all batches of all segments, read from the files."""
    found = []
    for segment in log.segments:
        found += read_batches(segment.file.read_at(segment.size, 0))
    return found


def data_records(log: Log) -> list[Record]:
    """Return all records except those of control batches."""
    return [
        record
        for header, records in all_batches(log)
        if not header.is_control
        for record in records
    ]


def keyed(pairs: Iterable[tuple[bytes | None, bytes | None]], **options: object) -> bytearray:
    """Return a producer's batch of keys and values."""
    timestamp = int(options.pop("timestamp", NOW_MS))
    builder = BatchBuilder(**options)
    for key, value in pairs:
        builder.append(timestamp, key, value)
    return builder.build()
