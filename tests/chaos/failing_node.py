"""Runs `barnabas` with injected faults: failing calls on files or on the remote store, failing
timers, a shifted clock.

    python tests/chaos/failing_node.py CONTROL start server.properties ...

CONTROL is a JSON file with the fields of `InjectedFaults`. A test writes and removes it at any
time, and every call checks whether it has changed. Without the file there are no faults. The names
of failed calls are appended to CONTROL with the suffix `.failed`.

The broker reaches files only through `runtime/disk.py`, and the time only through
`runtime/clock.py`. It is therefore enough to replace the modules `os` and `time`
there. A preloaded library (LD_PRELOAD) would need a C compiler, and a separate file system the
right to mount. Timers of coordinators are created by `ShardTimers.schedule` alone, which gets
operations that may raise. The calls on the objects of a remote store can also be slow, or end
the process. The memory for conversions is small at all times.
"""

from __future__ import annotations

import errno
import json
import os
import random
import re
import signal
import sys
import time
from collections.abc import Callable, Hashable, Sequence
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
# The kind of the timers of coordinators, whose "path" is the timer's key.
TIMER = "timer"
# The calls on the objects of a remote store are kinds too: this prefix and the name of the method.
STORE = "store."
STORE_CALLS = tuple(f"{STORE}{name}" for name in ("put_file", "put", "get", "size", "delete"))
# Memory for conversions. One large record may need all of it, and small ones share it.
CONVERSION_BYTES = 8 << 20


class InjectedTimerError(Exception):
    """The failure of a timer. A log may contain it."""


@dataclass(frozen=True)
class InjectedFaults:
    """The faults to inject."""

    # Kinds of calls that fail: keys of `CALLS`, `TIMER`, and `STORE_CALLS`.
    calls: tuple[str, ...] = ()
    # The name of the error, such as ENOSPC.
    error: str = "EIO"
    # Probability that such a call fails, from 0 to 1.
    share: float = 1.0
    # A regular expression that the path of the file must contain.
    paths: str = ""
    seed: int = 0
    # Milliseconds by which the wall clock is ahead of the machine's.
    clock_ahead_ms: int = 0
    # Milliseconds by which calls of the remote store are late; then they do not fail.
    delay_ms: int = 0
    # "before" or "after" the first call of the remote store, the process ends instead.
    kills: str = ""


class FaultControl:
    """Reads the control file after each change, and decides which calls fail."""

    def __init__(self, control: str) -> None:
        self._control = control
        self._failed = control + ".failed"
        self._changed_ns = 0
        self._faults = InjectedFaults()
        self._random = random.Random(0)

    @property
    def faults(self) -> InjectedFaults:
        """Return the current content of the control file."""
        try:
            changed_ns = os.stat(self._control).st_mtime_ns
        except OSError:
            changed_ns = 0
        if changed_ns != self._changed_ns:
            self._changed_ns = changed_ns
            self._faults = (
                InjectedFaults(**json.loads(Path(self._control).read_text()))
                if changed_ns
                else InjectedFaults()
            )
            self._random = random.Random(self._faults.seed)
        return self._faults

    def fails(self, kind: str, path: str | int) -> int:
        """Return the error number with which this call fails; 0 if it does not."""
        faults = self.faults
        if kind not in faults.calls:
            return 0
        name = _path_of(path)
        if not re.search(faults.paths, name) or self._random.random() >= faults.share:
            return 0
        with open(self._failed, "a") as file:
            file.write(f"{kind} {faults.error} {name}\n")
        return int(getattr(errno, faults.error))

    def writes_a_part(self) -> bool:
        """Return whether a failing write writes half of the bytes first."""
        return self._random.random() < 0.5


class FailingCalls:
    """The module `os`, with some failing calls."""

    def __init__(self, fault_control: FaultControl) -> None:
        self._control = fault_control
        for kind, names in CALLS.items():
            for name in names:
                if kind != "write":
                    setattr(self, name, self._guarded(kind, getattr(os, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        """Write all data, fail, or write half of it so that the next call may fail."""
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
        number = self._control.fails("write", descriptor)
        view = memoryview(data)
        if not number:
            return view
        if len(view) > 1 and self._control.writes_a_part():
            return view[: len(view) // 2]
        raise OSError(number, os.strerror(number))

    def _guarded(self, kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(path: str | int, *arguments: Any) -> Any:
            number = self._control.fails(kind, path)
            if number:
                raise OSError(number, os.strerror(number), path if isinstance(path, str) else None)
            return call(path, *arguments)

        return guarded


class ShiftedTime:
    """The module `time` with a shifted wall clock."""

    def __init__(self, fault_control: FaultControl) -> None:
        self._control = fault_control

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def time_ns(self) -> int:
        """Return nanoseconds since 1970-01-01 UTC, plus the configured shift."""
        return time.time_ns() + self._control.faults.clock_ahead_ms * 1_000_000


def _path_of(path: str | int) -> str:
    if isinstance(path, str):
        return path
    try:
        return os.readlink(f"/proc/self/fd/{path}")
    except OSError:
        return ""


def failing_operation(
    fault_control: FaultControl, key: Hashable, operation: Callable[[], Any]
) -> Callable[[], Any]:
    """Return the operation of a timer, which raises while the control file says so."""

    def run() -> Any:
        if fault_control.fails(TIMER, str(key)):
            raise InjectedTimerError(key)
        return operation()

    return run


def fail_timers(fault_control: FaultControl) -> None:
    """Let all timers of coordinators have failing operations."""
    from barnabas.coordinator.runtime.shard import ShardTimers

    schedule = ShardTimers.schedule

    def schedule_failing(
        timers: ShardTimers, key: Hashable, delay_ms: float, operation: Callable[[], Any]
    ) -> None:
        schedule(timers, key, delay_ms, failing_operation(fault_control, key, operation))

    setattr(ShardTimers, ShardTimers.schedule.__name__, schedule_failing)


def fail_store(fault_control: FaultControl) -> None:
    """Let the calls on the objects of a remote store fail."""
    from barnabas.storage.remote.bucket_objects import BucketObjects
    from barnabas.storage.remote.directory_storage import DirectoryObjects

    for objects in (DirectoryObjects, BucketObjects):
        for kind in STORE_CALLS:
            name = kind.removeprefix(STORE)
            call = getattr(objects, name)
            setattr(objects, name, _failing_store_call(fault_control, kind, call))


def _failing_store_call(
    fault_control: FaultControl, kind: str, call: Callable[..., Any]
) -> Callable[..., Any]:
    from barnabas.storage.remote.directory_storage import _error_of

    def run(store: Any, name: str | Sequence[str], *arguments: Any) -> Any:
        path = store.place(name if isinstance(name, str) else name[0])
        number = fault_control.fails(kind, path)
        faults = fault_control.faults
        if not number:
            return call(store, name, *arguments)
        if faults.kills:
            if faults.kills == "after":
                call(store, name, *arguments)
            os.kill(os.getpid(), signal.SIGKILL)
        if not faults.delay_ms:
            raise _error_of(OSError(number, os.strerror(number), path), path)
        time.sleep(faults.delay_ms / 1000)
        return call(store, name, *arguments)

    return run


def limit_conversions() -> None:
    """Give the node little memory for conversions, so that they wait for one another."""
    from barnabas.server.conversion.conversion_queue import ConversionQueue

    ConversionQueue.__init__.__defaults__ = (CONVERSION_BYTES,)


def main() -> None:
    """Install the replacements, and run `barnabas` with the remaining arguments."""
    # The directory of this file would hide installed modules of the same names.
    sys.path.pop(0)
    from barnabas.cli.main import main as barnabas
    from barnabas.runtime import clock, disk

    fault_control = FaultControl(sys.argv[1])
    calls = FailingCalls(fault_control)
    for module, name, replacement in (
        (disk, "os", calls),
        (disk, "open", calls._guarded("open", open)),
        (clock, "time", ShiftedTime(fault_control)),
    ):
        setattr(module, name, replacement)
    fail_timers(fault_control)
    fail_store(fault_control)
    limit_conversions()
    barnabas(sys.argv[2:])


if __name__ == "__main__":
    main()
