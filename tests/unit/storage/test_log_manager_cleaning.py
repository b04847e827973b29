"""Operations on a log during its compaction abort or pause the compaction."""

from __future__ import annotations

from msgspec.structs import replace

from barnabas.runtime.rng import SeededRng
from barnabas.sim.disk import DiskFault
from barnabas.storage.config import CleanerConfig, LogConfig, StorageConfig
from barnabas.storage.files.log_directory import LogDirectory
from barnabas.storage.log.log import Log
from barnabas.storage.manager.log_manager import LogManager
from barnabas.storage.results import AppendOrigin
from barnabas.storage.topic_partition import TopicPartition
from unit.storage.cleaner_fixtures import COMPACTED, DueTimer, keyed
from unit.storage.storage_fixtures import NOW_MS, Bench

KEYS = TopicPartition("keys", 0)
OTHER = TopicPartition("other", 0)
# Much longer than the interval of retention.
BACKOFF_MS = 600_000


class Managed:
    """A running log manager with two directories."""

    def __init__(self, **cleaner: object) -> None:
        self.bench = Bench()
        self.disk = self.bench.disk
        self.due = DueTimer()
        self.offline: list[str] = []
        directories = [
            LogDirectory.open(self.disk, path, 1, "cluster", SeededRng(seed))
            for seed, path in enumerate(("/one", "/two"))
        ]
        config = StorageConfig(
            cleaner=CleanerConfig(**cleaner), log_retention_check_interval_ms=1000
        )
        self.manager = LogManager(
            directories,
            config,
            replace(self.bench.log_dependencies, timer=self.due),
            lambda directory, _: self.offline.append(directory.path),
        )
        self.manager.startup(lambda _: COMPACTED)

    def fill(self, partition: TopicPartition, config: LogConfig = COMPACTED) -> Log:
        """A log of ten records of two keys, in a sealed segment."""
        log = self.manager.get_or_create(partition, None, config)
        for number in range(10):
            batch = memoryview(keyed([(b"k%d" % (number % 2), bytes(100))]))
            log.appender.append_as_leader(batch, 1, AppendOrigin.CLIENT, NOW_MS)
        log.update_high_watermark(10)
        log.roll()
        log.sync.flush(force=True)
        return log

    def settle(self) -> None:
        while self.due.step():
            pass

    def half_way(self, log: Log) -> None:
        """Begin to compact, and stop in the middle."""
        self.manager.start_tasks()
        while not self.half_made(log):
            assert self.due.step()

    def half_made(self, log: Log) -> list[str]:
        return [name for name in self.disk.list(log.directory) if name.endswith(".cleaned")]

    def checkpoint(self, partition: TopicPartition) -> list[str]:
        """Return the directories whose checkpoint contains the partition."""
        return [
            each.path
            for each in self.manager.directories
            if partition in each.cleaner_offsets.read()
        ]


def records(log: Log) -> int:
    return sum(header.record_count for header in headers_of(log))


def headers_of(log: Log) -> list[object]:
    from barnabas.storage.segment.batch_scan import headers

    return [header for each in log.segments for _, header in headers(each.file, 0, each.size)]


def test_logs_are_compacted_once_the_tasks_have_begun() -> None:
    managed = Managed()
    log = managed.fill(KEYS)
    managed.settle()
    assert records(log) == 10
    managed.manager.start_tasks()
    managed.settle()
    assert records(log) == 2
    owner = managed.manager.directory_of(KEYS)
    assert owner is not None
    assert managed.checkpoint(KEYS) == [owner.path]


def test_nothing_is_compacted_if_the_cleaner_is_disabled() -> None:
    managed = Managed(log_cleaner_enable=False)
    log = managed.fill(KEYS)
    managed.manager.start_tasks()
    managed.due.run_for(60_000)
    assert records(log) == 10


def test_several_logs_are_compacted_side_by_side_with_several_threads() -> None:
    managed = Managed(log_cleaner_threads=2)
    managed.fill(KEYS)
    managed.fill(OTHER)
    managed.manager.start_tasks()
    managed.due.step()
    managed.due.step()
    assert managed.manager.cleaner.in_progress == [KEYS, OTHER]
    managed.settle()
    assert managed.manager.cleaner.statistics.passes == 2


def test_without_cleaner_threads_nothing_is_compacted() -> None:
    managed = Managed(log_cleaner_threads=0)
    log = managed.fill(KEYS)
    managed.manager.start_tasks()
    managed.settle()
    assert records(log) == 10


def test_the_cleaner_applies_retention_to_compacted_logs() -> None:
    managed = Managed(log_cleaner_backoff_ms=BACKOFF_MS)
    both = replace(COMPACTED, cleanup_policy=("compact", "delete"), retention_ms=1000)
    managed.manager.start_tasks()
    managed.settle()
    log = managed.fill(KEYS, both)
    plain = managed.fill(OTHER, LogConfig(retention_ms=1000))
    managed.bench.clock.now_ms = 5000
    managed.due.run_for(60_000)
    assert (log.log_start_offset, plain.log_start_offset) == (0, 10)
    managed.due.run_for(BACKOFF_MS)
    assert log.log_start_offset == 10


def test_deleting_a_log_aborts_its_compaction() -> None:
    managed = Managed()
    log = managed.fill(KEYS)
    managed.half_way(log)
    managed.manager.delete_async(KEYS)
    assert managed.manager.cleaner.in_progress == []
    managed.settle()
    assert managed.checkpoint(KEYS) == []
    managed.due.run_for(COMPACTED.file_delete_delay_ms)
    assert not managed.disk.exists(log.directory)
    assert managed.offline == []


def test_truncating_a_log_restarts_its_compaction() -> None:
    managed = Managed()
    log = managed.fill(KEYS)
    managed.half_way(log)
    managed.manager.truncate_to(KEYS, 5)
    assert managed.manager.cleaner.in_progress == []
    assert managed.half_made(log) == []
    log.roll()
    log.sync.flush(force=True)
    managed.due.run_for(15_000)
    assert (records(log), log.log_end_offset) == (2, 5)


def test_emptying_a_log_aborts_its_cleaning() -> None:
    managed = Managed()
    log = managed.fill(KEYS)
    managed.half_way(log)
    managed.manager.restart_log(KEYS, lambda log: log.truncate_fully_and_start_at(50))
    managed.settle()
    assert (managed.half_made(log), log.log_end_offset) == ([], 50)


def test_a_topic_without_the_compact_policy_is_no_longer_compacted() -> None:
    managed = Managed()
    log = managed.fill(KEYS)
    managed.half_way(log)
    managed.manager.update_config("keys", LogConfig())
    assert managed.manager.cleaner.in_progress == []
    managed.due.run_for(60_000)
    assert records(log) == 10


def test_a_log_that_is_being_moved_is_not_compacted_and_its_checkpoint_moves_too() -> None:
    managed = Managed()
    log = managed.fill(KEYS)
    managed.manager.start_tasks()
    managed.settle()
    source = managed.manager.directory_of(KEYS)
    (target,) = [each for each in managed.manager.directories if each is not source]
    future = managed.manager.create_future(KEYS, target)
    for number in range(2):
        batch = memoryview(keyed([(b"k%d" % number, b"new")]))
        log.appender.append_as_leader(batch, 1, AppendOrigin.CLIENT, NOW_MS)
    log.update_high_watermark(12)
    log.roll()
    log.sync.flush(force=True)
    managed.due.run_for(15_000)
    assert records(log) == 4
    for segment in log.segments:
        if segment.size:
            future.appender.append_as_follower(segment.file.read_at(segment.size, 0))
    future.update_high_watermark(12)
    managed.manager.replace_with_future(KEYS)
    managed.settle()
    assert managed.checkpoint(KEYS) == [target.path]
    future.roll()
    future.sync.flush(force=True)
    managed.due.run_for(15_000)
    assert records(future) == 2


def test_a_canceled_move_resumes_compaction() -> None:
    managed = Managed()
    log = managed.fill(KEYS)
    source = managed.manager.directory_of(KEYS)
    (target,) = [each for each in managed.manager.directories if each is not source]
    managed.manager.create_future(KEYS, target)
    managed.manager.start_tasks()
    managed.settle()
    assert records(log) == 10
    managed.manager.delete_future(KEYS)
    managed.due.run_for(15_000)
    assert records(log) == 2


def test_a_directory_that_fails_ends_the_cleanings_in_it_alone() -> None:
    managed = Managed(log_cleaner_threads=2)
    log = managed.fill(KEYS)
    other = managed.fill(OTHER)
    managed.half_way(log)
    owner = managed.manager.directory_of(KEYS)
    assert owner is not None
    managed.disk.faults.append(DiskFault(owner.path, ("write",)))
    managed.settle()
    assert managed.offline == [owner.path]
    assert managed.manager.cleaner.in_progress == []
    assert records(other) == 2


def test_a_stop_leaves_no_incomplete_file() -> None:
    managed = Managed()
    log = managed.fill(KEYS)
    managed.half_way(log)
    managed.manager.shutdown()
    managed.settle()
    assert managed.half_made(log) == []
