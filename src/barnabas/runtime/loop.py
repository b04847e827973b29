"""Creates the event loop and the runtime interfaces, and runs a process on them."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.runtime.clock import Clock, LoopTimer, SystemClock, Timer
from barnabas.runtime.disk import Disk, RealDisk
from barnabas.runtime.executor import Executor, ThreadExecutor
from barnabas.runtime.loop_sockets import LoopSockets
from barnabas.runtime.loop_watch import LoopWatch, loop_watch, unused_watch
from barnabas.runtime.offload import ChildOffload
from barnabas.runtime.process import open_standard_descriptors
from barnabas.runtime.rng import Rng, SystemRng
from barnabas.runtime.worker_pool import ThreadPools, WorkerPools

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.offload import Offload
    from barnabas.runtime.sockets import Sockets

_uvloop: Any
try:
    import uvloop as _uvloop
except ImportError:
    _uvloop = None

_WORKERS = 4
# Number of descriptors that a server reserves for short operations on files.
_DESCRIPTOR_RESERVE = 16


class Runtime(msgspec.Struct, frozen=True):
    """All runtime interfaces in one value."""

    clock: Clock
    timer: Timer
    executor: Executor
    rng: Rng
    disk: Disk
    sockets: Sockets
    offload: Offload
    # Makes pools of threads: (name, threads, works that may wait).
    worker_pool: WorkerPools
    # Measures the turns of the loop; used only in servers.
    watch: LoopWatch = msgspec.field(default_factory=unused_watch)


def new_loop() -> asyncio.AbstractEventLoop:
    """Create an event loop that is not set as the current one.

    The loop is uvloop's. Where uvloop is not installed, for example on Windows, the loop is
    asyncio's own.
    """
    # A descriptor of uvloop below 3 would abort the process when the loop closes.
    open_standard_descriptors()
    new: Callable[[], asyncio.AbstractEventLoop] = (_uvloop or asyncio).new_event_loop
    return new()


def system_runtime(
    loop: asyncio.AbstractEventLoop, workers: int = _WORKERS, watch: LoopWatch | None = None
) -> Runtime:
    """Return the real interfaces of a loop, with `workers` threads for blocking calls.

    A server passes a watch, which measures the turns of the loop, and reserves file descriptors.
    """
    timer = LoopTimer(loop, watch)
    return Runtime(
        clock=SystemClock(),
        timer=timer,
        executor=ThreadExecutor(loop, workers, watch),
        rng=SystemRng(),
        disk=RealDisk(0 if watch is None else _DESCRIPTOR_RESERVE),
        sockets=LoopSockets(loop, watch),
        offload=ChildOffload(loop),
        worker_pool=ThreadPools(loop, timer, watch),
        watch=watch or unused_watch(),
    )


class ProcessControl:
    """Lets the main part of a process stop it, and react to stop requests of the operator."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._on_stop: Callable[[], None] | None = None
        self._stop_requested = False
        # The error that ended the process; None if the operator stopped it.
        self.failure: BaseException | None = None

    def on_stop(self, callback: Callable[[], None]) -> None:
        """Call `callback` once at the first SIGTERM or SIGINT; it ends with `finish()`.

        Without a callback, or at the second signal, the loop stops at once.
        """
        self._on_stop = callback
        if self._stop_requested:
            self._loop.call_soon(callback)

    def on_signal(self, number: signal.Signals, callback: Callable[[], None]) -> None:
        """Call `callback` on the loop at each signal `number`."""
        on_signal(self._loop, number, callback)

    def on_input(self, descriptor: int, callback: Callable[[], object]) -> None:
        """Call `callback` on the loop whenever a pipe or socket has input, or has ended."""
        self._loop.add_reader(descriptor, callback)

    def ignore_input(self, descriptor: int) -> None:
        """End the calls of `on_input`. Do this before the descriptor is closed."""
        self._loop.remove_reader(descriptor)

    def request_stop(self) -> None:
        """Handle a stop request as if SIGTERM had arrived."""
        if self._stop_requested or self._on_stop is None:
            self.finish()
        else:
            self._on_stop()
        self._stop_requested = True

    def finish(self) -> None:
        """Stop the loop."""
        self._loop.stop()

    def fail(self, error: BaseException) -> None:
        """Stop the loop, and make `run` raise `error`."""
        if self.failure is None:
            self.failure = error
        self.finish()

    def on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an exception that no callback caught; an AssertionError stops the process.

        After a failure, other exceptions are ignored, because they follow from that failure.
        """
        error = context.get("exception")
        if isinstance(error, AssertionError):
            self.fail(error)
        elif self.failure is None:
            loop.default_exception_handler(context)


def on_signal(
    loop: asyncio.AbstractEventLoop, number: signal.Signals, callback: Callable[[], None]
) -> None:
    """Call `callback` on the loop at each signal `number`. Call this in the main thread."""
    try:
        loop.add_signal_handler(number, callback)
    except NotImplementedError:
        # The loops of Windows have no such handlers.
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(callback))


def run(main: Callable[[Runtime, ProcessControl], None], workers: int = _WORKERS) -> None:
    """Run a process: `main` starts its parts and returns; the loop runs until `finish()`.

    Raises:
        AssertionError: raised by a callback; the loop is closed by then.
        BaseException: the argument of `ProcessControl.fail`; the loop is closed by then.
    """
    loop = new_loop()
    control = ProcessControl(loop)
    loop.set_exception_handler(control.on_loop_error)
    runtime = system_runtime(loop, workers, loop_watch(loop))
    for number in (signal.SIGTERM, signal.SIGINT):
        control.on_signal(number, control.request_stop)
    try:
        main(runtime, control)
        loop.run_forever()
    finally:
        close_loop(loop, runtime)
    if control.failure is not None:
        raise control.failure


def close_loop(loop: asyncio.AbstractEventLoop, runtime: Runtime) -> None:
    """Cancel all tasks, let connections close, and close the loop and the threads."""
    close_workers(runtime)
    runtime.watch.end()
    for task in asyncio.all_tasks(loop):
        task.cancel()
    for _ in range(3):
        loop.call_soon(loop.stop)
        loop.run_forever()
    loop.close()


def close_workers(runtime: Runtime) -> None:
    """Close the threads, child processes and reserved descriptors of a runtime.

    The loop may continue to run.
    """
    if isinstance(runtime.executor, ThreadExecutor):
        runtime.executor.close()
    if isinstance(runtime.worker_pool, ThreadPools):
        runtime.worker_pool.close()
    runtime.offload.close()
    if isinstance(runtime.disk, RealDisk):
        runtime.disk.close()
