"""A long computation over files, and the main function of the child process that runs it.

The child receives pickled tasks and returns their messages. It runs at low priority, ends with its
parent, and handles one task at a time. In both directions a frame is a length of four bytes and a
pickle. Parent and child are the same program, and no other process can write to the pipe.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import sys
import time
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from barnabas.runtime.clock import SystemClock
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.system_calls import request_parent_death_signal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.runtime.clock import Clock
    from barnabas.runtime.disk import Disk

# A generator over a disk; see `runtime.offload` for what it yields.
Work: TypeAlias = "Callable[[Disk, Any], Iterator[object]]"

LENGTH = struct.Struct(">I")
# Kinds of frames from the child: a message of the task, its end, or the error that ended it.
MESSAGE, DONE, FAILED = "message", "done", "failed"

_MS_PER_S = 1000.0
NO_LIMIT = float("inf")
# Shorter pauses are added to the next pause.
_PAUSE_MS_MIN = 1.0
_NICENESS = 10
_INPUT, _OUTPUT, _ERRORS = 0, 1, 2


class OffloadTask(msgspec.Struct, frozen=True):
    """A module-level function and its argument. Both, and all messages, can be pickled."""

    work: Work
    argument: object
    # Average rate limit of reads and writes together.
    bytes_per_second: float = NO_LIMIT


class Throttle:
    """Computes pauses that keep the number of bytes below a rate."""

    def __init__(self, clock: Clock, bytes_per_second: float) -> None:
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._bytes = 0
        self._start_ms = clock.monotonic_ms()

    def pause_ms(self, count: int) -> float:
        """Return how long to pause after `count` more bytes, ms."""
        if self._bytes_per_second == NO_LIMIT:
            return 0.0
        self._bytes += count
        due_ms = self._bytes / self._bytes_per_second * _MS_PER_S
        pause_ms = due_ms - (self._clock.monotonic_ms() - self._start_ms)
        return pause_ms if pause_ms >= _PAUSE_MS_MIN else 0.0


def encode_frame(value: object) -> bytes:
    """Return the frame that carries `value`."""
    return with_length(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


def with_length(content: bytes) -> bytes:
    """Return bytes with their length before them."""
    return LENGTH.pack(len(content)) + content


def main(parent: int) -> None:
    """Serve the process `parent` until it closes the pipe or dies."""
    end_with_parent(parent)
    os.nice(_NICENESS)
    # Redirect stdout to stderr, so that printed text does not mix with the frames.
    output = os.dup(_OUTPUT)
    os.dup2(_ERRORS, _OUTPUT)
    while True:
        task = _read_task()
        if task is None:
            return
        _run(task, output, parent)


def end_with_parent(parent: int) -> None:
    """Make this process end when its parent dies, because two processes must not write one log."""
    request_parent_death_signal(signal.SIGKILL)
    _check_parent(parent)


def _check_parent(parent: int) -> None:
    if os.getppid() != parent:
        os._exit(1)


def _run(task: OffloadTask, output: int, parent: int) -> None:
    throttle = Throttle(SystemClock(), task.bytes_per_second)
    try:
        for message in task.work(RealDisk(), task.argument):
            _check_parent(parent)
            if isinstance(message, int):
                pause_ms = throttle.pause_ms(message)
                if pause_ms > 0:
                    time.sleep(pause_ms / _MS_PER_S)
            else:
                _send(output, (MESSAGE, message))
    except Exception as error:  # noqa: BLE001 - sent to the parent
        _send(output, (FAILED, _portable(error)))
    else:
        _send(output, (DONE, None))


def _portable(error: Exception) -> Exception:
    """Return the error, or a RuntimeError with its text if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - the bytes come from this process
    except Exception:  # noqa: BLE001 - a pickle may raise any exception
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _send(output: int, value: object) -> None:
    rest = memoryview(encode_frame(value))
    try:
        while rest:
            rest = rest[os.write(output, rest) :]
    except BrokenPipeError:
        sys.exit(0)


def _read_task() -> OffloadTask | None:
    """Return the next task; None at the end of the input."""
    head = _read_exactly(LENGTH.size)
    if head is None:
        return None
    content = _read_exactly(*LENGTH.unpack(head))
    if content is None:
        return None
    task: OffloadTask = pickle.loads(content)  # noqa: S301 - the bytes come from the parent process
    return task


def _read_exactly(size: int) -> bytes | None:
    content = bytearray()
    while len(content) < size:
        part = os.read(_INPUT, size - len(content))
        if not part:
            return None
        content += part
    return bytes(content)
