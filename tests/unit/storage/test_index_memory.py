"""The memory for the indexes of a segment that grows under steady load."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable

import pytest

from barnabas.runtime.rng import SeededRng
from barnabas.sim.disk import SimDisk
from barnabas.storage.config import LogConfig
from barnabas.storage.log.log import Log
from barnabas.storage.results import FetchIsolation
from barnabas.storage.segment.segment_indexes import TAIL_ENTRIES, OffsetIndex, TimeIndex
from unit.storage.storage_fixtures import NOW_MS, Bench, ManualClock, all_records, batch, read

# One index entry for each batch, and one segment for all of them.
DENSE = LogConfig(index_interval_bytes=0)
PASSES = 4
BEHIND = 200
ENTRIES_PER_PASS = 2 * TAIL_ENTRIES
# Last offset and position of an entry, for entry number n.
STEP, BATCH_BYTES = 3, 100
MAX_BYTES = 1 << 20


def index_bytes() -> int:
    """Return the bytes that the arrays of all indexes hold."""
    indexes = [tracemalloc.Filter(True, f"*/{name}_index.py") for name in ("offset", "time")]
    taken = tracemalloc.take_snapshot().filter_traces(indexes)
    return sum(each.size for each in taken.statistics("filename"))


def test_the_memory_for_indexes_of_an_active_segment_does_not_grow_with_its_records() -> None:
    bench = Bench(DENSE)
    held: list[int] = []
    tracemalloc.start()
    try:
        for number in range(PASSES * ENTRIES_PER_PASS):
            bench.append(batch([b"value"], timestamp=NOW_MS + number))
            if number % ENTRIES_PER_PASS == ENTRIES_PER_PASS - 1:
                bench.log.release_idle()
                # A read_committed consumer that is a little behind reads some of the last batches.
                bench.log.update_high_watermark(number)
                read(bench.log, number - BEHIND, 1000, FetchIsolation.TXN_COMMITTED)
                held.append(index_bytes())
    finally:
        tracemalloc.stop()
    assert len(bench.log.segments) == 1
    assert len(bench.log.segments.active.offset_index) > (PASSES - 1) * ENTRIES_PER_PASS
    assert held[-1] <= held[0] + TAIL_ENTRIES


def test_records_of_a_segment_with_trimmed_indexes_are_found_by_offset_and_time() -> None:
    bench = Bench(DENSE)
    count = TAIL_ENTRIES + 200
    for number in range(count):
        bench.append(batch([b"%d" % number], timestamp=NOW_MS + number))
    bench.log.release_idle()
    for number in (count - 1, TAIL_ENTRIES, 5, 0, count - 2):
        assert first_offset(bench.log, number) == number
        assert bench.log.segments.active.lookup_time(NOW_MS + number) <= number
    assert len(all_records(bench.log)) == count


def first_offset(log: Log, offset: int) -> int:
    place = log.segments.active.locate(offset)
    assert place is not None
    return place.base_offset


def new_disk() -> SimDisk:
    disk = SimDisk(ManualClock(), SeededRng(1))
    disk.make_directory("/data")
    return disk


def offset_indexes(count: int) -> tuple[OffsetIndex, OffsetIndex]:
    """Return a trimmed and a complete index with the same entries."""
    indexes = tuple(OffsetIndex(new_disk(), "/data/0.index", 0, MAX_BYTES) for _ in range(2))
    for index in indexes:
        index.file.create()
        index.create()
        for number in range(count):
            index.append(number * STEP, number * BATCH_BYTES)
    indexes[0].trim()
    return indexes[0], indexes[1]


def time_indexes(count: int) -> tuple[TimeIndex, TimeIndex]:
    """Return a trimmed and a complete index with the same entries."""
    indexes = tuple(TimeIndex(new_disk(), "/data/0.timeindex", 0, MAX_BYTES) for _ in range(2))
    for index in indexes:
        index.file.create()
        index.create()
        for number in range(count):
            index.maybe_append(NOW_MS + number * STEP, number * STEP)
    indexes[0].trim()
    return indexes[0], indexes[1]


COUNTS = (0, 1, TAIL_ENTRIES, TAIL_ENTRIES + 1, 3 * TAIL_ENTRIES)


@pytest.mark.parametrize("count", COUNTS)
def test_a_trimmed_offset_index_returns_what_a_complete_index_returns(count: int) -> None:
    rng = random.Random(count)
    questions: tuple[Callable[[OffsetIndex, int], object], ...] = (
        lambda index, number: index.entry_before(number * STEP + number % 2),
        lambda index, number: index.offset_beyond(number * BATCH_BYTES + number % 2),
        lambda index, _: (len(index), index.is_full, index.last_position()),
        lambda index, _: index.is_sane(count * BATCH_BYTES),
        lambda index, number: index.append((count + number) * STEP, (count + number) * 100),
        lambda index, number: index.drop_from(number * STEP, number * BATCH_BYTES),
        lambda index, number: index.truncate_to(number * STEP),
    )
    for question in questions:
        for number in (count, count // 2, 0, *(rng.randrange(count + 1) for _ in range(5))):
            trimmed, complete = offset_indexes(count)
            assert question(trimmed, number) == question(complete, number)
            assert trimmed.file.read() == complete.file.read()
            assert trimmed.entry_before(number) == complete.entry_before(number)


@pytest.mark.parametrize("count", COUNTS)
def test_a_trimmed_time_index_returns_what_a_complete_index_returns(count: int) -> None:
    rng = random.Random(count)
    questions: tuple[Callable[[TimeIndex, int], object], ...] = (
        lambda index, number: index.lookup(NOW_MS + number * STEP + number % 2 - 1),
        lambda index, _: (len(index), index.is_full, index.is_sane(), index.last_entry()),
        lambda index, number: index.maybe_append(NOW_MS + count * STEP, (count + number) * STEP),
        lambda index, number: index.truncate_to(number * STEP),
    )
    for question in questions:
        for number in (count, count // 2, 0, *(rng.randrange(count + 1) for _ in range(5))):
            trimmed, complete = time_indexes(count)
            assert question(trimmed, number) == question(complete, number)
            assert trimmed.file.read() == complete.file.read()
            assert trimmed.lookup(NOW_MS + number) == complete.lookup(NOW_MS + number)
