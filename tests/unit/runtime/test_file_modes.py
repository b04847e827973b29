"""Files and directories of a broker are for its user only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.runtime.disk import RealDisk


@pytest.fixture
def disk() -> Iterator[RealDisk]:
    before = os.umask(0)
    made = RealDisk()
    yield made
    made.close()
    os.umask(before)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_new_files_are_for_their_owner_only(disk: RealDisk, tmp_path: Path) -> None:
    disk.open(f"{tmp_path}/opened").close()
    disk.write_atomically(f"{tmp_path}/written", b"x")
    lock = disk.lock(f"{tmp_path}/lock")
    assert lock is not None
    lock.release()
    assert [mode(tmp_path / name) for name in ("opened", "written", "lock")] == [0o600] * 3


def test_new_directories_are_for_their_owner_only(disk: RealDisk, tmp_path: Path) -> None:
    disk.make_directory(f"{tmp_path}/a/b/c/")
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o700] * 3


def test_an_existing_directory_keeps_its_mode(disk: RealDisk, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o750)
    disk.make_directory(f"{tmp_path}/shared")
    disk.make_directory(f"{tmp_path}/shared/inside")
    assert mode(tmp_path / "shared") == 0o750
    assert mode(tmp_path / "shared" / "inside") == 0o700


def test_a_file_in_place_of_a_directory_is_an_error(disk: RealDisk, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError):
        disk.make_directory(f"{tmp_path}/file")
    with pytest.raises(NotADirectoryError):
        disk.make_directory(f"{tmp_path}/file/below")
