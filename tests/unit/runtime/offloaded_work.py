"""Tasks for tests of the offload interface; a child process imports them by name."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.runtime.disk import Disk


def copy(disk: Disk, argument: tuple[str, str]) -> Iterator[object]:
    """Copy a file, and yield its content."""
    source, target = argument
    content = disk.read(source)
    yield len(content)
    disk.write_atomically(target, content)
    yield len(content)
    yield content


def large(_: Disk, size: int) -> Iterator[object]:
    """Yield two large messages."""
    yield bytes(size)
    yield bytes(size)


def failing(_: Disk, error: Exception) -> Iterator[object]:
    yield "begun"
    raise error


def endless(disk: Disk, path: str) -> Iterator[object]:
    """Write increasing numbers to a file."""
    file = disk.open(path)
    while True:
        file.append(b".")
        time.sleep(0.001)
        yield 1


def counted(_: Disk, count: int) -> Iterator[object]:
    """Yield many slices of a thousand bytes."""
    for _ in range(count):
        yield 1000


def dying(_: Disk, __: object) -> Iterator[object]:
    yield "begun"
    os.kill(os.getpid(), signal.SIGKILL)
    yield "not reached"


class Unpicklable(Exception):
    """An error that cannot be pickled."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


def oddly_failing(_: Disk, __: object) -> Iterator[object]:
    yield "begun"
    raise Unpicklable("odd", "failure")
