"""Truncating a log updates everything that refers to its offsets."""

from __future__ import annotations

import pytest

from barnabas.record.batch import ControlType
from barnabas.storage.config import LogConfig
from barnabas.storage.results import FetchIsolation
from steps import finish
from unit.storage.storage_fixtures import (
    LEADER_EPOCH,
    NOW_MS,
    Bench,
    all_records,
    batch,
    marker,
    read,
)

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=200)
# An index entry for each batch.
DENSE = LogConfig(index_interval_bytes=1)


def offsets(bench: Bench) -> list[int]:
    return [record.offset for record in all_records(bench.log)]


@pytest.mark.parametrize("target", [0, 1, 5, 17, 29])
def test_records_at_and_above_the_target_are_removed(target: int) -> None:
    bench = Bench(SMALL)
    bench.append_many(30)
    assert bench.log.truncate_to(target)
    assert bench.log.log_end_offset == target
    assert offsets(bench) == list(range(target))
    bench.append(batch([b"new"]))
    assert offsets(bench) == list(range(target + 1))


def test_a_batch_that_contains_the_target_is_removed_whole() -> None:
    bench = Bench()
    bench.append(batch([b"a"]))
    bench.append(batch([b"b", b"c", b"d"]))
    bench.log.truncate_to(2)
    assert offsets(bench) == [0]
    assert bench.log.log_end_offset == 1


def test_a_target_at_or_above_the_end_changes_nothing() -> None:
    bench = Bench()
    bench.append_many(3)
    assert not bench.log.truncate_to(3)
    assert not bench.log.truncate_to(9)
    assert bench.log.log_end_offset == 3


def test_high_watermark_recovery_point_and_epochs_are_truncated() -> None:
    bench = Bench(SMALL)
    for epoch in range(10):
        bench.append(batch([b"a"]), epoch=epoch)
    bench.log.sync.flush()
    bench.log.update_high_watermark(10)
    bench.log.truncate_to(4)
    assert bench.log.high_watermark == 4
    assert bench.log.recovery_point <= 4
    assert bench.log.latest_epoch == 3
    assert bench.log.end_offset_for_epoch(3) == (3, 4)


def test_the_producer_state_is_that_of_the_target_offset() -> None:
    bench = Bench(SMALL)
    for sequence in range(12):
        bench.append(batch([bytes(80)], producer_id=1, producer_epoch=0, base_sequence=sequence))
    bench.log.truncate_to(5)
    assert bench.log.producer_state.entries[1].last_sequence == 4
    info = bench.append(batch([b"x"], producer_id=1, producer_epoch=0, base_sequence=5))
    assert info.first_offset == 5


def test_indexes_find_the_remaining_batches() -> None:
    bench = Bench(SMALL)
    bench.append_many(30)
    bench.log.truncate_to(11)
    bench.append_many(10)
    for offset in range(bench.log.log_end_offset):
        assert read(bench.log, offset).position.message_offset == offset


def test_an_emptied_log_can_start_at_any_offset() -> None:
    bench = Bench(SMALL)
    bench.append_many(30)
    bench.log.update_high_watermark(20)
    bench.log.truncate_fully_and_start_at(1000)
    log = bench.log
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (1000, 1000, 1000)
    assert (log.recovery_point, log.size, log.latest_epoch) == (1000, 0, None)
    bench.append(batch([b"a"]))
    assert offsets(bench) == [1000]
    bench.kill_and_reopen(log_start_offset=1000)
    assert offsets(bench) == [1000]


def test_a_target_below_the_first_segment_empties_the_log() -> None:
    bench = Bench()
    bench.log.truncate_fully_and_start_at(100)
    bench.append_many(2)
    bench.log.truncate_to(50)
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (50, 50)


def test_a_truncation_survives_a_kill() -> None:
    bench = Bench(SMALL)
    bench.append_many(30)
    bench.log.sync.flush()
    bench.log.truncate_to(7)
    bench.append_many(2)
    bench.kill_and_reopen(recovery_point=30)
    assert offsets(bench) == list(range(9))


@pytest.mark.parametrize("is_reopened", [False, True])
def test_truncated_timestamps_are_not_found(is_reopened: bool) -> None:
    bench = Bench(DENSE)
    for number in range(8):
        bench.append(batch([b"%d" % number], timestamp=NOW_MS + number))
    bench.log.truncate_to(3)
    if is_reopened:
        bench.reopen_cleanly()
    assert bench.log.segments.active.max_timestamp == NOW_MS + 2
    assert bench.log.segments.active.time_index.last_entry()[1] < 3
    assert finish(bench.log.reader.offset_for_timestamp(NOW_MS + 3)) is None
    assert finish(bench.log.reader.offset_for_timestamp(NOW_MS + 2)) == (
        NOW_MS + 2,
        2,
        LEADER_EPOCH,
    )


@pytest.mark.parametrize("is_reopened", [False, True])
def test_records_after_a_truncation_are_found_by_their_own_timestamps(is_reopened: bool) -> None:
    bench = Bench(DENSE)
    for number in range(8):
        bench.append(batch([b"%d" % number], timestamp=NOW_MS + 100 * number))
    bench.log.truncate_to(2)
    # Older than the truncated records: an entry that had stayed would lead behind them.
    for number in range(6):
        bench.append(batch([b"%d" % number], timestamp=NOW_MS + 101 + number))
    if is_reopened:
        bench.reopen_cleanly()
    for number in range(6):
        at = NOW_MS + 101 + number
        assert finish(bench.log.reader.offset_for_timestamp(at)) == (at, 2 + number, LEADER_EPOCH)
    assert finish(bench.log.reader.offset_for_timestamp(NOW_MS + 200)) is None
    entries = bench.log.segments.active.time_index
    assert entries.is_sane()
    assert entries.last_entry() == (NOW_MS + 106, 7)


def test_truncated_records_do_not_keep_a_segment_from_retention() -> None:
    bench = Bench(LogConfig(index_interval_bytes=1, retention_ms=1000))
    bench.append(batch([b"old"], timestamp=NOW_MS - 5000))
    bench.append(batch([b"kept"], timestamp=NOW_MS - 4000))
    bench.append(batch([b"cut"], timestamp=NOW_MS))
    bench.log.truncate_to(2)
    bench.log.update_high_watermark(2)
    assert bench.log.delete_old_segments(NOW_MS) == 1


@pytest.mark.parametrize("is_reopened", [False, True])
def test_timestamps_after_the_last_index_entry_are_found_after_a_truncation(
    is_reopened: bool,
) -> None:
    bench = Bench()
    for number in range(4):
        bench.append(batch([b"%d" % number], timestamp=NOW_MS + number))
    bench.log.truncate_to(3)
    if is_reopened:
        bench.reopen_cleanly()
    assert bench.log.segments.active.max_timestamp == NOW_MS + 2
    assert finish(bench.log.reader.offset_for_timestamp(NOW_MS + 1)) == (
        NOW_MS + 1,
        1,
        LEADER_EPOCH,
    )
    bench.append(batch([b"older"], timestamp=NOW_MS))
    assert finish(bench.log.reader.max_timestamp_offset()) == (NOW_MS + 2, 2, LEADER_EPOCH)


def test_a_truncated_aborted_transaction_is_not_returned() -> None:
    bench = Bench()
    data = batch([b"t"], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    bench.append(data)
    bench.coordinate(marker(ControlType.ABORT, 7))
    assert len(bench.log.reader.aborted_transactions_below(2)) == 1
    bench.log.truncate_to(1)
    assert bench.log.reader.aborted_transactions_below(1) == []
    bench.coordinate(marker(ControlType.COMMIT, 7))
    bench.log.update_high_watermark(2)
    found = read(bench.log, isolation=FetchIsolation.TXN_COMMITTED)
    assert found.aborted_transactions == []


def test_a_truncation_after_a_damaged_batch_is_completed() -> None:
    bench = Bench()
    for number in range(4):
        bench.append(batch([b"%d" % number], timestamp=NOW_MS + number))
    active = bench.log.segments.active
    second = active.locate(1)
    assert second is not None
    # The length of the second batch; the third one is found without walking over it.
    active.file.write_at(bytes(4), second.position + 8)
    assert bench.log.truncate_to(3)
    assert (bench.log.log_end_offset, active.max_timestamp) == (3, NOW_MS)
    assert bench.append(batch([b"next"])).first_offset == 3
