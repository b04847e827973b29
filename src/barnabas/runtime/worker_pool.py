"""Pools of threads for blocking calls that may take long, such as those of a remote store.

The threads of `runtime.executor` do syncs and other calls on which many requests wait. Slow calls
have pools of their own, each with a bounded queue, so a store that does not answer delays nothing
else. The queue, the tickets and all counts belong to the event loop. A thread gets one work at a
time, and its result starts the next one, so a ticket can be cancelled exactly, and no lock is held.

The threads are daemons. `concurrent.futures` was turned down here, because the interpreter waits
for its threads at the end of the process: a call that hangs would keep a stopped broker alive.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from barnabas.runtime.executor import run_and_deliver

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from barnabas.runtime.clock import Timer
    from barnabas.runtime.loop_watch import LoopWatch

# How long running work may take after its pool was closed.
CLOSE_LIMIT_MS = 2000.0
_MS_PER_S = 1000.0

T = TypeVar("T")
Work: TypeAlias = "Callable[[], Any]"
OnDone: TypeAlias = "Callable[[Any, BaseException | None], None]"


class Workers(Protocol):
    """Runs the works of one pool, at most as many at a time as the pool has threads."""

    def run(self, work: Work, on_done: OnDone) -> None:
        """Start `work` at once; call `on_done` on the loop later, with (result, error)."""
        ...

    def resize(self, threads: int) -> None:
        """End the threads above this number as soon as they are idle."""
        ...

    def close(self) -> None:
        """End all threads as soon as they are idle."""
        ...


class Ticket:
    """A submitted work that can be cancelled."""

    __slots__ = ("_queue", "on_done", "work")

    def __init__(self, queue: OrderedDict[Ticket, None], work: Work, on_done: OnDone) -> None:
        self._queue = queue
        self.work = work
        # None after it was called, or after the work was cancelled.
        self.on_done: OnDone | None = on_done

    def cancel(self) -> bool:
        """Cancel the work; `on_done` is not called any more.

        Returns:
            Whether the work was still waiting. Otherwise it runs to its end, or has ended.
        """
        self.on_done = None
        if self not in self._queue:
            return False
        del self._queue[self]
        return True


class WorkerPool:
    """Runs blocking works outside the loop, in the order of submission. All calls are on the loop.

    `Runtime.worker_pool` makes pools.
    """

    def __init__(self, workers: Workers, timer: Timer, threads: int, queue_max: int) -> None:
        """Create the pool; no thread starts before there is work.

        Args:
            workers: run the works.
            timer: limits the time of closing.
            threads: works that may run at a time.
            queue_max: works that may wait for a thread.
        """
        assert threads > 0, threads
        assert queue_max >= 0, queue_max
        self._workers = workers
        self._timer = timer
        # Works that may run at a time; `resize` changes it.
        self.threads = threads
        self.queue_max = queue_max
        # The works that wait for a thread, oldest first. At most `queue_max`.
        self._queue: OrderedDict[Ticket, None] = OrderedDict()
        # Number of running works. After a smaller `resize` it may be above `threads` for a while.
        self.running = 0
        # Called when the last running work has ended, or after the time limit; then None again.
        self._on_closed: Callable[[], None] | None = None
        # Whether `close` was called. Stays true.
        self.is_closed = False

    @property
    def queued(self) -> int:
        """Number of works that wait for a thread."""
        return len(self._queue)

    @property
    def idle_ratio(self) -> float:
        """Share of the threads that have no work, from 0 to 1."""
        return max(0.0, 1.0 - self.running / self.threads)

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]
    ) -> Ticket | None:
        """Run `work` in a thread, and call `on_done` on the loop, never before this returns.

        Args:
            work: the blocking call.
            on_done: receives (result, None) or (None, error).

        Returns:
            None if the queue is full or the pool is closed: `on_done` is not called then.
        """
        if self.is_closed:
            return None
        ticket = Ticket(self._queue, work, on_done)
        if self.running < self.threads:
            self._start(ticket)
        elif len(self._queue) < self.queue_max:
            self._queue[ticket] = None
        else:
            return None
        return ticket

    def resize(self, threads: int) -> None:
        """Change the number of works that may run at a time. Running works go on."""
        assert threads > 0, threads
        self.threads = threads
        self._workers.resize(threads)
        self._start_queued()

    def close(self, on_closed: Callable[[], None]) -> None:
        """Drop the waiting works, and give the running ones two seconds.

        Args:
            on_closed: called once, perhaps before this returns. Results of running works are
                delivered until then, and dropped afterwards.
        """
        assert not self.is_closed, "the pool was closed before"
        self.is_closed = True
        self._queue.clear()
        self._workers.close()
        if not self.running:
            on_closed()
            return
        self._on_closed = on_closed
        self._timer.call_later(CLOSE_LIMIT_MS, self._finish_closing)

    def _finish_closing(self) -> None:
        on_closed, self._on_closed = self._on_closed, None
        if on_closed is not None:
            on_closed()

    def _start_queued(self) -> None:
        while self._queue and self.running < self.threads:
            ticket, _ = self._queue.popitem(last=False)
            self._start(ticket)

    def _start(self, ticket: Ticket) -> None:
        self.running += 1

        def on_end(result: Any, error: BaseException | None) -> None:
            self._end(ticket, result, error)

        self._workers.run(ticket.work, on_end)

    def _end(self, ticket: Ticket, result: Any, error: BaseException | None) -> None:
        assert self.running > 0, "more works ended than started"
        self.running -= 1
        self._start_queued()
        on_done, ticket.on_done = ticket.on_done, None
        is_too_late = self.is_closed and self._on_closed is None
        if on_done is not None and not is_too_late:
            on_done(result, error)
        if self.is_closed and not self.running:
            self._finish_closing()


class WorkerPools(Protocol):
    """Makes the pools of a process."""

    def __call__(self, name: str, threads: int, queue_max: int) -> WorkerPool:
        """Return a new pool.

        Args:
            name: part of the names of its threads.
            threads: works that may run at a time.
            queue_max: works that may wait for a thread.
        """
        ...


class ThreadWorkers:
    """Threads that start on demand. All methods are called on the loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, name: str, watch: LoopWatch | None = None
    ) -> None:
        self._loop = loop
        self._name = name
        self._watch = watch
        # Works for idle threads. None ends one thread.
        self._works: SimpleQueue[tuple[Work, OnDone] | None] = SimpleQueue()
        # The threads that were started, without those that were found dead.
        self._threads: list[threading.Thread] = []
        # Threads that were not told to end, and how many of them have no work.
        self._count = 0
        self._idle = 0
        # Threads above this number end when they are idle; None without a limit.
        self._limit: int | None = None
        self._started = 0

    def run(self, work: Work, on_done: OnDone) -> None:
        """Give the work to an idle thread, or to a new one."""

        def on_result(result: Any, error: BaseException | None) -> None:
            self._idle += 1
            self._end_surplus()
            on_done(result, error)

        if self._idle:
            self._idle -= 1
        else:
            try:
                self._add_thread()
            except RuntimeError as error:
                # The system allows no more threads or has no memory for one.
                self._loop.call_soon(on_done, None, error)
                return
        self._works.put((work, on_result))

    def resize(self, threads: int) -> None:
        """End the threads above this number as soon as they are idle."""
        self._limit = threads
        self._end_surplus()

    def close(self) -> None:
        """End all threads as soon as they are idle."""
        self.resize(0)

    def join(self, deadline_s: float) -> None:
        """Wait for the threads until a time of the monotonic clock. Call `close` before."""
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))

    def _add_thread(self) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._started += 1
        name = f"barnabas-{self._name}-{self._started}"
        thread = threading.Thread(target=self._serve, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)
        self._count += 1

    def _end_surplus(self) -> None:
        while self._limit is not None and self._idle and self._count > self._limit:
            self._idle -= 1
            self._count -= 1
            self._works.put(None)

    def _serve(self) -> None:
        """Work until the end; this runs in a thread."""
        while (entry := self._works.get()) is not None:
            run_and_deliver(self._loop, self._watch, *entry)
            # The variable would keep the last work alive while the thread is idle.
            del entry


class ThreadPools:
    """Makes pools of threads, and ends them with the process."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, timer: Timer, watch: LoopWatch | None = None
    ) -> None:
        self._loop = loop
        self._timer = timer
        self._watch = watch
        self._pools: list[tuple[WorkerPool, ThreadWorkers]] = []

    def __call__(self, name: str, threads: int, queue_max: int) -> WorkerPool:
        """Return a new pool of threads."""
        workers = ThreadWorkers(self._loop, name, self._watch)
        pool = WorkerPool(workers, self._timer, threads, queue_max)
        self._pools.append((pool, workers))
        return pool

    def close(self) -> None:
        """End the threads of all pools; wait two seconds at most for running calls.

        The owner of a pool that was closed before has already waited.
        """
        deadline_s = time.monotonic() + CLOSE_LIMIT_MS / _MS_PER_S
        for _, workers in self._pools:
            workers.close()
        for pool, workers in self._pools:
            workers.join(0.0 if pool.is_closed else deadline_s)
        self._pools.clear()
