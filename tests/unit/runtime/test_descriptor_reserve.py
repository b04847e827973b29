"""The reserve of descriptors: short operations on files work while the process has no free one."""

from __future__ import annotations

import errno
import gc
import os
import resource
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from barnabas.runtime.disk import RealDisk, is_out_of_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RESERVE = 16


@pytest.fixture(autouse=True)
def no_garbage() -> None:
    """Close files of earlier tests, whose release would change the lowest free number."""
    gc.collect()


@contextmanager
def no_free_descriptor() -> Iterator[None]:
    """Exhaust the descriptors of this process during the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    # Numbers above the limit stay open, and those below it are taken.
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 1, hard))
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        full = error
    try:
        assert full.errno == errno.EMFILE, full
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in held:
            os.close(descriptor)


OPERATIONS: dict[str, Callable[[RealDisk, str], object]] = {
    "open briefly": lambda disk, at: disk.open(f"{at}/file", briefly=True).close(),
    "read": lambda disk, at: disk.read(f"{at}/file"),
    "write": lambda disk, at: disk.write_atomically(f"{at}/other", b"2"),
    "list": lambda disk, at: disk.list(at),
    "sync names": lambda disk, at: disk.sync_directory(at),
    "remove": lambda disk, at: disk.remove_tree(f"{at}/tree"),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_short_operation_uses_the_reserve_again_and_again(tmp_path: Path, name: str) -> None:
    at, work = str(tmp_path), OPERATIONS[name]
    (tmp_path / "file").write_bytes(b"1")
    without, disk = RealDisk(), RealDisk(RESERVE)
    for _ in range(RESERVE):
        (tmp_path / "tree" / "below").mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / "below" / "file").write_bytes(b"1")
        with no_free_descriptor():
            if name != "remove":
                with pytest.raises(OSError, match="Too many open files"):
                    work(without, at)
            work(disk, at)


def test_a_file_that_stays_open_does_not_take_the_reserve(tmp_path: Path) -> None:
    disk = RealDisk(RESERVE)
    with no_free_descriptor():
        with pytest.raises(OSError, match="Too many open files") as raised:
            disk.open(str(tmp_path / "file"))
        assert is_out_of_descriptors(raised.value)
    disk.open(str(tmp_path / "file")).close()
