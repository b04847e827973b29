"""Cutting a log: everything that knows offsets follows."""

from __future__ import annotations

import pytest

from barnabas.storage.config import LogConfig
from unit.storage.storage_fixtures import Bench, all_records, batch, read

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=200)


def offsets(bench: Bench) -> list[int]:
    return [record.offset for record in all_records(bench.log)]


@pytest.mark.parametrize("target", [0, 1, 5, 17, 29])
def test_nothing_at_or_above_the_target_is_left(target: int) -> None:
    bench = Bench(SMALL)
    bench.append_many(30)
    assert bench.log.truncate_to(target)
    assert bench.log.log_end_offset == target
    assert offsets(bench) == list(range(target))
    bench.append(batch([b"new"]))
    assert offsets(bench) == list(range(target + 1))


def test_a_batch_that_holds_the_target_goes_as_a_whole() -> None:
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


def test_watermark_recovery_point_and_epochs_follow() -> None:
    bench = Bench(SMALL)
    for epoch in range(10):
        bench.append(batch([b"a"]), epoch=epoch)
    bench.log.flush()
    bench.log.update_high_watermark(10)
    bench.log.truncate_to(4)
    assert bench.log.high_watermark == 4
    assert bench.log.recovery_point <= 4
    assert bench.log.latest_epoch == 3
    assert bench.log.end_offset_for_epoch(3) == (3, 4)


def test_producers_are_as_they_were_at_the_target() -> None:
    bench = Bench(SMALL)
    for sequence in range(12):
        bench.append(batch([bytes(80)], producer_id=1, producer_epoch=0, base_sequence=sequence))
    bench.log.truncate_to(5)
    assert bench.log.producer_state.entries[1].last_sequence == 4
    info = bench.append(batch([b"x"], producer_id=1, producer_epoch=0, base_sequence=5))
    assert info.first_offset == 5


def test_indexes_find_what_is_left() -> None:
    bench = Bench(SMALL)
    bench.append_many(30)
    bench.log.truncate_to(11)
    bench.append_many(10)
    for offset in range(bench.log.log_end_offset):
        assert read(bench.log, offset).position.message_offset == offset


def test_a_log_can_begin_anew_at_any_offset() -> None:
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


def test_a_target_below_the_first_segment_begins_the_log_anew() -> None:
    bench = Bench()
    bench.log.truncate_fully_and_start_at(100)
    bench.append_many(2)
    bench.log.truncate_to(50)
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (50, 50)


def test_a_cut_survives_being_killed() -> None:
    bench = Bench(SMALL)
    bench.append_many(30)
    bench.log.flush()
    bench.log.truncate_to(7)
    bench.append_many(2)
    bench.kill_and_reopen(recovery_point=30)
    assert offsets(bench) == list(range(9))
