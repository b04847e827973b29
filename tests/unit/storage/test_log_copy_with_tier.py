"""The move of a log with a remote tier to another directory (KIP-113, KIP-405)."""

from __future__ import annotations

from msgspec.structs import replace

from barnabas.storage.config import LogConfig
from barnabas.storage.errors import StorageError
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_copy import LogCopy
from barnabas.storage.log_dependencies import LogOpening
from unit.storage.storage_fixtures import NOW_MS, PARTITION, Bench, all_records, batch

TIERED = LogConfig(
    segment_bytes=200, is_remote=True, remote_storage_enable=True, local_retention_bytes=0
)
TARGET = "/other/topic-0"
RECORDS = 12


class NoThrottle:
    """A throttle without a limit."""

    is_exceeded = False

    def record(self, size: int) -> None:
        """Count nothing."""


class Move:
    """A log with a tier, and its replica in another directory."""

    def __init__(self) -> None:
        self.bench = Bench(TIERED)
        for index in range(RECORDS):
            self.append(index)
        self.source = self.bench.log
        self.caught_up = 0
        self.failures: list[StorageError] = []
        self.bench.disk.make_directory("/other")
        self.open_future()

    def append(self, index: int) -> None:
        records = batch([bytes(90)], producer_id=7, producer_epoch=0, base_sequence=index)
        self.bench.append(records, epoch=index // 3)
        self.bench.log.update_high_watermark(index + 1)

    def open_future(self, **opening: object) -> None:
        values = replace(LogOpening(PARTITION), **opening)
        self.future = Log.open(TARGET, TIERED, self.bench.log_dependencies, values)
        self.copy = LogCopy(
            self.source, self.future, self.bench.log_dependencies, NoThrottle(),
            self._on_caught_up, self.failures.append,
        )  # fmt: skip

    def _on_caught_up(self) -> None:
        self.caught_up += 1

    def keep_locally(self, last_copied: int) -> None:
        """Copy the log up to an offset, and delete that locally."""
        self.source.raise_highest_remote_offset(last_copied)
        self.source.raise_verified_remote_offset(last_copied)
        self.source.delete_old_segments(NOW_MS)

    def run(self) -> None:
        """Copy until both ends are equal."""
        done = self.caught_up
        self.copy.start()
        while self.caught_up == done:
            assert not self.failures
            assert self.bench.timer.waiting
            self.bench.timer.run()

    def check(self) -> None:
        """Check that both logs have the same records and the same offsets."""
        source, future = self.source, self.future
        first = source.local_log_start_offset
        copied = [each for each in all_records(future) if each.offset >= first]
        assert copied == all_records(source)
        assert future.log_start_offset == source.log_start_offset
        assert future.log_end_offset == source.log_end_offset
        assert future.high_watermark == source.high_watermark
        assert future.leader_epochs.entries == source.leader_epochs.entries
        assert future.producer_state.entries[7].last_sequence == RECORDS - 1


def test_a_move_copies_only_the_local_records() -> None:
    move = Move()
    move.keep_locally(7)
    local = move.source.local_log_start_offset
    assert 0 < local <= 8
    move.run()
    move.check()
    assert move.future.local_log_start_offset == local
    assert move.future.size == move.source.size


def test_a_move_takes_epochs_and_producers_that_only_the_tier_has() -> None:
    move = Move()
    move.source.roll()
    move.keep_locally(RECORDS - 1)
    assert move.source.size == 0
    move.run()
    move.check()
    assert not move.future.lacks_epochs


def test_the_new_log_knows_what_was_copied() -> None:
    move = Move()
    move.keep_locally(7)
    move.run()
    move.future.take_over_from(move.source)
    assert move.future.highest_remote_offset == 7
    assert move.future.verified_remote_offset == 7
    assert move.future.delete_old_segments(NOW_MS) == 0


def test_local_retention_during_a_move_does_not_begin_it_again() -> None:
    move = Move()
    move.run()
    move.keep_locally(7)
    move.append(RECORDS)
    move.copy.start()
    move.bench.timer.run()
    assert move.future.local_log_start_offset == 0
    assert move.source.local_log_start_offset > 0
    assert move.future.log_end_offset == RECORDS + 1


def test_a_move_that_was_overtaken_by_local_retention_begins_again() -> None:
    move = Move()
    move.future.truncate_fully_and_start_at(2)
    move.keep_locally(7)
    move.run()
    move.check()
    assert move.future.local_log_start_offset == move.source.local_log_start_offset


def test_deleted_records_raise_the_log_start_of_the_replica() -> None:
    move = Move()
    move.keep_locally(7)
    move.run()
    move.source.maybe_increment_log_start_offset(3, "test")
    move.run()
    move.check()
    move.source.maybe_increment_log_start_offset(10, "test")
    move.run()
    assert move.future.log_start_offset == move.future.local_log_start_offset == 10


def test_a_restart_continues_a_move_without_its_beginning() -> None:
    move = Move()
    move.keep_locally(7)
    move.run()
    move.bench.disk.kill()
    move.source = move.bench.open(high_watermark=RECORDS)
    move.open_future(high_watermark=RECORDS)
    local = move.source.local_log_start_offset
    assert move.future.local_log_start_offset == local > 0
    move.run()
    move.check()
    assert not move.bench.log_dependencies.damage.counts
