"""A log with many segments: requests do not look at each segment."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, ClassVar

import pytest

from barnabas.record.control import ControlType
from barnabas.sim.disk import SimDisk
from barnabas.storage.config import LogConfig
from barnabas.storage.file_names import LARGEST_TIMESTAMPS
from barnabas.storage.log.log import Log
from barnabas.storage.read_result import FetchIsolation
from barnabas.storage.segment.offset_search import SEGMENTS_PER_STEP
from barnabas.storage.segment.segments import Segments
from barnabas.waiting.off_loop import run_steps
from unit.storage.storage_fixtures import DIRECTORY, NOW_MS, Bench, all_records, batch, marker, read

if TYPE_CHECKING:
    from barnabas.runtime.disk import File

# A batch or two a segment.
TINY = LogConfig(segment_bytes=300, index_interval_bytes=1)
FEW, MANY = 40, 640


class NotingDisk(SimDisk):
    """Records which files were accessed."""

    opened: ClassVar[list[str]] = []

    def open(self, path: str, create: bool = True, briefly: bool = False) -> File:
        self.opened.append(path)
        return super().open(path, create, briefly)

    def read(self, path: str) -> bytes:
        self.opened.append(path)
        return super().read(path)

    def exists(self, path: str) -> bool:
        self.opened.append(path)
        return super().exists(path)


def bench_of(segments: int, with_stored_times: bool = True) -> Bench:
    """A log that was opened on so many segments, a millisecond apart, and cleanly closed."""
    bench = Bench(TINY, disk=NotingDisk)
    while len(bench.log.segments) < segments:
        at = NOW_MS - MANY + len(bench.log.segments)
        bench.append(batch([bytes(200)], timestamp=at))
    bench.log.update_high_watermark(bench.log.log_end_offset)
    if not with_stored_times:
        bench.disk.remove(f"{DIRECTORY}/{LARGEST_TIMESTAMPS}")
    bench.reopen_cleanly()
    return bench


def calls(work: Callable[[], object]) -> int:
    """Return the number of Python function calls, including steps of generators."""
    count = 0

    def on_event(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    # Objects that a garbage collection finalizes meanwhile do not belong to the measured work.
    gc.disable()
    sys.setprofile(on_event)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def by_offset(log: Log) -> object:
    return read(log, log.log_end_offset // 2, 1, FetchIsolation.HIGH_WATERMARK)


def committed(log: Log) -> object:
    return read(log, log.log_end_offset // 2, 1, FetchIsolation.TXN_COMMITTED)


def by_time(log: Log) -> object:
    return run_steps(log.reader.offset_for_timestamp(NOW_MS - MANY + len(log.segments) // 2))


def by_largest_time(log: Log) -> object:
    return run_steps(log.reader.max_timestamp_offset())


@pytest.mark.parametrize("ask", [by_offset, committed, by_time, by_largest_time])
def test_the_cost_of_a_read_does_not_depend_on_the_number_of_segments(
    ask: Callable[[Log], object],
) -> None:
    taken = []
    for segments in (FEW, MANY):
        bench = bench_of(segments)
        if ask is committed:
            # The first such read looks for transaction indexes.
            ask(bench.log)
        taken.append(calls(partial(ask, bench.log)))
    assert taken[0] == taken[1]


@pytest.mark.parametrize("ask", [by_offset, committed, by_time, by_largest_time])
def test_the_first_read_after_a_start_opens_files_of_one_segment(
    ask: Callable[[Log], object],
) -> None:
    bench = bench_of(MANY)
    NotingDisk.opened.clear()
    ask(bench.log)
    assert 1 <= len({path.rpartition("/")[2].partition(".")[0] for path in NotingDisk.opened}) <= 2
    assert len(NotingDisk.opened) <= 6


@pytest.mark.parametrize("search", ["offset_for_timestamp", "max_timestamp_offset"])
def test_the_first_search_by_time_opens_a_limited_number_of_files_per_turn(search: str) -> None:
    log = bench_of(MANY, with_stored_times=False).log
    arguments = (NOW_MS,) if search == "offset_for_timestamp" else ()
    steps = getattr(log.reader, search)(*arguments)
    opened = []
    while True:
        NotingDisk.opened.clear()
        try:
            assert next(steps) is None
        except StopIteration:
            break
        opened.append(len(NotingDisk.opened))
    assert len(opened) >= MANY // SEGMENTS_PER_STEP
    # One more stores the times.
    assert max(opened) <= SEGMENTS_PER_STEP + 1


def test_a_search_by_time_goes_on_if_segments_are_deleted_between_its_steps() -> None:
    log = bench_of(MANY, with_stored_times=False).log
    steps = log.reader.offset_for_timestamp(NOW_MS - MANY + MANY // 2)
    assert next(steps) is None
    log.maybe_increment_log_start_offset(log.segments[150].base_offset, "test")
    assert log.delete_old_segments(NOW_MS) == 150
    assert run_steps(steps) == (
        NOW_MS - MANY + MANY // 2,
        log.log_start_offset + MANY // 2 - 150,
        3,
    )


def expected(segments: Segments, timestamp: int, start: int) -> list[int]:
    """Return the segments that reach a time, by looking at each."""
    following = segments.from_offset(start)
    return [each.base_offset for each in following if each.max_timestamp >= timestamp]


def check_times(bench: Bench, generator: random.Random) -> None:
    log = bench.log
    for _ in range(20):
        at = NOW_MS - generator.randrange(60)
        found = [each.base_offset for each in log.segments.reaching(at, log.log_start_offset)]
        assert found == expected(log.segments, at, log.log_start_offset)
        records = [r for r in all_records(log) if r.timestamp >= at]
        answer = run_steps(log.reader.offset_for_timestamp(at))
        assert (answer and answer[1]) == (records[0].offset if records else None)
    largest = max(all_records(log), key=lambda record: (record.timestamp, -record.offset))
    answer = run_steps(log.reader.max_timestamp_offset())
    assert answer is not None
    assert answer[:2] == (largest.timestamp, largest.offset)


@pytest.mark.parametrize("seed", range(6))
def test_timestamps_in_any_order_are_found_after_segment_changes(seed: int) -> None:
    generator = random.Random(seed)
    bench = Bench(TINY)

    def grow() -> None:
        for _ in range(generator.randrange(5, 25)):
            bench.append(batch([bytes(80)], timestamp=NOW_MS - generator.randrange(60)))
        bench.log.update_high_watermark(bench.log.log_end_offset)

    def cut() -> None:
        span = bench.log.log_end_offset - bench.log.log_start_offset
        bench.log.truncate_to(bench.log.log_end_offset - generator.randrange(span // 2))

    def start_later() -> None:
        span = bench.log.log_end_offset - bench.log.log_start_offset
        offset = bench.log.log_start_offset + generator.randrange(span // 2)
        bench.log.maybe_increment_log_start_offset(offset, "test")

    def delete() -> None:
        bench.log.delete_old_segments(bench.clock.wall_ms())

    grow()
    for _ in range(8):
        bench.clock.now_ms += 1
        generator.choice(
            [grow, cut, start_later, delete, bench.reopen_cleanly, bench.kill_and_reopen]
        )()
        bench.log.update_high_watermark(bench.log.log_end_offset)
        check_times(bench, generator)


def test_timestamps_are_found_after_a_damaged_index_was_rebuilt() -> None:
    bench = bench_of(FEW)
    first = bench.log.segments[3]
    first.time_index.clear()
    first._max_timestamp = None
    timestamp = NOW_MS - MANY + 3
    assert run_steps(bench.log.reader.offset_for_timestamp(timestamp)) != (
        timestamp,
        first.base_offset,
        3,
    )
    first.rebuild_indexes()
    assert run_steps(bench.log.reader.offset_for_timestamp(timestamp)) == (
        timestamp,
        first.base_offset,
        3,
    )


def test_aborted_transactions_are_found_in_all_segments() -> None:
    bench = Bench(TINY)
    ended: list[tuple[int, int, int]] = []
    generator = random.Random(1)
    sequence = 0
    # So that the list of those with aborted transactions is made before the first.
    assert bench.log.segments.collect_aborted(0, 1 << 40) == []
    for _ in range(30):
        if generator.random() < 0.4:
            options = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
            first = bench.append(batch([b"a"], transactional=True, **options)).first_offset
            end = bench.coordinate(marker(ControlType.ABORT, 7)).last_offset
            ended.append((7, first, end))
            sequence += 1
        bench.append(batch([bytes(150)]))
    bench.log.update_high_watermark(bench.log.log_end_offset)
    assert len(ended) > 5
    for log in (bench.log, bench.reopen_cleanly()):
        for start in range(0, log.log_end_offset, 3):
            found = log.segments.collect_aborted(start, log.log_end_offset)
            wanted = [each for each in ended if each[2] >= start]
            assert [tuple(entry[:3]) for entry in found] == wanted
