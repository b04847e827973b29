"""A compaction that a crash interrupts at any step leaves the old or the new content of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.sim.disk import SimDisk
from barnabas.storage.topic_partition import CLEANED_FILE_SUFFIX, SWAP_FILE_SUFFIX
from unit.storage.cleaner_fixtures import COMPACTED, CleanerBench
from unit.storage.storage_fixtures import DIRECTORY, PARTITION, all_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.disk import File

OPERATIONS = ("open", "remove", "rename", "write_atomically", "sync_directory", "set_modified_ms")


class ProcessDeath(BaseException):
    """The death of the process; no code can handle it."""


class CountingDisk:
    """Counts changes of the disk, and raises ProcessDeath at a given count."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk
        self.count = 0
        self.deadly: int | None = None

    def __getattr__(self, name: str) -> object:
        found = getattr(self._disk, name)
        if name not in OPERATIONS:
            return found

        def counted(*arguments: object, **options: object) -> object:
            self.note()
            made = found(*arguments, **options)
            return CountingFile(self, made) if name == "open" else made

        return counted

    def note(self) -> None:
        if self.deadly is not None and self.count >= self.deadly:
            raise ProcessDeath
        self.count += 1


class CountingFile:
    """A file whose writes are counted."""

    def __init__(self, disk: CountingDisk, file: File) -> None:
        self._disk = disk
        self._file = file

    def __getattr__(self, name: str) -> Callable[..., object]:
        if name in ("append", "write_at", "truncate", "sync"):
            self._disk.note()
        found: Callable[..., object] = getattr(self._file, name)
        return found


class MortalBench(CleanerBench):
    """A bench whose process can die in any operation of the disk."""

    def __init__(self, seed: int = 1) -> None:
        self.counting: CountingDisk | None = None
        super().__init__(COMPACTED, seed=seed)
        from msgspec.structs import replace

        self.counting = CountingDisk(self.disk)
        self.log_dependencies = replace(self.log_dependencies, disk=self.counting)
        self.open()


def filled(seed: int = 1) -> MortalBench:
    """Three segments that become one, with transactions' leftovers and duplicates of keys."""
    bench = MortalBench(seed)
    for segment in range(3):
        for index in range(4):
            bench.put((b"k%d" % index, b"%d" % segment), (b"s%d" % segment, b"%d" % index))
        bench.log.roll()
    bench.put((b"k0", b"active"))
    bench.seal()
    return bench


def contents(bench: MortalBench) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in all_records(bench.log)]


def clean_and_delete(bench: MortalBench) -> None:
    bench.clean()
    bench.due.run_for(COMPACTED.file_delete_delay_ms)


def steps_of_a_cleaning() -> tuple[int, int]:
    bench = filled()
    assert bench.counting is not None
    before = bench.counting.count
    clean_and_delete(bench)
    return before, bench.counting.count


FIRST, LAST = steps_of_a_cleaning()


def die_at(step: int, seed: int = 1) -> tuple[MortalBench, list[object], list[object]]:
    """Die within a cleaning; returns the bench, and what the log held before and would after."""
    reference = filled(seed)
    before = contents(reference)
    reference.clean()
    after = contents(reference)
    assert before != after
    bench = filled(seed)
    assert bench.counting is not None
    bench.counting.deadly = step
    with pytest.raises(ProcessDeath):
        clean_and_delete(bench)
    bench.counting.deadly = None
    return bench, before, after


@pytest.mark.parametrize("step", range(FIRST, LAST))
def test_a_kill_leaves_the_old_or_the_new_content(step: int) -> None:
    bench, before, after = die_at(step)
    point = bench.log.recovery_point
    for recovery_point, clean in ((point, False), (0, False), (point, True)):
        copy = bench
        copy.kill_and_reopen(recovery_point=recovery_point, clean_shutdown=clean)
        assert contents(copy) in (before, after)
        assert copy.suffixes() == []
        assert copy.log.log_end_offset == before[-1][0] + 1
    bench.replicate()
    bench.clean()
    assert contents(bench) == after


@pytest.mark.parametrize("step", range(FIRST, LAST))
def test_a_loss_of_power_leaves_the_old_or_the_new_content(step: int) -> None:
    for seed in (1, 2, 3):
        bench, before, after = die_at(step, seed)
        bench.disk.sync_directory("/data")
        point = bench.log.recovery_point
        bench.disk.crash()
        bench.open(recovery_point=point)
        assert contents(bench) in (before, after)
        assert bench.log.log_end_offset == before[-1][0] + 1


@pytest.mark.parametrize("step", range(FIRST, LAST, 3))
def test_a_second_kill_during_the_completion_of_the_swap_loses_no_record(step: int) -> None:
    for second in range(1, 12):
        bench, before, after = die_at(step)
        assert bench.counting is not None
        bench.disk.kill()
        bench.counting.deadly = bench.counting.count + second
        try:
            bench.open(recovery_point=bench.log.recovery_point)
        except ProcessDeath:
            bench.counting.deadly = None
            bench.kill_and_reopen()
        bench.counting.deadly = None
        assert contents(bench) in (before, after)


def test_a_swap_with_an_incomplete_renaming_is_discarded() -> None:
    bench = filled()
    before = contents(bench)
    bench.cleaner.start()
    while f"{0:020d}.timeindex{CLEANED_FILE_SUFFIX}" not in bench.names():
        assert bench.due.step()
    path = f"{DIRECTORY}/{0:020d}.log"
    bench.disk.rename(path + CLEANED_FILE_SUFFIX, path + SWAP_FILE_SUFFIX)
    bench.kill_and_reopen()
    assert contents(bench) == before
    assert bench.suffixes() == []


# -- between the steps of a swap, which are turns of the loop -------------------------------------


def swapping() -> tuple[MortalBench, list[object]]:
    """Half of the old segments have other names; also the expected records of the log."""
    reference = filled()
    reference.clean()
    bench = filled()
    bench.cleaner.start()
    while not bench.log.is_swapping:
        assert bench.due.step()
    return bench, contents(reference)


def test_the_log_is_read_while_files_are_renamed() -> None:
    bench, after = swapping()
    bench.log.release_idle()
    bench.log.release_idle()
    assert contents(bench) == after


def test_a_truncation_waits_for_the_renaming() -> None:
    bench, after = swapping()
    bench.cleaner.before_truncation(PARTITION, 20)
    bench.log.truncate_to(20)
    assert not bench.log.is_swapping
    assert contents(bench) == [each for each in after if each[0] < 20]
    bench.kill_and_reopen()
    assert contents(bench) == [each for each in after if each[0] < 20]


def test_a_stop_waits_for_the_renaming() -> None:
    bench, after = swapping()
    bench.cleaner.stop()
    bench.reopen_cleanly()
    assert bench.suffixes() == []
    assert contents(bench) == after


def test_a_log_that_is_being_renamed_can_be_deleted() -> None:
    bench, _ = swapping()
    bench.cleaner.stop()
    bench.log.rename_to_delete()
    bench.log.close_files()
    bench.disk.remove_tree(bench.log.directory)
    bench.due.run_for(COMPACTED.file_delete_delay_ms)
    assert bench.failures == []
    assert not [name for name in bench.disk.list("/data") if name.startswith("topic")]
