"""Reading slices of log files."""

from __future__ import annotations

import pytest

from barnabas.record.batch import read_header
from barnabas.runtime.disk import FileSlice
from barnabas.sim.disk import DiskFault
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import OffsetOutOfRangeError
from barnabas.storage.results import FetchIsolation, LogOffsetMetadata
from barnabas.waiting.steps import run_steps
from unit.storage.storage_fixtures import (
    DIRECTORY,
    NOW_MS,
    Bench,
    all_records,
    batch,
    content,
    read,
)

SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=300)


def test_a_read_returns_a_slice_of_the_file() -> None:
    bench = Bench()
    bench.append_many(2)
    assert isinstance(read(bench.log).records, FileSlice)


def test_a_read_of_a_small_last_append_returns_the_bytes_of_the_file_without_reading_it() -> None:
    bench = Bench()
    bench.append_many(2)
    before = read(bench.log)
    bench.append(batch([b"last"]))
    whole = content(read(bench.log))
    bench.disk.faults.append(DiskFault(DIRECTORY, ("read",)))
    last = read(bench.log, 2)
    assert last.records == whole[len(before.records) :]
    assert last.position == LogOffsetMetadata(2, 0, len(before.records))


def test_a_large_append_is_not_kept_in_memory() -> None:
    bench = Bench()
    bench.append(batch([bytes(4000)]))
    assert isinstance(read(bench.log).records, FileSlice)


def test_a_read_after_a_truncation_does_not_return_the_truncated_append() -> None:
    bench = Bench()
    bench.append_many(3)
    kept = content(read(bench.log, 1))[: len(read(bench.log, 2).records)]
    bench.log.truncate_to(2)
    assert content(read(bench.log, 1)) == kept


def test_an_idle_log_keeps_no_append_in_memory() -> None:
    bench = Bench()
    bench.append(batch([b"a"]))
    for _ in range(2):
        bench.log.close_idle()
    assert isinstance(read(bench.log).records, FileSlice)


def test_recent_appends_are_found_without_a_read_of_the_file() -> None:
    bench = Bench()
    bench.append_many(3)
    bench.disk.faults.append(DiskFault(DIRECTORY, ("read",)))
    assert [read(bench.log, offset).position.message_offset for offset in range(3)] == [0, 1, 2]


def test_every_offset_is_found_in_the_batch_that_holds_it() -> None:
    bench = Bench(SMALL)
    for index in range(60):
        bench.append(batch([b"%d" % index] * (1 + index % 4)))
    assert len(bench.log.segments) > 2
    for offset in range(bench.log.log_end_offset):
        header = read_header(content(read(bench.log, offset)))
        assert header.base_offset <= offset <= header.last_offset


def test_a_read_at_the_log_end_is_empty_and_opens_no_segment() -> None:
    bench = Bench()
    bench.append(batch([b"a"]))
    bench.disk.faults.clear()
    bench.log.close_files()
    result = read(bench.log, 1)
    assert result.records == b""
    assert result.position == bench.log.reader.end_offset_metadata()


@pytest.mark.parametrize("offset", [-1, 2])
def test_an_offset_outside_the_log_is_out_of_range(offset: int) -> None:
    bench = Bench()
    bench.append(batch([b"a"]))
    with pytest.raises(OffsetOutOfRangeError):
        read(bench.log, offset)


def test_an_offset_below_the_log_start_is_out_of_range() -> None:
    bench = Bench()
    bench.append_many(5)
    bench.log.update_high_watermark(5)
    bench.log.maybe_increment_log_start_offset(3, "test")
    with pytest.raises(OffsetOutOfRangeError):
        read(bench.log, 2)
    assert len(content(read(bench.log, 3))) > 0


def test_the_byte_limit_truncates_the_slice_but_not_the_first_batch() -> None:
    bench = Bench()
    sizes = [len(batch([bytes(100)])) for _ in range(2)]
    bench.append(batch([bytes(100)]))
    bench.append(batch([bytes(100)]))
    assert len(read(bench.log, 0, 10).records) == sizes[0]
    assert len(read(bench.log, 0, sizes[0] + 5).records) == sizes[0] + 5


def test_a_hard_limit_below_the_first_batch_returns_it_incomplete() -> None:
    bench = Bench()
    bench.append(batch([bytes(100)]))
    result = bench.log.reader.read(0, 10, FetchIsolation.LOG_END, False)
    assert len(result.records) == 10
    assert result.first_batch_incomplete


def test_a_read_of_zero_bytes_returns_a_position_and_no_records() -> None:
    bench = Bench()
    bench.append_many(2)
    result = bench.log.reader.read(1, 0, FetchIsolation.LOG_END, False)
    assert result.records == b""
    assert result.position.message_offset == 1
    assert result.position.relative_position > 0


def test_consumers_see_nothing_above_the_high_watermark() -> None:
    bench = Bench()
    bench.append_many(3)
    bench.log.update_high_watermark(2)
    seen = content(read(bench.log, 0, isolation=FetchIsolation.HIGH_WATERMARK))
    assert len(seen) == 2 * len(content(read(bench.log, 2)))
    above = read(bench.log, 2, isolation=FetchIsolation.HIGH_WATERMARK)
    assert above.records == b""
    assert above.position.message_offset == 2


def test_a_consumer_read_above_the_high_watermark_is_empty_without_error() -> None:
    bench = Bench()
    bench.append_many(5)
    bench.log.update_high_watermark(1)
    assert read(bench.log, 4, isolation=FetchIsolation.HIGH_WATERMARK).records == b""


def test_the_high_watermark_in_an_older_segment_bounds_the_read() -> None:
    bench = Bench(SMALL)
    bench.append_many(40)
    bench.log.update_high_watermark(5)
    seen = read(bench.log, 0, isolation=FetchIsolation.HIGH_WATERMARK)
    assert bench.log.reader.high_watermark_metadata().segment_base_offset == 0
    assert len(seen.records) == bench.log.reader.high_watermark_metadata().relative_position


def test_a_read_ends_with_its_segment() -> None:
    bench = Bench(SMALL)
    bench.append_many(40)
    first = bench.log.segments[0]
    assert len(read(bench.log, 0).records) == first.size


def with_gaps() -> Bench:
    """Segments of offsets 0, 5 and 10 whose only records are 0, 7 and 12, as compaction leaves."""
    bench = Bench(LogConfig(cleanup_policy=("compact",)))
    bench.append(batch([b"0"]))
    bench.log.close()
    for base, offset in ((5, 7), (10, 12)):
        records = batch([b"%d" % offset], base_offset=offset)
        bench.disk.open(f"{DIRECTORY}/{base:020d}.log").append(bytes(records))
    bench.open(clean_shutdown=True, recovery_point=13, high_watermark=13)
    assert [each.base_offset for each in bench.log.segments] == [0, 5, 10]
    assert bench.log.log_end_offset == 13
    return bench


@pytest.mark.parametrize(("offset", "found"), [(1, 7), (4, 7), (5, 7), (8, 12), (9, 12)])
def test_a_read_continues_in_the_next_segment_after_a_gap(offset: int, found: int) -> None:
    bench = with_gaps()
    result = read(bench.log, offset)
    assert read_header(content(result)).base_offset == found
    assert result.position.message_offset == offset


@pytest.mark.parametrize("high_watermark", [2, 5, 7])
def test_records_of_the_next_segment_above_the_high_watermark_are_not_returned(
    high_watermark: int,
) -> None:
    """Records of later segments are not returned either."""
    bench = with_gaps()
    bench.log.update_high_watermark(high_watermark)
    result = read(bench.log, 1, isolation=FetchIsolation.HIGH_WATERMARK)
    assert result.records == b""
    assert result.position.message_offset == 1


def test_the_position_of_a_read_names_segment_and_bytes() -> None:
    bench = Bench()
    bench.append_many(2)
    size = len(read(bench.log, 1).records)
    assert read(bench.log, 1).position == LogOffsetMetadata(1, 0, size)


def test_the_first_record_at_or_after_a_time_is_found() -> None:
    bench = Bench(SMALL)
    for index in range(60):
        bench.append(batch([b"a", b"b"], timestamp=NOW_MS + index * 10))
    for index in range(60):
        found = run_steps(bench.log.reader.offset_for_timestamp(NOW_MS + index * 10 - 5))
        assert found == (NOW_MS + index * 10, index * 2, 3)
    assert run_steps(bench.log.reader.offset_for_timestamp(NOW_MS + 591)) is None


def test_the_record_with_the_largest_timestamp_is_found() -> None:
    bench = Bench()
    for timestamp in (5, 90, 20):
        bench.append(batch([b"a"], timestamp=timestamp))
    assert run_steps(bench.log.reader.max_timestamp_offset()) == (90, 1, 3)


def test_the_largest_timestamp_is_that_of_the_remaining_records() -> None:
    bench = Bench()
    bench.append(batch([b"a", b"b"], timestamp=90))
    for timestamp in (20, 70, 40):
        bench.append(batch([b"a", b"b"], timestamp=timestamp))
    bench.log.update_high_watermark(8)
    for cut, found in ((1, (90, 1, 3)), (2, (70, 4, 3)), (5, (70, 5, 3)), (6, (40, 6, 3))):
        bench.log.maybe_increment_log_start_offset(cut, "asked for")
        assert run_steps(bench.log.reader.max_timestamp_offset()) == found
    bench.log.maybe_increment_log_start_offset(8, "asked for")
    assert run_steps(bench.log.reader.max_timestamp_offset()) is None


def test_the_first_of_records_without_a_timestamp_has_the_largest_timestamp() -> None:
    bench = Bench()
    bench.append_many(0)
    assert run_steps(bench.log.reader.max_timestamp_offset()) is None
    for _ in range(2):
        bench.append(batch([b"a"], timestamp=-1))
    assert run_steps(bench.log.reader.max_timestamp_offset()) == (-1, 0, 3)


def test_idle_segments_open_their_files_again_when_read() -> None:
    bench = Bench(SMALL)
    bench.append_many(40)
    bench.log.sync.flush()
    before = all_records(bench.log)
    for _ in range(3):
        bench.log.release_idle()
    assert all_records(bench.log) == before
