"""A private event loop that a blocking caller runs, as the base of the blocking client API.

The caller passes a condition, and the loop runs until it holds or the timeout passes. The condition
is checked after each callback that comes through the runtime's interfaces. The loop is therefore
entered once per wait and not once per event.

There is no thread, unless `keep_alive` starts one that runs the loop while no caller is inside.
Callers must then be between `enter` and `leave`.
"""

from __future__ import annotations

import signal
import threading
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from barnabas.runtime.loop import close_loop, new_loop, system_runtime
from barnabas.runtime.sockets import USUAL_OPTIONS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence
    from types import FrameType

    from barnabas.runtime.clock import Cancellable, Timer
    from barnabas.runtime.executor import Executor
    from barnabas.runtime.loop import Runtime
    from barnabas.runtime.sockets import Listening, ListenOptions, Sockets, Stream, StreamHandler


T = TypeVar("T")
_MS_PER_S = 1000.0
_WORKERS = 1


class LoopStepper:
    """Owns a loop and a `runtime` on it. Only one thread at a time may use them."""

    def __init__(self) -> None:
        # Held by the thread that is between `enter` and `leave`; that thread may enter again.
        self._entry = threading.Lock()
        self._user: int | None = None
        self._depth = 0
        self._loop_thread: LoopThread | None = None
        # Whether the loop has run since the thread inside entered.
        self._has_stepped = False
        self._timed_out = False
        # Number of runs so far.
        self._runs = 0
        self._loop: asyncio.AbstractEventLoop = new_loop()
        self._base = system_runtime(self._loop, _WORKERS)
        self._predicate: Callable[[], bool] | None = None
        self._reached = False
        self._interrupt = DeferredInterrupt(self._stop_at_signal)
        self.runtime: Runtime = replace(
            self._base,
            timer=_StepTimer(self._base.timer, self.check),
            executor=_StepExecutor(self._base.executor, self.check),
            sockets=_StepSockets(self._base.sockets, self.check),
        )

    # -- access ------------------------------------------------------------------------------------

    def enter(self, *, wait_ms: float = 0.0) -> bool:
        """Take exclusive use of the loop until `leave`. Calls may be nested.

        Args:
            wait_ms: how long to wait for another thread to leave.

        Returns:
            False if another thread is still inside.
        """
        me = threading.get_ident()
        if self._user == me:
            self._depth += 1
            return True
        if not self._entry.acquire(timeout=wait_ms / _MS_PER_S):
            return False
        self._user = me
        self._depth = 1
        self._has_stepped = False
        if self._loop_thread is not None:
            self._loop_thread.acquire_turn()
        return True

    def leave(self) -> None:
        """Undo one `enter`."""
        assert self._user == threading.get_ident(), "leave without enter"
        self._depth -= 1
        if self._depth:
            return
        self._user = None
        if self._loop_thread is not None:
            self._loop_thread.release_turn(has_stepped=self._has_stepped)
        self._entry.release()

    def keep_alive(self) -> None:
        """Serve timers and connections while no caller is inside. The caller must be inside."""
        assert self._user == threading.get_ident(), "keep_alive from outside"
        if self._loop_thread is None:
            self._loop_thread = LoopThread(self._loop)
            self._loop_thread.start()

    @property
    def is_inside(self) -> bool:
        """Whether the calling thread is between `enter` and `leave`."""
        return self._user == threading.get_ident()

    @property
    def is_running(self) -> bool:
        """Whether any thread runs the loop."""
        return self._loop.is_running()

    def wake(self) -> None:
        """Have the condition checked soon. Any thread and any signal handler may call this."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.check)

    # -- running -----------------------------------------------------------------------------------

    def run_until(self, predicate: Callable[[], bool], timeout_ms: float | None = None) -> bool:
        """Run the loop until `predicate()` holds; returns False if the timeout passed first.

        A timeout of 0 handles only events that are ready; None waits without limit. Ctrl-C ends the
        run and is raised here.
        """
        assert not self._loop.is_running(), "run_until within run_until"
        assert self._loop_thread is None or self._user == threading.get_ident(), "not inside"
        if predicate():
            return True
        self._reached = self._timed_out = False
        self._has_stepped = True
        self._runs += 1
        interrupt = self._interrupt
        deadline = None
        # From here on Ctrl-C may interrupt any line.
        try:
            self._predicate = predicate
            interrupt.defer()
            if timeout_ms is not None:
                timeout_s = timeout_ms / _MS_PER_S
                deadline = self._loop.call_later(timeout_s, self._on_timed_out, self._runs)
            # Repeat, because a stop request for the loop thread may have ended the run.
            while not (self._reached or self._timed_out or interrupt.has_arrived):
                self._loop.run_forever()
        finally:
            self._predicate = None
            if deadline is not None:
                deadline.cancel()
            interrupt.release()
        return self._reached or predicate()

    def _on_timed_out(self, run: int) -> None:
        # Ctrl-C may end a run before its timer is known, so that the timer is not canceled.
        if run == self._runs:
            self._timed_out = True
            self._loop.stop()

    def _stop_at_signal(self) -> None:
        # asyncio's own loop goes on to wait after a signal, unless another callback wakes it.
        self._loop.call_soon_threadsafe(self._loop.stop)

    def check(self) -> None:
        """Check the condition, and stop the loop if it holds."""
        if self._predicate is not None and not self._reached and self._predicate():
            self._reached = True
            self._loop.stop()

    def close(self) -> None:
        """Close the loop and all open connections."""
        if self._loop_thread is not None:
            self._loop_thread.end()
        if not self._loop.is_closed():
            close_loop(self._loop, self._base)


class _StepTimer:
    def __init__(self, timer: Timer, check: Callable[[], None]) -> None:
        self._timer = timer
        self._check = check

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Cancellable:
        def step() -> None:
            callback()
            self._check()

        return self._timer.call_later(delay_ms, step)

    def call_soon(self, callback: Callable[[], None]) -> None:
        def step() -> None:
            callback()
            self._check()

        self._timer.call_soon(step)


class _StepExecutor:
    def __init__(self, executor: Executor, check: Callable[[], None]) -> None:
        self._executor = executor
        self._check = check

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        def step(result: T | None, error: BaseException | None) -> None:
            on_done(result, error)
            self._check()

        self._executor.submit(work, step)

    def run_all(self, works: Sequence[Callable[[], None]]) -> list[BaseException | None]:
        return self._executor.run_all(works)


class _StepSockets:
    def __init__(self, sockets: Sockets, check: Callable[[], None]) -> None:
        self._sockets = sockets
        self._check = check

    def listen(
        self,
        host: str,
        port: int,
        factory: Callable[[], StreamHandler],
        options: ListenOptions = USUAL_OPTIONS,
    ) -> Listening:
        return self._sockets.listen(
            host, port, lambda: _StepHandler(factory(), self._check), options
        )

    def connect(
        self,
        host: str,
        port: int,
        handler: StreamHandler,
        on_failed: Callable[[OSError], None],
        timeout_ms: float,
    ) -> Cancellable:
        def failed(error: OSError) -> None:
            on_failed(error)
            self._check()

        stepping = _StepHandler(handler, self._check)
        return self._sockets.connect(host, port, stepping, failed, timeout_ms)


class _StepHandler:
    __slots__ = ("_check", "_handler", "get_buffer")

    def __init__(self, handler: StreamHandler, check: Callable[[], None]) -> None:
        self._handler = handler
        self._check = check
        self.get_buffer = handler.get_buffer

    def on_connected(self, stream: Stream) -> None:
        self._handler.on_connected(stream)
        self._check()

    def on_received(self, count: int) -> None:
        self._handler.on_received(count)
        self._check()

    def on_writable_changed(self, writable: bool) -> None:
        self._handler.on_writable_changed(writable)
        self._check()

    def on_closed(self, error: Exception | None) -> None:
        self._handler.on_closed(error)
        self._check()


class DeferredInterrupt:
    """Defers Ctrl-C while an event loop runs, and passes it to the original handler afterwards.

    Python raises KeyboardInterrupt at any point of the main thread. In a callback of the loop, this
    is inside uvloop, which treats it as an error of that connection or timer. The interrupt and the
    connection are then lost. The busier the loop, the likelier this is. Other threads than the main
    one get no interrupts.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        # Stops the run of the loop; may be called within any callback.
        self._stop = stop
        # The original SIGINT handler; None while it is installed.
        self._before: Callable[[int, Any], Any] | None = None
        # Whether SIGINT has arrived during this run.
        self.has_arrived = False

    def defer(self) -> None:
        """Make SIGINT stop the loop.

        A second SIGINT before the loop has stopped is not deferred.
        """
        if threading.current_thread() is not threading.main_thread():
            return
        self.has_arrived = False
        before = signal.signal(signal.SIGINT, self._on_signal)
        if before == self._on_signal:
            # A second SIGINT interrupted the last `release`, so the handler is still in place.
            return
        if callable(before):
            self._before = before
        else:
            # SIGINT is ignored or has the default action, which stays so.
            signal.signal(signal.SIGINT, before)

    def release(self) -> None:
        """Restore the original handler, and call it if SIGINT has arrived.

        Raises:
            KeyboardInterrupt: or any other exception of the handler.
        """
        before, self._before = self._before, None
        if before is None:
            return
        signal.signal(signal.SIGINT, before)
        arrived, self.has_arrived = self.has_arrived, False
        if arrived:
            before(signal.SIGINT, None)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.has_arrived and self._before is not None and not _is_in_asyncio(frame):
            # A callback does not return, so the second Ctrl-C must take effect at once.
            self._before(number, frame)
            return
        self.has_arrived = True
        self._stop()


def _is_in_asyncio(frame: FrameType | None) -> bool:
    """Return whether asyncio's own loop was interrupted: an exception would damage its timers.

    The heap of timers calls a comparison in Python. An exception there leaves the heap unordered,
    and timers are late.
    """
    return frame is not None and frame.f_globals.get("__name__", "").startswith("asyncio.")


# Delay (s) between the last call that ran the loop and the time when this thread takes the turn.
# During continuous polls the user therefore always has the turn.
_TAKE_OVER_DELAY_S = 0.1


class LoopThread:
    """The thread of a blocking client, which runs the event loop between calls of the user.

    A group member must send heartbeats between polls. Only the holder of the turn may run the loop.
    The user holds the turn during each call. This thread takes it after the user has been away for
    a moment, and gives it back at once when the user returns. It is a daemon thread, so that a
    program can end without closing its consumer.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Held by the thread that may run the loop.
        self._turn = threading.Lock()
        self._turn.acquire()
        self._is_user_inside = True
        # When the user last left after running the loop (s, monotonic).
        self._stepped_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="barnabas-loop", daemon=True)

    def start(self) -> None:
        """Start the thread. The caller holds the turn."""
        self._thread.start()

    def acquire_turn(self) -> None:
        """Give the turn to the calling thread, which runs the loop from now on."""
        self._is_user_inside = True
        if not self._turn.acquire(blocking=False):
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._turn.acquire()

    def release_turn(self, *, has_stepped: bool) -> None:
        """Return the turn to this thread, after a delay if the user has run the loop."""
        if has_stepped:
            self._stepped_s = monotonic()
        self._is_user_inside = False
        self._turn.release()

    def end(self) -> None:
        """End the thread. The caller holds the turn and keeps it."""
        self._ended.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_TAKE_OVER_DELAY_S):
            if self._is_user_inside or monotonic() - self._stepped_s < _TAKE_OVER_DELAY_S:
                continue
            if not self._turn.acquire(blocking=False):
                continue
            try:
                if not self._loop.is_closed():
                    self._loop.run_forever()
            finally:
                self._turn.release()
