"""A log with many segments: requests do not look at each segment."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from types import FrameType
from typing import TYPE_CHECKING, ClassVar

import pytest

from barnabas.record.batch import ControlType
from barnabas.sim.disk import SimDisk
from barnabas.storage.config import LogConfig
from barnabas.storage.log.log import Log
from barnabas.storage.log.log_loader import LogLoader
from barnabas.storage.log.log_reader import SEGMENTS_PER_STEP
from barnabas.storage.log_dependencies import LogOpening
from barnabas.storage.results import FetchIsolation, ReadResult
from barnabas.storage.segment.segments import Segments
from barnabas.storage.topic_partition import LARGEST_TIMESTAMPS
from barnabas.waiting.steps import run_steps
from unit.storage.storage_fixtures import (
    DIRECTORY,
    NOW_MS,
    PARTITION,
    Bench,
    all_records,
    batch,
    marker,
    read,
)

if TYPE_CHECKING:
    from barnabas.runtime.disk import File


# A batch or two a segment.
TINY = LogConfig(segment_bytes=300, index_interval_bytes=1)
FEW, MANY = 40, 640


class NotingDisk(SimDisk):
    """Records which files were accessed."""

    opened: ClassVar[list[str]] = []
    # Files whose size and modification time were examined.
    stamped: ClassVar[list[str]] = []

    def open(self, path: str, create: bool = True, briefly: bool = False) -> File:
        self.opened.append(path)
        return super().open(path, create, briefly)

    def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        self.opened.append(path)
        return super().read(path, start, size)

    def exists(self, path: str) -> bool:
        self.opened.append(path)
        return super().exists(path)

    def stamp(self, path: str) -> tuple[int, int]:
        self.stamped.append(path)
        return super().stamp(path)


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


def committed(log: Log) -> ReadResult:
    return read(log, log.log_end_offset // 2, 1, FetchIsolation.TXN_COMMITTED)


def by_time(log: Log) -> object:
    return run_steps(log.reader.offset_for_timestamp(NOW_MS - MANY + len(log.segments) // 2))


def by_largest_time(log: Log) -> object:
    return run_steps(log.reader.max_timestamp_offset())


@pytest.mark.parametrize("ask", [by_offset, committed, by_time, by_largest_time])
def test_the_cost_of_a_read_does_not_depend_on_the_number_of_segments(
    ask: Callable[[Log], object],
) -> None:
    # The first read of a process imports modules, which must not count.
    ask(bench_of(FEW).log)
    taken = []
    for segments in (FEW, MANY):
        bench = bench_of(segments)
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


def abort(bench: Bench, producer_id: int) -> tuple[int, int, int]:
    """Append an aborted transaction; return its producer id, first and last offset."""
    options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
    first = bench.append(batch([b"a"], transactional=True, **options)).first_offset
    return producer_id, first, bench.coordinate(marker(ControlType.ABORT, producer_id)).last_offset


def with_aborted_transactions(segments: int) -> Bench:
    """A log with an aborted transaction in each segment, which was cleanly closed."""
    bench = Bench(TINY, disk=NotingDisk)
    while len(bench.log.segments) < segments:
        abort(bench, len(bench.log.segments))
        bench.append(batch([bytes(80)]))
    bench.log.update_high_watermark(bench.log.log_end_offset)
    bench.reopen_cleanly()
    return bench


def test_the_first_committed_read_after_a_start_opens_few_transaction_indexes() -> None:
    opened = []
    for segments in (FEW, MANY):
        log = with_aborted_transactions(segments).log
        NotingDisk.opened.clear()
        assert committed(log).aborted_transactions
        opened.append(
            [path.rpartition(".")[0] for path in NotingDisk.opened if path.endswith(".txnindex")]
        )
    assert [len(set(each)) for each in opened] == [1, 1], opened


@pytest.mark.parametrize("removed", [0, 5])
def test_deleted_segments_do_not_lead_to_opened_files(removed: int) -> None:
    log = with_aborted_transactions(FEW).log
    log.maybe_increment_log_start_offset(log.segments[removed].base_offset, "test")
    assert log.delete_old_segments(NOW_MS) == removed
    NotingDisk.opened.clear()
    assert committed(log).aborted_transactions
    assert len({path for path in NotingDisk.opened if path.endswith(".txnindex")}) == 1


@pytest.mark.parametrize("end", ["clean", "kill"])
def test_each_step_of_a_start_examines_files_of_few_segments(end: str) -> None:
    bench = with_aborted_transactions(MANY)
    point = bench.log.log_end_offset
    opening = LogOpening(PARTITION, clean_shutdown=end == "clean", recovery_point=point)
    steps = LogLoader(DIRECTORY, TINY, bench.log_dependencies, opening).load_in_slices()
    examined = []
    while True:
        NotingDisk.opened.clear()
        NotingDisk.stamped.clear()
        if next(steps, steps) is steps:
            break
        examined.append(len(NotingDisk.opened + NotingDisk.stamped))
    assert len(examined) > MANY
    assert max(examined) <= 6


def test_a_read_does_not_look_at_each_aborted_transaction_of_a_segment() -> None:
    taken = []
    for transactions in (100, 1600):
        bench = Bench(disk=NotingDisk)
        for producer_id in range(transactions):
            abort(bench, producer_id)
        end = bench.log.log_end_offset
        bench.log.update_high_watermark(end)
        assert len(bench.log.segments) == 1
        taken.extend(
            calls(partial(log.segments.collect_aborted, end - 4, end))
            for log in (bench.log, bench.reopen_cleanly())
        )
    # The number of steps grows with the logarithm.
    assert max(taken) < 100, taken


@pytest.mark.parametrize("seed", range(6))
def test_aborted_transactions_are_found_after_segment_changes(seed: int) -> None:
    generator = random.Random(seed)
    bench = Bench(TINY)
    ended: list[tuple[int, int, int]] = []
    producer_ids = count()

    def grow() -> None:
        for _ in range(generator.randrange(5, 25)):
            if generator.random() < 0.4:
                ended.append(abort(bench, next(producer_ids)))
            bench.append(batch([bytes(150)]))

    def cut() -> None:
        span = bench.log.log_end_offset - bench.log.log_start_offset
        bench.log.truncate_to(bench.log.log_end_offset - generator.randrange(span // 2))
        ended[:] = [each for each in ended if each[2] < bench.log.log_end_offset]

    def delete() -> None:
        span = bench.log.log_end_offset - bench.log.log_start_offset
        offset = bench.log.log_start_offset + generator.randrange(span // 2)
        bench.log.maybe_increment_log_start_offset(offset, "test")
        bench.log.delete_old_segments(bench.clock.wall_ms())

    grow()
    for _ in range(8):
        bench.log.update_high_watermark(bench.log.log_end_offset)
        generator.choice([grow, grow, cut, delete, bench.reopen_cleanly, bench.kill_and_reopen])()
        log = bench.log
        for start in range(log.log_start_offset, log.log_end_offset, 3):
            found = log.segments.collect_aborted(start, log.log_end_offset)
            wanted = [each for each in ended if each[2] >= start]
            assert [tuple(entry[:3]) for entry in found] == wanted
