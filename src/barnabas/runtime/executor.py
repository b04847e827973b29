"""The interface for blocking calls outside the event loop that release the GIL (fsync, cold reads).

Long computations do not belong here: a busy thread holds the GIL and delays the event loop.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Future

    from barnabas.runtime.loop_watch import LoopWatch

# Number of threads of `run_all`. A file system commits concurrent syncs together.
_WAITED_FOR_WORKERS = 16

T = TypeVar("T")


class Executor(Protocol):
    """Runs work outside the event loop, and returns the result on the loop."""

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Run `work` outside the loop, then call `on_done` on the loop.

        `on_done` receives (result, None) or (None, error). Only `InlineExecutor` calls it before
        this returns. After `close`, work is neither run nor answered.
        """
        ...

    def run_all(self, works: Sequence[Callable[[], None]]) -> list[BaseException | None]:
        """Run all of `works` concurrently and wait for them. Used when the process ends.

        Returns:
            The exceptions in the order of `works`; None for each successful call.
        """
        ...


class ThreadExecutor:
    """A thread pool that starts threads on demand, up to `workers` threads."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, workers: int, watch: LoopWatch | None = None
    ) -> None:
        assert workers > 0, workers
        self._loop = loop
        self._watch = watch
        self._is_closed = False
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="barnabas-blocking")

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Run `work` in a thread, and call `on_done` on the loop."""
        if not self._is_closed:
            self._pool.submit(run_and_deliver, self._loop, self._watch, work, on_done)

    def run_all(self, works: Sequence[Callable[[], None]]) -> list[BaseException | None]:
        """Run all of `works` in separate threads, and wait for them."""
        workers = min(_WAITED_FOR_WORKERS, len(works))
        if workers < 2:
            return run_in_order(works)
        failures: list[BaseException | None] = [None] * len(works)
        with ThreadPoolExecutor(workers, thread_name_prefix="barnabas-ending") as pool:
            # One share per thread, because a handover often costs more than the work itself.
            shares = [pool.submit(run_in_order, works[first::workers]) for first in range(workers)]
            for first, share in enumerate(shares):
                failures[first::workers] = share.result()
        return failures

    def close(self) -> None:
        """Wait for the submitted work. Its results are delivered only while the loop still runs."""
        self._is_closed = True
        self._pool.shutdown(wait=True)


class InlineExecutor:
    """Runs the work immediately in the caller's thread, for tests and offline tools."""

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Run `work`, then `on_done`, before returning."""
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - passed to on_done
            on_done(None, error)
            return
        on_done(result, None)

    def run_all(self, works: Sequence[Callable[[], None]]) -> list[BaseException | None]:
        """Run all of `works`, one after the other."""
        return run_in_order(works)


def run_and_deliver(
    loop: asyncio.AbstractEventLoop,
    watch: LoopWatch | None,
    work: Callable[[], T],
    on_done: Callable[[T | None, BaseException | None], None],
) -> None:
    """Run `work` in this thread, and call `on_done` on the loop if the loop still runs."""
    result: T | None = None
    failure: BaseException | None = None
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - passed to on_done
        failure = error
    try:
        if watch is None:
            loop.call_soon_threadsafe(on_done, result, failure)
        else:
            loop.call_soon_threadsafe(watch.run, on_done, result, failure)
    except RuntimeError:
        # The loop was closed, perhaps in this moment.
        if not loop.is_closed():
            raise
    finally:
        # The traceback refers to this frame. With the variable it would be a reference cycle,
        # which keeps what `work` belongs to, such as a failed TLS session.
        failure = None


def run_in_order(works: Sequence[Callable[[], None]]) -> list[BaseException | None]:
    """Run each of `works`; returns the exceptions, None for each successful call."""
    failures: list[BaseException | None] = []
    for work in works:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - returned to the caller
            failures.append(error)
        else:
            failures.append(None)
    return failures


def results_of(works: Iterable[Callable[[], T]], threads: int) -> Iterator[T]:
    """Run works in threads, and yield their results in order.

    At most `threads` works run or wait at a time. After an error, no further work begins.

    Args:
        works: taken one by one, when a thread is free.
        threads: the number of threads.
    """
    running: deque[Future[T]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="barnabas-work") as pool:
        try:
            for work in works:
                running.append(pool.submit(work))
                if len(running) == threads:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for each in running:
                each.cancel()
