"""Run `barnabas` with system calls on files that fail, and with another wall clock, while a test
says so.

    python tests/chaos/failing_node.py CONTROL start server.properties ...

CONTROL is a JSON file of a `Doors`. A test writes and removes it at any time; every call looks
whether it has changed. Without the file nothing differs from `barnabas`. The names of the calls
that failed go to CONTROL with the suffix `.failed`.

The broker reaches files only through `runtime/disk.py`, and the time only through
`runtime/clock.py`. So it is enough to replace the modules `os` and `time` there, and production
code needs no door for it. A library that is preloaded (LD_PRELOAD) would need a C compiler, and a
file system of its own the right to mount.
"""

from __future__ import annotations

import errno
import json
import os
import random
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CALLS = {
    "open": ("open",),
    "read": ("pread",),
    "write": ("write", "pwrite", "pwritev"),
    "sync": ("fsync", "fdatasync"),
    "rename": ("replace",),
}


@dataclass(frozen=True)
class Doors:
    """What differs from a healthy machine."""

    # Which calls fail, by the keys of `CALLS`.
    calls: tuple[str, ...] = ()
    # The name of the error, such as ENOSPC.
    error: str = "EIO"
    # The share of these calls that fail, from 0 to 1.
    share: float = 1.0
    # A regular expression that the path of the file must contain.
    paths: str = ""
    seed: int = 0
    # Milliseconds by which the wall clock is ahead of the machine's.
    clock_ahead_ms: int = 0


class DoorKeeper:
    """Reads the control file whenever it changed, and decides which calls fail."""

    def __init__(self, control: str) -> None:
        self._control = control
        self._failed = control + ".failed"
        self._changed_ns = 0
        self._doors = Doors()
        self._random = random.Random(0)

    @property
    def doors(self) -> Doors:
        """Return the current content of the control file."""
        try:
            changed_ns = os.stat(self._control).st_mtime_ns
        except OSError:
            changed_ns = 0
        if changed_ns != self._changed_ns:
            self._changed_ns = changed_ns
            self._doors = (
                Doors(**json.loads(Path(self._control).read_text())) if changed_ns else Doors()
            )
            self._random = random.Random(self._doors.seed)
        return self._doors

    def fails(self, kind: str, path: str | int) -> int:
        """Return the error number with which this call fails; 0 if it does not."""
        doors = self.doors
        if kind not in doors.calls:
            return 0
        name = _path_of(path)
        if not re.search(doors.paths, name) or self._random.random() >= doors.share:
            return 0
        with open(self._failed, "a") as file:
            file.write(f"{kind} {doors.error} {name}\n")
        return int(getattr(errno, doors.error))

    def writes_a_part(self) -> bool:
        """Return whether a write that fails takes half of the bytes before."""
        return self._random.random() < 0.5


class FailingCalls:
    """The module `os`, with some failing calls."""

    def __init__(self, keeper: DoorKeeper) -> None:
        self._keeper = keeper
        for kind, names in CALLS.items():
            for name in names:
                if kind != "write":
                    setattr(self, name, self._guarded(kind, getattr(os, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        """Write, or fail, or write half; the next call may fail then."""
        return os.write(descriptor, self._cut(descriptor, data))

    def pwrite(self, descriptor: int, data: bytes | memoryview, position: int) -> int:
        """Write at a position, like `write`."""
        return os.pwrite(descriptor, self._cut(descriptor, data), position)

    def pwritev(self, descriptor: int, buffers: Sequence[bytes], position: int) -> int:
        """Write several buffers, like `write`."""
        data = b"".join(buffers)
        return os.pwrite(descriptor, self._cut(descriptor, data), position)

    def _cut(self, descriptor: int, data: bytes | memoryview) -> memoryview:
        """Return the part of the data to write."""
        number = self._keeper.fails("write", descriptor)
        view = memoryview(data)
        if not number:
            return view
        if len(view) > 1 and self._keeper.writes_a_part():
            return view[: len(view) // 2]
        raise OSError(number, os.strerror(number))

    def _guarded(self, kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(path: str | int, *arguments: Any) -> Any:
            number = self._keeper.fails(kind, path)
            if number:
                raise OSError(number, os.strerror(number), path if isinstance(path, str) else None)
            return call(path, *arguments)

        return guarded


class ShiftedTime:
    """The module `time`, whose wall clock is ahead."""

    def __init__(self, keeper: DoorKeeper) -> None:
        self._keeper = keeper

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def time_ns(self) -> int:
        """Nanoseconds since 1970-01-01 UTC, and what the control file adds."""
        return time.time_ns() + self._keeper.doors.clock_ahead_ms * 1_000_000


def _path_of(path: str | int) -> str:
    if isinstance(path, str):
        return path
    try:
        return os.readlink(f"/proc/self/fd/{path}")
    except OSError:
        return ""


def main() -> None:
    """Install the replacements, and run `barnabas` with the remaining arguments."""
    # The directory of this file would hide installed modules of the same names.
    sys.path.pop(0)
    from barnabas.cli.main import main as barnabas
    from barnabas.runtime import clock, disk

    keeper = DoorKeeper(sys.argv[1])
    calls = FailingCalls(keeper)
    for module, name, replacement in (
        (disk, "os", calls),
        (disk, "open", calls._guarded("open", open)),
        (clock, "time", ShiftedTime(keeper)),
    ):
        setattr(module, name, replacement)
    barnabas(sys.argv[2:])


if __name__ == "__main__":
    main()
