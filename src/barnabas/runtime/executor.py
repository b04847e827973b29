"""The door off the loop: blocking calls that release the interpreter lock (fsync, cold reads).

Long computations do not belong here: a busy thread holds the lock and the loop's p99 with it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from barnabas.runtime.loop_watch import LoopWatch

# Threads for `run_all`: a file system commits what many of them sync in one go.
_WAITED_FOR_WORKERS = 16

T = TypeVar("T")


class Executor(Protocol):
    """Runs work elsewhere and answers on the loop."""

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Run `work` off the loop, then `on_done(result, None)` or `on_done(None, error)` on it.

        `on_done` may run before this returns only with `InlineExecutor`. A process that ends runs
        and answers nothing any more.
        """
        ...

    def run_all(self, works: Sequence[Callable[[], None]]) -> list[BaseException | None]:
        """Run all of `works` and wait for them, many at a time: for the end of a process.

        Returns:
            What each of them raised, in their order; None for those that did their work.
        """
        ...


class ThreadExecutor:
    """A pool of threads; started lazily, one thread per waiting piece of work up to `workers`."""

    __slots__ = ("_is_closed", "_loop", "_pool", "_watch")

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
        """Run `work` in a thread and answer on the loop."""
        if not self._is_closed:
            self._pool.submit(self._run, work, on_done)

    def run_all(self, works: Sequence[Callable[[], None]]) -> list[BaseException | None]:
        """Run all of `works` in threads of their own and wait for them."""
        workers = min(_WAITED_FOR_WORKERS, len(works))
        if workers < 2:
            return run_in_order(works)
        failures: list[BaseException | None] = [None] * len(works)
        with ThreadPoolExecutor(workers, thread_name_prefix="barnabas-ending") as pool:
            # A share for each thread: handing over every piece costs more than many of them do.
            shares = [pool.submit(run_in_order, works[first::workers]) for first in range(workers)]
            for first, share in enumerate(shares):
                failures[first::workers] = share.result()
        return failures

    def close(self) -> None:
        """Wait for what was submitted; its answers come only while the loop still runs."""
        self._is_closed = True
        self._pool.shutdown(wait=True)

    def _run(
        self, work: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        result: T | None = None
        failure: BaseException | None = None
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - handed over to on_done, nothing is lost
            failure = error
        if self._loop.is_closed():
            return
        if self._watch is None:
            self._loop.call_soon_threadsafe(on_done, result, failure)
        else:
            self._loop.call_soon_threadsafe(self._watch.run, on_done, result, failure)


class InlineExecutor:
    """Runs the work at once, in the caller's turn: for tests and offline tools."""

    __slots__ = ()

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Run `work`, then `on_done`, before returning."""
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - handed over to on_done, nothing is lost
            on_done(None, error)
            return
        on_done(result, None)

    def run_all(self, works: Sequence[Callable[[], None]]) -> list[BaseException | None]:
        """Run all of `works`, one after the other."""
        return run_in_order(works)


def run_in_order(works: Sequence[Callable[[], None]]) -> list[BaseException | None]:
    """Run each of `works`; returns what they raised, None for those that did their work."""
    failures: list[BaseException | None] = []
    for work in works:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - handed over to the caller, nothing is lost
            failures.append(error)
        else:
            failures.append(None)
    return failures
