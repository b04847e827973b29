"""A search by timestamp runs in steps, and detects concurrent truncation."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.record.batch import set_crc
from barnabas.record.builder import BatchBuilder
from barnabas.record.columns import RECORDS_PER_SLICE
from barnabas.record.compression import ZSTD
from barnabas.storage.errors import CorruptRecordError, LogChangedError
from barnabas.storage.log.log_reader import HEADERS_PER_STEP
from barnabas.waiting.steps import OffLoop
from unit.storage.storage_fixtures import LEADER_EPOCH, Bench


def built(times: range, compression: int = 0, value: bytes = b"v") -> bytearray:
    builder = BatchBuilder(compression=compression)
    for at in times:
        builder.append(at, b"k", value)
    return builder.build()


def followed(steps: Any) -> tuple[Any, list[OffLoop | None]]:
    """Return the result of the steps, and their requests."""
    asked: list[OffLoop | None] = []
    answer = None
    while True:
        try:
            asked.append(steps.send(answer))
        except StopIteration as end:
            return end.value, asked
        answer = None if asked[-1] is None else asked[-1].work()


def test_a_batch_of_many_records_is_searched_in_slices() -> None:
    bench, count = Bench(), 10 * RECORDS_PER_SLICE
    bench.append(built(range(1000, 1000 + count)))
    found, asked = followed(bench.log.reader.offset_for_timestamp(1000 + count - 1))
    assert found == (1000 + count - 1, count - 1, LEADER_EPOCH)
    assert asked == [None] * 9
    assert followed(bench.log.reader.offset_for_timestamp(1000))[1] == []


def test_large_batches_are_decompressed_outside_the_event_loop() -> None:
    bench = Bench()
    bench.append(built(range(1000, 1002), ZSTD, bytes(1 << 20)))
    found, asked = followed(bench.log.reader.offset_for_timestamp(1001))
    assert found == (1001, 1, LEADER_EPOCH)
    assert [each is not None for each in asked] == [True]


def test_batches_that_timestamps_do_not_exclude_are_searched_in_steps() -> None:
    bench = Bench()
    bench.append(built(range(1000, 1001)))
    for _ in range(3 * HEADERS_PER_STEP):
        bench.append(built(range(5, 6)))
    bench.append(built(range(1001, 1002)))
    found, asked = followed(bench.log.reader.offset_for_timestamp(1001))
    assert found == (1001, 3 * HEADERS_PER_STEP + 1, LEADER_EPOCH)
    assert len(asked) >= 3


def test_the_largest_time_above_the_start_within_a_batch_is_found_in_one_pass() -> None:
    bench, count = Bench(), 4 * RECORDS_PER_SLICE
    bench.append(built(range(1000 + count, 1000, -1)))
    bench.log.update_high_watermark(count)
    bench.log.maybe_increment_log_start_offset(count - 700, "test")
    found, asked = followed(bench.log.reader.max_timestamp_offset())
    assert found == (1700, count - 700, LEADER_EPOCH)
    # For the largest of all, for the largest of the remaining records, and for its record.
    assert len(asked) <= 3 * 4 + 3


def test_a_truncation_during_a_search_is_an_error() -> None:
    bench = Bench()
    bench.append(built(range(1000, 1001)))
    for _ in range(2 * HEADERS_PER_STEP):
        bench.append(built(range(5, 6)))
    steps = bench.log.reader.offset_for_timestamp(1001)
    bench.append(built(range(1001, 1002)))
    next(steps)
    bench.log.truncate_to(3)
    with pytest.raises(LogChangedError):
        next(steps)


def test_a_batch_without_valid_records_is_an_error_of_its_partition() -> None:
    bench = Bench()
    garbage = built(range(1000, 1003))
    garbage[61:] = bytes(len(garbage) - 61)
    set_crc(garbage, 0, len(garbage))
    bench.log.appender.append_as_follower(garbage, LEADER_EPOCH)
    with pytest.raises(CorruptRecordError):
        followed(bench.log.reader.offset_for_timestamp(1001))
