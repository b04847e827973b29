"""The file with the largest timestamps of sealed segments: when it is read, and when it is not."""

from __future__ import annotations

import errno
import random
from typing import TYPE_CHECKING

import pytest

from barnabas.runtime.disk import RealDisk
from barnabas.sim.disk import DiskFault, SimDisk
from barnabas.storage.config import LogConfig
from barnabas.storage.topic_partition import LARGEST_TIMESTAMPS, LOG_SUFFIX, TIME_INDEX_SUFFIX
from barnabas.waiting.steps import run_steps
from unit.storage.cleaner_fixtures import CleanerBench
from unit.storage.storage_fixtures import DIRECTORY, NOW_MS, Bench, all_records, batch

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.runtime.disk import File
    from barnabas.storage.log.log import Log


# A batch or two a segment.
TINY = LogConfig(segment_bytes=300, index_interval_bytes=1)
PATH = f"{DIRECTORY}/{LARGEST_TIMESTAMPS}"
AGES = 20


class CountingDisk(SimDisk):
    """Counts the accesses to time indexes."""

    indexes_opened = 0

    def open(self, path: str, create: bool = True, briefly: bool = False) -> File:
        CountingDisk.indexes_opened += path.endswith(TIME_INDEX_SUFFIX)
        return super().open(path, create, briefly)


def filled(config: LogConfig = TINY, segments: int = 30) -> Bench:
    """A log whose timestamps are in no order."""
    bench = Bench(config, disk=CountingDisk)
    generator = random.Random(segments)
    while len(bench.log.segments) < segments:
        put(bench, generator.randrange(AGES))
    bench.log.sync.flush(force=True)
    return bench


def put(bench: Bench, age: int) -> None:
    bench.clock.now_ms += 1
    bench.append(batch([bytes(80)], timestamp=NOW_MS - age))
    bench.log.update_high_watermark(bench.log.log_end_offset)


def indexes_opened(log: Log) -> int:
    """Return how many time indexes a search opens that finds nothing."""
    CountingDisk.indexes_opened = 0
    assert run_steps(log.reader.offset_for_timestamp(NOW_MS + 1)) is None
    return CountingDisk.indexes_opened


def check(log: Log) -> None:
    """Compare searches for each time with the records."""
    records = all_records(log)
    for age in range(-1, AGES + 1):
        reaching = [each.offset for each in records if each.timestamp >= NOW_MS - age]
        found = run_steps(log.reader.offset_for_timestamp(NOW_MS - age))
        assert (found and found[1]) == (reaching[0] if reaching else None), age


def stored(bench: Bench) -> set[int]:
    """Return the base offsets whose timestamps the next start finds."""
    log = bench.kill_and_reopen()
    return {each.base_offset for each in list(log.segments)[:-1] if each.has_max_timestamp}


@pytest.mark.parametrize("end", ["reopen_cleanly", "kill_and_reopen"])
def test_a_start_after_any_end_finds_the_times_of_sealed_segments(end: str) -> None:
    bench = filled()
    log = getattr(bench, end)()
    # Those of the segments at the beginning and at the end of the log.
    assert indexes_opened(log) <= 2
    check(log)


def test_a_log_with_one_segment_has_no_file() -> None:
    bench = Bench(TINY)
    put(bench, 1)
    bench.reopen_cleanly()
    assert LARGEST_TIMESTAMPS not in bench.names()


def test_without_the_file_the_indexes_are_read_once_and_the_file_is_written() -> None:
    bench = filled()
    bench.log.close()
    bench.disk.remove(PATH)
    assert indexes_opened(bench.kill_and_reopen()) >= 25
    check(bench.log)
    assert indexes_opened(bench.kill_and_reopen()) <= 2
    check(bench.log)


def test_times_of_a_segment_that_another_broker_replaced_are_not_used() -> None:
    bench = filled()
    bench.log.close()
    replaced = bench.log.segments[10]
    bench.clock.now_ms += 1
    file = bench.disk.open(replaced.path(LOG_SUFFIX))
    content = bytearray(file.read_at(replaced.size, 0))
    # The same records, newer than all others. The checksum of batches is not examined here.
    newest = NOW_MS + 100
    content[27:43] = newest.to_bytes(8) + newest.to_bytes(8)
    file.write_at(content, 0)
    replaced.time_index.clear()
    replaced.time_index.maybe_append(newest, replaced.base_offset)
    replaced.time_index.file.write_out()
    log = bench.kill_and_reopen()
    assert run_steps(log.reader.offset_for_timestamp(newest))[1] == replaced.base_offset
    check(bench.kill_and_reopen())
    assert replaced.base_offset in stored(bench)


def test_a_missing_index_is_rebuilt_from_the_batches_and_its_time_is_stored_again() -> None:
    bench = filled()
    bench.log.close()
    segment = bench.log.segments[10]
    bench.disk.remove(segment.path(TIME_INDEX_SUFFIX))
    log = bench.kill_and_reopen()
    check(log)
    assert segment.base_offset in stored(bench)


@pytest.mark.parametrize("size", [0, 1, 43, 44, 45, 200])
def test_a_torn_file_is_used_up_to_the_tear(size: int) -> None:
    bench = filled()
    bench.log.close()
    file = bench.disk.open(PATH)
    whole = file.size()
    file.truncate(size)
    assert len(stored(bench)) == size // 44 < whole // 44
    check(bench.log)
    # What the search added is readable. It never needs to add the first segment.
    assert len(stored(bench)) >= 28


def test_no_flipped_bit_leads_to_a_wrong_result() -> None:
    bench = filled(segments=8)
    bench.log.close()
    content = bench.disk.read(PATH)
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        bench.disk.write_atomically(PATH, damaged)
        check(bench.kill_and_reopen())


def test_truncated_segments_lose_their_entries_before_the_next_append() -> None:
    bench = filled()
    target = bench.log.segments[12].base_offset
    bench.log.truncate_to(target)
    assert max(stored(bench)) < target
    while len(bench.log.segments) < 16:
        put(bench, 0)
    assert len(stored(bench)) == 15
    check(bench.log)


def test_a_log_that_starts_anew_has_no_entries() -> None:
    bench = filled()
    bench.log.truncate_fully_and_start_at(5)
    assert LARGEST_TIMESTAMPS not in bench.names()
    while len(bench.log.segments) < 4:
        put(bench, 3)
    assert len(stored(bench)) == 3
    check(bench.log)


def test_the_compacted_segment_has_an_entry_and_the_replaced_ones_have_none() -> None:
    bench = CleanerBench()
    for index in range(12):
        bench.put((b"%d" % (index % 2), bytes(50)), timestamp=NOW_MS - index % 5)
        bench.seal()
    before = stored(bench)
    bench.replicate()
    bench.clean()
    assert len(before) == 12
    bench.replicate()
    bench.log.sync.flush(force=True)
    sealed = {each.base_offset for each in list(bench.log.segments)[:-1]}
    assert stored(bench) == sealed < before
    check(bench.log)


def test_entries_of_deleted_segments_do_not_accumulate() -> None:
    bench = filled(LogConfig(segment_bytes=300, index_interval_bytes=1, retention_bytes=3000))
    for _ in range(600):
        put(bench, 1)
        bench.log.delete_old_segments(bench.clock.wall_ms())
    count = len(bench.log.segments)
    assert count < 25
    assert bench.disk.size(PATH) <= 44 * (2 * (count + 1) + 64)
    assert len(stored(bench)) == count - 1


@pytest.mark.parametrize("operation", ["open", "write", "read"])
def test_appends_and_searches_work_if_the_file_cannot_be_used(operation: str) -> None:
    bench = filled()
    bench.disk.faults.append(DiskFault(PATH, (operation,), errno.EIO))
    for age in range(5):
        put(bench, age)
    log = bench.reopen_cleanly()
    check(log)
    assert bench.failures == []
    bench.disk.faults.clear()
    check(bench.kill_and_reopen())
    assert len(stored(bench)) >= len(bench.log.segments) - 2


def test_the_stamp_of_a_file_changes_with_each_kind_of_change(tmp_path: Path) -> None:
    disk = RealDisk()
    path = str(tmp_path / "file")
    disk.write_atomically(path, b"abc")
    disk.set_modified_ms(path, 1_000_000)
    assert disk.stamp(path) == (3, 1_000_000_000_000)
    file = disk.open(path)
    file.write_at(b"x", 0)
    size, changed = disk.stamp(path)
    assert (size, changed > 1_000_000_000_000) == (3, True)
    file.append(b"y")
    file.close()
    assert disk.stamp(path)[0] == 4
