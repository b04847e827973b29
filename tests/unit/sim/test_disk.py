"""Faults of the simulated disk: lost and torn writes, full disk, errors."""

from __future__ import annotations

import errno
from itertools import pairwise

import pytest
from hypothesis import example, given, settings, strategies as st

from barnabas.runtime.disk import Disk, File
from barnabas.sim.disk import DiskFault, SimDisk
from barnabas.sim.world import SimWorld


def disk_with_file(seed: int) -> tuple[SimDisk, File]:
    disk = SimWorld(seed).host("a").disk
    disk.make_directory("/d")
    disk.sync_directory("/")
    file = disk.open("/d/f")
    disk.sync_directory("/d")
    return disk, file


def test_the_simulated_disk_implements_the_disk_interface() -> None:
    disk: Disk = disk_with_file(1)[0]
    assert disk.exists("/d/f")


@settings(max_examples=100)
@given(
    st.integers(0, 1_000_000),
    st.lists(st.tuples(st.sampled_from("awt"), st.integers(0, 40)), max_size=12),
)
@example(0, [("t", 0), ("a", 0)])
def test_a_crash_keeps_synced_data_and_a_prefix_of_the_rest(
    seed: int, operations: list[tuple[str, int]]
) -> None:
    disk, file = disk_with_file(seed)
    file.append(b"0123456789")
    file.sync()
    states = [file.read_at(1000, 0)]
    for number, (kind, where) in enumerate(operations):
        data = bytes([97 + number]) * 7
        if kind == "a":
            file.append(data)
        elif kind == "w":
            file.write_at(data, min(where, file.size()))
        else:
            file.truncate(min(where, file.size()))
        states.append(file.read_at(1000, 0))
    disk.crash()
    after = disk.read("/d/f")
    whole = after in states
    # Below, the file always had bytes; above, it grew, if only after a cut.
    grown_from = min(map(len, states))
    torn = any(
        len(after) <= max(len(old), len(new))
        # Zeros where the length was written before the data, never where the file did not grow.
        and all(
            byte in (old[i : i + 1] + new[i : i + 1] + (b"\0" if i >= grown_from else b""))
            for i, byte in enumerate(after)
        )
        for old, new in pairwise(states)
    )
    assert whole or torn


def test_some_seeds_keep_all_unsynced_data_and_others_none() -> None:
    outcomes = set()
    for seed in range(60):
        disk, file = disk_with_file(seed)
        file.append(b"x" * 10)
        disk.crash()
        outcomes.add(len(disk.read("/d/f")))
    assert {0, 10} < outcomes


def test_unsynced_names_may_be_lost() -> None:
    seen = set()
    for seed in range(30):
        disk, _ = disk_with_file(seed)
        disk.open("/d/new").sync()
        disk.crash()
        seen.add(disk.exists("/d/new"))
    assert seen == {True, False}


@pytest.mark.parametrize("is_moved", [True, False])
def test_a_directory_is_independent_of_an_unsynced_one_of_the_same_name(
    is_moved: bool,
) -> None:
    for seed in range(30):
        disk, _ = disk_with_file(seed)
        disk.make_directory("/d/x")
        disk.open("/d/x/f")
        if is_moved:
            disk.rename("/d/x", "/d/old")
        else:
            disk.remove_tree("/d/x")
        disk.sync_directory("/d")
        disk.make_directory("/d/y")
        file = disk.open("/d/y/f")
        file.append(b"kept")
        file.sync()
        disk.sync_directory("/d/y")
        disk.rename("/d/y", "/d/x")
        disk.sync_directory("/d")
        disk.crash()
        assert disk.read("/d/x/f") == b"kept"


def test_unsynced_files_of_a_renamed_directory_are_lost_under_the_new_name() -> None:
    seen = set()
    for seed in range(30):
        disk, _ = disk_with_file(seed)
        disk.make_directory("/d/x")
        disk.open("/d/x/f")
        disk.rename("/d/x", "/d/y")
        disk.sync_directory("/d")
        disk.crash()
        seen.add(disk.exists("/d/y/f"))
    assert seen == {True, False}


def test_a_synced_atomic_write_survives() -> None:
    for seed in range(30):
        disk, _ = disk_with_file(seed)
        disk.write_atomically("/d/c", b"old")
        disk.write_atomically("/d/c", b"new")
        disk.crash()
        assert disk.read("/d/c") == b"new"


def test_an_interrupted_atomic_write_leaves_the_old_or_the_new() -> None:
    seen = set()
    for seed in range(60):
        disk, _ = disk_with_file(seed)
        disk.write_atomically("/d/c", b"old")
        temporary = disk.open("/d/c.tmp")
        temporary.append(b"newer")
        temporary.sync()
        disk.rename("/d/c.tmp", "/d/c")
        disk.crash()
        seen.add(disk.read("/d/c"))
    assert seen == {b"old", b"newer"}


def test_a_dead_process_loses_handles_and_locks_but_no_data() -> None:
    disk, file = disk_with_file(1)
    assert disk.lock("/d/.lock")
    file.append(b"abc")
    disk.kill()
    with pytest.raises(OSError, match="closed"):
        file.append(b"d")
    assert disk.read("/d/f") == b"abc"
    assert disk.lock("/d/.lock")


def test_a_full_disk_writes_a_part_and_returns_the_count() -> None:
    disk, file = disk_with_file(1)
    disk.capacity_bytes = 10
    file.append(b"12345678")
    with pytest.raises(OSError, match="space") as caught:
        file.append(b"abcdef")
    assert caught.value.errno == errno.ENOSPC
    assert disk.read("/d/f") == b"12345678ab"


def test_a_fault_affects_only_its_path_and_operation() -> None:
    disk, file = disk_with_file(1)
    disk.faults.append(DiskFault("/d/f", ("sync",)))
    file.append(b"x")
    with pytest.raises(OSError, match="fault") as caught:
        file.sync()
    assert caught.value.errno == errno.EIO
    disk.open("/d/g").sync()
    disk.faults.clear()
    file.sync()


def test_a_flipped_bit_changes_one_byte() -> None:
    disk, file = disk_with_file(1)
    file.append(bytes(100))
    position = disk.flip_bit("/d/f")
    assert [i for i, byte in enumerate(disk.read("/d/f")) if byte] == [position]
