"""The contract of both disks: the machine's and the simulated one."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from barnabas.runtime.disk import Disk, FileSlice, RealDisk
from barnabas.sim.world import SimWorld


@pytest.fixture(params=["real", "sim"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return RealDisk() if request.param == "real" else SimWorld(7).host("a").disk


@pytest.fixture
def root(disk: Disk, tmp_path: Path) -> str:
    directory = f"{tmp_path}/data"
    disk.make_directory(directory)
    return directory


def test_append_writes_at_the_end_and_returns_the_count(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/f")
    assert file.append(b"abc") == 3
    assert file.append([b"d", bytearray(b"ef"), memoryview(b"ghi")]) == 6
    assert file.append([b"x"] * 3000) == 3000
    assert file.size() == 3009
    assert file.read_at(9, 0) == b"abcdefghi"
    assert disk.size(f"{root}/f") == 3009


def test_a_reopened_file_is_appended_to_at_its_end(disk: Disk, root: str) -> None:
    first = disk.open(f"{root}/f")
    first.append(b"abc")
    first.close()
    first.close()
    again = disk.open(f"{root}/f", create=False)
    again.append(b"d")
    assert again.read_at(10, 0) == b"abcd"


def test_write_at_overwrites_and_grows(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/f")
    file.append(b"abcdef")
    file.write_at(b"XY", 1)
    file.write_at(b"ZZ", 5)
    assert file.read_at(10, 0) == b"aXYdeZZ"
    assert file.append(b"!") == 1
    assert file.read_at(10, 5) == b"ZZ!"


def test_reads_end_at_the_end_of_the_file(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/f")
    file.append(b"abc")
    assert file.read_at(10, 2) == b"c"
    assert file.read_at(10, 3) == b""


def test_truncate_shortens_and_grows_with_zeros(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/f")
    file.append(b"abcdef")
    file.truncate(2)
    file.append(b"X")
    assert file.read_at(10, 0) == b"abX"
    file.truncate(5)
    assert file.read_at(10, 0) == b"abX\0\0"
    file.sync()


def test_a_slice_reads_its_part(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/f")
    file.append(b"abcdef")
    part = FileSlice(file, 2, 3)
    assert (len(part), part.read()) == (3, b"cde")


def test_an_absent_file_is_not_found(disk: Disk, root: str) -> None:
    for ask in (disk.read, disk.size, disk.remove, disk.modified_ms):
        with pytest.raises(FileNotFoundError):
            ask(f"{root}/none")
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/none", create=False)
    with pytest.raises(FileNotFoundError):
        disk.open(f"{root}/no-directory/none")
    with pytest.raises(FileNotFoundError):
        disk.list(f"{root}/none")
    assert not disk.exists(f"{root}/none")


def test_write_atomically_replaces_the_content(disk: Disk, root: str) -> None:
    disk.write_atomically(f"{root}/f", b"long content")
    disk.write_atomically(f"{root}/f", bytearray(b"new"), sync=False)
    assert disk.read(f"{root}/f") == b"new"
    assert disk.list(root) == ["f"]


def test_a_part_of_a_file_is_read(disk: Disk, root: str) -> None:
    disk.write_atomically(f"{root}/f", b"abcdef")
    assert disk.read(f"{root}/f", 2, 3) == b"cde"
    assert disk.read(f"{root}/f", 4, 10) == b"ef"
    assert disk.read(f"{root}/f", 3) == b"def"
    assert disk.read(f"{root}/f", 10, 3) == b""
    assert disk.read(f"{root}/f", 0, 0) == b""


@pytest.mark.parametrize("size", [0, 1, 99_999, 100_000, 100_001])
def test_the_beginning_of_a_file_replaces_another(disk: Disk, root: str, size: int) -> None:
    content = bytes(range(250)) * 400
    disk.write_atomically(f"{root}/from", content)
    disk.write_atomically(f"{root}/to", bytes(200_000))
    assert disk.copy_range(f"{root}/from", f"{root}/to", size) == min(size, len(content))
    assert disk.read(f"{root}/to") == content[:size]


def test_a_copy_of_an_absent_file_fails(disk: Disk, root: str) -> None:
    with pytest.raises(FileNotFoundError):
        disk.copy_range(f"{root}/none", f"{root}/to", 1)
    assert not disk.exists(f"{root}/to")


def test_names_are_sorted_and_not_recursive(disk: Disk, root: str) -> None:
    disk.make_directory(f"{root}/b/c/d")
    disk.make_directory(f"{root}/b")
    disk.open(f"{root}/a").close()
    assert disk.list(root) == ["a", "b"]
    assert disk.is_directory(f"{root}/b/c")
    assert not disk.is_directory(f"{root}/a")


def test_rename_moves_a_directory_with_its_content(disk: Disk, root: str) -> None:
    disk.make_directory(f"{root}/t-0")
    file = disk.open(f"{root}/t-0/f")
    file.append(b"x")
    disk.rename(f"{root}/t-0", f"{root}/t-0-delete")
    file.append(b"y")
    assert disk.read(f"{root}/t-0-delete/f") == b"xy"
    assert disk.list(root) == ["t-0-delete"]


def test_rename_replaces_a_file(disk: Disk, root: str) -> None:
    disk.write_atomically(f"{root}/a", b"a")
    disk.write_atomically(f"{root}/b", b"b")
    disk.rename(f"{root}/a", f"{root}/b")
    disk.sync_directory(root)
    assert disk.list(root) == ["b"]
    assert disk.read(f"{root}/b") == b"a"


def test_an_open_file_is_readable_after_its_removal(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/f")
    file.append(b"abc")
    disk.remove(f"{root}/f")
    assert file.read_at(3, 0) == b"abc"


def test_remove_tree_leaves_nothing(disk: Disk, root: str) -> None:
    disk.make_directory(f"{root}/t/u")
    disk.write_atomically(f"{root}/t/u/f", b"x")
    disk.remove_tree(f"{root}/t")
    disk.remove_tree(f"{root}/t")
    assert disk.list(root) == []


def test_a_lock_has_one_holder(disk: Disk, root: str) -> None:
    lock = disk.lock(f"{root}/.lock")
    assert lock is not None
    assert disk.lock(f"{root}/.lock") is None
    lock.release()
    again = disk.lock(f"{root}/.lock")
    assert again is not None
    again.release()


def test_the_time_of_change_can_be_set(disk: Disk, root: str) -> None:
    disk.write_atomically(f"{root}/f", b"x")
    disk.set_modified_ms(f"{root}/f", 1_234_567_890_123)
    assert disk.modified_ms(f"{root}/f") == 1_234_567_890_123


def test_a_closed_file_fails(disk: Disk, root: str) -> None:
    file = disk.open(f"{root}/f")
    file.close()
    with pytest.raises(OSError, match=r".") as caught:
        file.append(b"x")
    assert caught.value.errno == errno.EBADF


def test_a_file_system_holds_and_syncs_its_directories(disk: Disk, root: str) -> None:
    system = disk.open_file_system(root)
    if system is None:
        # Overlays and memory file systems do not report all failed writes.
        assert isinstance(disk, RealDisk)
        return
    disk.make_directory(f"{root}/below")
    disk.open(f"{root}/below/f").append(b"abc")
    assert system.holds(f"{root}/below")
    system.sync()
    if isinstance(disk, RealDisk):
        assert not system.holds("/proc")
    else:
        disk.crash()  # type: ignore[attr-defined]  # the simulated disk
        assert disk.read(f"{root}/below/f") == b"abc"
    system.close()
    system.close()
