"""Threads of a part of the console, so that slow work of one part delays no other."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from barnabas.runtime.executor import ThreadExecutor

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Threads:
    """Threads whose results are awaited. They start on demand, on the loop that first uses them."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._executor: ThreadExecutor | None = None

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run `work` in a thread."""
        loop = asyncio.get_running_loop()
        if self._executor is None:
            self._executor = ThreadExecutor(loop, self._count)
        done: asyncio.Future[T] = loop.create_future()

        def finish(result: T | None, error: BaseException | None) -> None:
            if done.done():
                return
            if error is not None:
                done.set_exception(error)
            else:
                done.set_result(result)  # type: ignore[arg-type]  # T may include None

        self._executor.submit(work, finish)
        return done

    def close(self) -> None:
        """Wait for the work that runs."""
        if self._executor is not None:
            self._executor.close()
