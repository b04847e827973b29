"""Long computations over files, which must block neither the loop nor the GIL.

A task is a generator over a disk. It yields the number of bytes that it has read and written since
the last number, so that its runner can slice and throttle it. It also yields its messages.
`ChildOffload` runs it in a child process, because a busy thread would delay the loop by
milliseconds. `SlicedOffload` runs it on the loop, one slice per turn, in simulations and tests.
"""

from __future__ import annotations

import os
import pickle
import subprocess
from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Protocol

from barnabas.runtime.child_process import reap, start_python
from barnabas.runtime.offload_task import DONE, LENGTH, MESSAGE, Throttle, encode_frame

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from barnabas.runtime.clock import Cancellable, Clock, Timer
    from barnabas.runtime.disk import Disk
    from barnabas.runtime.offload_task import OffloadTask

# How long an idle child is kept.
IDLE_S = 30.0
_READ_BYTES = 1 << 16
_MAIN = "import sys; from barnabas.runtime.offload_task import main; main(int(sys.argv[1]))"


class OffloadError(RuntimeError):
    """The task failed for an external reason: its process died or could not be started."""


class Offload(Protocol):
    """Runs tasks outside the current call, and delivers their messages on the loop."""

    def submit(
        self,
        task: OffloadTask,
        on_message: Callable[[object], None],
        on_done: Callable[[BaseException | None], None],
    ) -> Cancellable:
        """Run `task`; tasks beyond the capacity wait.

        Args:
            task: the task to run.
            on_message: receives every value that the task yields, except numbers of bytes, in
                order.
            on_done: receives None at the end, or the error that ended the task. Neither callback
                runs before this returns, nor after the result was cancelled.
        """
        ...

    def close(self) -> None:
        """Cancel the running tasks, and release all resources."""
        ...


class SlicedOffload:
    """Runs all tasks on the loop, in alternating slices."""

    def __init__(self, disk: Disk, clock: Clock, timer: Timer) -> None:
        self.disk = disk
        self.clock = clock
        self.timer = timer
        self.running: set[_Slices] = set()

    def submit(
        self,
        task: OffloadTask,
        on_message: Callable[[object], None],
        on_done: Callable[[BaseException | None], None],
    ) -> Cancellable:
        """Run `task`, one slice per turn."""
        slices = _Slices(self, task, on_message, on_done)
        self.running.add(slices)
        self.timer.call_soon(slices.run)
        return slices

    def close(self) -> None:
        """Cancel the running tasks."""
        for slices in list(self.running):
            slices.cancel()


class _Slices:
    """One task on the loop."""

    def __init__(
        self,
        offload: SlicedOffload,
        task: OffloadTask,
        on_message: Callable[[object], None],
        on_done: Callable[[BaseException | None], None],
    ) -> None:
        self._offload = offload
        self._steps = task.work(offload.disk, task.argument)
        self._throttle = Throttle(offload.clock, task.bytes_per_second)
        self._on_message = on_message
        self._on_done = on_done
        self._is_over = False

    def run(self) -> None:
        """Run one slice."""
        if self._is_over:
            return
        try:
            message = next(self._steps)
        except StopIteration:
            self._end(None)
        except Exception as error:  # noqa: BLE001 - passed to on_done
            self._end(error)
        else:
            pause_ms = self._throttle.pause_ms(message if isinstance(message, int) else 0)
            # Scheduled before the message is delivered, because the receiver may cancel the task.
            if pause_ms > 0:
                self._offload.timer.call_later(pause_ms, self.run)
            else:
                self._offload.timer.call_soon(self.run)
            if not isinstance(message, int):
                self._on_message(message)

    def cancel(self) -> None:
        """Cancel the task; no callback runs afterwards."""
        if not self._is_over:
            self._is_over = True
            self._offload.running.discard(self)
            if isinstance(self._steps, Generator):
                self._steps.close()

    def _end(self, error: BaseException | None) -> None:
        self._is_over = True
        self._offload.running.discard(self)
        self._on_done(error)


class ChildOffload:
    """Runs each task in a child process of its own, which starts on demand and ends when idle.

    Cancelling a task kills its child. This is safe because a task writes only files that no other
    process uses yet.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, idle_s: float = IDLE_S) -> None:
        self._loop = loop
        self._idle_s = idle_s
        # The running child processes, idle ones too. Tasks start them; their death removes them.
        self._children: list[_Child] = []

    def submit(
        self,
        task: OffloadTask,
        on_message: Callable[[object], None],
        on_done: Callable[[BaseException | None], None],
    ) -> Cancellable:
        """Run `task` in an idle child, or in a new one."""
        child = next((child for child in self._children if child.is_idle), None)
        piece = _Piece(on_message, on_done)
        if child is None:
            try:
                child = _Child(self._loop, self._idle_s, self._children.remove)
            except OSError as error:
                failure = OffloadError(f"no child process could be started: {error}")
                self._loop.call_soon(piece.end, failure)
                return piece
            self._children.append(child)
        child.begin(task, piece)
        return piece

    @property
    def process_ids(self) -> list[int]:
        """Ids of the living child processes."""
        return [child.process_id for child in self._children]

    def close(self) -> None:
        """Kill all children."""
        for child in list(self._children):
            child.kill()


class _Piece:
    """A submitted task and its callbacks, which are not called after it is cancelled."""

    def __init__(
        self,
        on_message: Callable[[object], None],
        on_done: Callable[[BaseException | None], None],
    ) -> None:
        self._on_message = on_message
        self._on_done = on_done
        # Whether the task has ended or was cancelled. No callback runs after that. Stays true.
        self.is_over = False
        # The child that works on the task; None before and after.
        self.child: _Child | None = None

    def deliver(self, message: object) -> None:
        if not self.is_over:
            self._on_message(message)

    def end(self, error: BaseException | None) -> None:
        if not self.is_over:
            self.is_over = True
            self._on_done(error)

    def cancel(self) -> None:
        """Kill the child that runs the task."""
        if not self.is_over:
            self.is_over = True
            if self.child is not None:
                self.child.kill()


class _Child:
    """A child process and the pipes to it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, idle_s: float, on_dead: Callable[[_Child], None]
    ) -> None:
        self._loop = loop
        self._idle_s = idle_s
        self._on_dead = on_dead
        # The task of the child; None while it is idle.
        self._piece: _Piece | None = None
        # Ends the child when it has been idle for too long; None while it works.
        self._idle: asyncio.TimerHandle | None = None
        # Whether the process has ended or was killed. Stays true.
        self._is_dead = False
        # Bytes of incomplete frames from the child.
        self._received = bytearray()
        # Parts of the task that the pipe to the child has not accepted yet, in order.
        self._unsent: deque[memoryview] = deque()
        self._process = start_python(
            _MAIN, os.getpid(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input = self._process.stdin.fileno()
        self._output = self._process.stdout.fileno()
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)
        loop.add_reader(self._output, self._on_readable)

    @property
    def is_idle(self) -> bool:
        return self._piece is None and not self._is_dead

    @property
    def process_id(self) -> int:
        return self._process.pid

    def begin(self, task: OffloadTask, piece: _Piece) -> None:
        """Give a task to this idle child."""
        assert self.is_idle, f"child {self.process_id} already has a task"
        self._piece = piece
        piece.child = self
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        self._unsent.append(memoryview(encode_frame(task)))
        self._send()

    def _send(self) -> None:
        """Write as much as the pipe takes, and the rest when the pipe is writable again."""
        while self._unsent:
            try:
                written = os.write(self._input, self._unsent[0])
            except BlockingIOError:
                self._loop.add_writer(self._input, self._send)
                return
            except BrokenPipeError:
                # The output pipe also reaches its end, which reports the death of the child.
                self._unsent.clear()
                break
            rest = self._unsent[0][written:]
            if rest:
                self._unsent[0] = rest
            else:
                self._unsent.popleft()
        self._loop.remove_writer(self._input)

    def _on_readable(self) -> None:
        try:
            part = os.read(self._output, _READ_BYTES)
        except BlockingIOError:
            return
        if not part:
            self._discard()
            return
        self._received += part
        while len(self._received) >= LENGTH.size and not self._is_dead:
            end = LENGTH.size + LENGTH.unpack_from(self._received)[0]
            if len(self._received) < end:
                return
            frame = bytes(self._received[LENGTH.size : end])
            kind, value = pickle.loads(frame)  # noqa: S301 - the bytes come from our child
            del self._received[:end]
            self._on_result(kind, value)

    def _on_result(self, kind: str, value: object) -> None:
        piece = self._piece
        assert piece is not None
        if kind == MESSAGE:
            piece.deliver(value)
            return
        self._piece = None
        piece.child = None
        self._idle = self._loop.call_later(self._idle_s, self.kill)
        if kind == DONE:
            piece.end(None)
        else:
            assert isinstance(value, BaseException)
            piece.end(value)

    def kill(self) -> None:
        """Kill the child. If a task is still running, it ends with an OffloadError."""
        if not self._is_dead:
            self._process.kill()
            self._discard()

    def _discard(self) -> None:
        self._is_dead = True
        if self._idle is not None:
            self._idle.cancel()
        if not self._loop.is_closed():
            self._loop.remove_reader(self._output)
            self._loop.remove_writer(self._input)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._on_dead(self)
        reap(self._process, self._loop)
        piece, self._piece = self._piece, None
        if piece is not None:
            piece.child = None
            piece.end(OffloadError(f"child process {self._process.pid} has died"))
