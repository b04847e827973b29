"""Objects that a failed computation outside the event loop keeps alive: nothing."""

from __future__ import annotations

import asyncio
import gc
import weakref

from barnabas.runtime.executor import ThreadExecutor


class Work:
    """Work with a state that has to be freed."""

    def run(self) -> None:
        raise OSError("it failed")


def test_failed_work_is_freed_without_a_collection_of_garbage() -> None:
    async def fail() -> weakref.ref[Work]:
        executor = ThreadExecutor(asyncio.get_running_loop(), 1)
        work = Work()
        kept = weakref.ref(work)
        failed = asyncio.Event()
        errors: list[str] = []

        def on_done(_result: object, error: BaseException | None) -> None:
            errors.append(str(error))
            failed.set()

        executor.submit(work.run, on_done)
        del work
        await failed.wait()
        executor.close()
        assert errors == ["it failed"]
        return kept

    gc.disable()
    try:
        kept = asyncio.run(fail())
        assert kept() is None
    finally:
        gc.enable()
