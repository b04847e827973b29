"""Rolling, retention and deletion."""

from __future__ import annotations

import pytest

from barnabas.record.batch import CREATE_TIME, set_max_timestamp
from barnabas.storage.config import LogConfig
from unit.storage.storage_fixtures import (
    DIRECTORY,
    NOW_MS,
    PARTITION,
    Bench,
    all_records,
    batch,
    read,
)

SIZE = len(batch([bytes(100)]))


def test_a_full_segment_is_rolled_at_the_log_end() -> None:
    bench = Bench(LogConfig(segment_bytes=SIZE * 3))
    for _ in range(7):
        bench.append(batch([bytes(100)]))
    assert bench.log.segments.base_offsets == [0, 3, 6]


def test_segment_ms_uses_record_timestamps() -> None:
    bench = Bench(LogConfig(segment_ms=1000))
    for offset in (0, 1000, 1001):
        bench.append(batch([b"a"], timestamp=NOW_MS + offset))
    assert bench.log.segments.base_offsets == [0, 2]


def test_segment_ms_uses_the_segment_age_without_timestamps() -> None:
    bench = Bench(LogConfig(segment_ms=1000))
    bench.append(batch([b"a"], timestamp=-1))
    bench.clock.now_ms = 1001
    bench.append(batch([b"a"], timestamp=-1))
    assert bench.log.segments.base_offsets == [0, 1]


def test_a_full_index_rolls_its_segment() -> None:
    bench = Bench(LogConfig(index_interval_bytes=0, segment_index_bytes=36))
    bench.append_many(12)
    assert len(bench.log.segments) > 2


def test_an_offset_too_far_from_the_base_offset_rolls_the_segment() -> None:
    bench = Bench()
    bench.log.appender.append_as_follower(batch([b"a"]))
    bench.log.appender.append_as_follower(batch([b"b"], base_offset=1 << 31))
    assert bench.log.segments.base_offsets == [0, 1]


def test_rolling_an_empty_log_does_nothing() -> None:
    bench = Bench()
    bench.log.roll()
    assert bench.log.segments.base_offsets == [0]


def test_a_roll_takes_a_snapshot_of_the_producers() -> None:
    bench = Bench()
    bench.append(batch([b"a"], producer_id=1, producer_epoch=0, base_sequence=0))
    bench.log.roll()
    assert "00000000000000000001.snapshot" in bench.names()


def test_segments_older_than_the_retention_time_are_deleted() -> None:
    bench = Bench(LogConfig(retention_ms=1000, segment_bytes=SIZE * 2))
    for index in range(6):
        bench.append(batch([bytes(100)], timestamp=NOW_MS + index))
    bench.log.update_high_watermark(6)
    assert bench.log.delete_old_segments(NOW_MS + 1002) == 1
    assert bench.log.log_start_offset == 2
    assert [record.offset for record in all_records(bench.log)] == [2, 3, 4, 5]


def test_an_expired_active_segment_is_rolled_and_deleted() -> None:
    bench = Bench(LogConfig(retention_ms=1000))
    bench.append_many(3)
    bench.log.update_high_watermark(3)
    assert bench.log.delete_old_segments(NOW_MS + 1001) == 1
    assert (bench.log.log_start_offset, bench.log.log_end_offset, bench.log.size) == (3, 3, 0)


@pytest.mark.parametrize("index_interval_bytes", [0, SIZE, 4096])
def test_expired_records_of_an_active_segment_are_no_damage(index_interval_bytes: int) -> None:
    config = LogConfig(retention_ms=1000, index_interval_bytes=index_interval_bytes)
    bench = Bench(config)
    for age in (2, 0, 1):
        bench.append(batch([bytes(100)], timestamp=NOW_MS - age))
    bench.log.update_high_watermark(3)
    assert bench.log.delete_old_segments(NOW_MS + 1000) == 0
    assert bench.log.delete_old_segments(NOW_MS + 1001) == 1
    assert not bench.log_dependencies.damage.counts


@pytest.mark.parametrize("claim", [-1, 0, NOW_MS - 5000, 1 << 62])
def test_retention_does_not_believe_the_largest_timestamp_of_a_producer(claim: int) -> None:
    bench = Bench(LogConfig(retention_ms=1000))
    records = batch([b"a"])
    set_max_timestamp(records, 0, CREATE_TIME, claim)
    bench.append(records)
    bench.log.update_high_watermark(1)
    assert bench.log.delete_old_segments(NOW_MS + 1000) == 0
    assert bench.log.delete_old_segments(NOW_MS + 1001) == 1


def test_an_empty_active_segment_stays() -> None:
    bench = Bench(LogConfig(retention_ms=0))
    assert bench.log.delete_old_segments(NOW_MS + 10) == 0


def test_the_oldest_segments_are_deleted_above_the_retention_size() -> None:
    bench = Bench(LogConfig(retention_bytes=SIZE * 4, segment_bytes=SIZE * 2))
    bench.append_many(0)
    for _ in range(9):
        bench.append(batch([bytes(100)]))
    bench.log.update_high_watermark(9)
    assert bench.log.delete_old_segments(NOW_MS) == 2
    assert bench.log.size == SIZE * 5


def test_nothing_above_the_high_watermark_is_deleted() -> None:
    bench = Bench(LogConfig(retention_bytes=0, segment_bytes=SIZE * 2))
    for _ in range(6):
        bench.append(batch([bytes(100)]))
    bench.log.update_high_watermark(3)
    assert bench.log.delete_old_segments(NOW_MS) == 1


def test_segments_below_the_log_start_are_deleted_under_any_policy() -> None:
    bench = Bench(LogConfig(cleanup_policy=("compact",), retention_ms=0, segment_bytes=SIZE * 2))
    for _ in range(6):
        bench.append(batch([bytes(100)]))
    bench.log.update_high_watermark(6)
    assert bench.log.delete_old_segments(NOW_MS + 5) == 0
    bench.log.maybe_increment_log_start_offset(5, "records deleted")
    assert bench.log.delete_old_segments(NOW_MS + 5) == 2
    assert bench.log.log_start_offset == 5


def test_the_files_of_a_deleted_segment_stay_for_a_while_under_another_name() -> None:
    bench = Bench(LogConfig(retention_bytes=0, segment_bytes=SIZE * 2, file_delete_delay_ms=70))
    for _ in range(3):
        bench.append(batch([bytes(100)]))
    bench.log.update_high_watermark(2)
    slice_of_old = read(bench.log).records
    bench.log.delete_old_segments(NOW_MS)
    deleted = [name for name in bench.names() if name.endswith(".deleted")]
    assert "00000000000000000000.log.deleted" in deleted
    assert len(slice_of_old.read()) == SIZE * 2
    assert bench.timer.waiting[0][0] == 70
    bench.timer.run()
    assert not [name for name in bench.names() if name.endswith(".deleted")]


def test_the_log_start_moves_up_only_and_not_above_the_high_watermark() -> None:
    from barnabas.storage.errors import OffsetOutOfRangeError

    bench = Bench()
    bench.append_many(5)
    bench.log.update_high_watermark(4)
    assert bench.log.maybe_increment_log_start_offset(3, "test")
    assert not bench.log.maybe_increment_log_start_offset(2, "test")
    with pytest.raises(OffsetOutOfRangeError):
        bench.log.maybe_increment_log_start_offset(5, "test")


def test_leader_epochs_begin_at_the_log_start() -> None:
    """Records are deleted on request, or with their segments by time."""
    bench = Bench(LogConfig(retention_ms=1000, segment_bytes=SIZE * 2))
    for epoch in range(6):
        bench.append(batch([bytes(100)], timestamp=NOW_MS + epoch), epoch=epoch)
    bench.log.update_high_watermark(6)
    assert bench.log.maybe_increment_log_start_offset(1, "test")
    assert bench.log.leader_epochs.entries[0] == (1, 1)
    assert bench.log.delete_old_segments(NOW_MS + 1004) == 2
    assert bench.log.leader_epochs.entries[0] == (4, 4)


def test_a_deleted_log_moves_aside() -> None:
    bench = Bench()
    bench.append_many(1)
    bench.log.rename_to_delete()
    (name,) = bench.disk.list("/data")
    assert name.startswith(f"{PARTITION}.")
    assert name.endswith("-delete")
    assert len(name) == len(str(PARTITION)) + 1 + 32 + len("-delete")
    assert not bench.disk.exists(DIRECTORY)
