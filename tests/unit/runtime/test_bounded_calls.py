"""Functions that are called in child processes, with limits of time and memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.runtime.bounded_calls import BoundedCalls
from unit.runtime import called_functions

SECONDS = 60.0
MEMORY = 1 << 30


def call(*calls: tuple[Callable[[Any], object], object, float]) -> list[object]:
    """Return the result or the error of each call, in one process after the other."""

    async def run() -> list[object]:
        bounded = BoundedCalls(asyncio.get_running_loop(), MEMORY, idle_s=SECONDS)
        found: list[object] = []
        for function, argument, limit_s in calls:
            try:
                found.append(await bounded.run(function, argument, limit_s))
            except Exception as error:  # noqa: BLE001 - returned
                found.append(error)
        bounded.close()
        return found

    return asyncio.run(run())


def test_the_result_or_the_error_of_a_call_is_returned() -> None:
    result, error = call(
        (called_functions.doubled, 21, SECONDS), (called_functions.refused, "no", SECONDS)
    )
    assert result == 42
    assert isinstance(error, ValueError)
    assert str(error) == "no"


def test_a_call_without_end_is_stopped_and_the_next_one_succeeds() -> None:
    error, result = call(
        (called_functions.endless, None, 0.01), (called_functions.doubled, 1, SECONDS)
    )
    assert isinstance(error, TimeoutError)
    assert result == 2


def test_a_call_that_needs_too_much_memory_fails() -> None:
    [error] = call((called_functions.large, 2 * MEMORY, SECONDS))
    assert isinstance(error, MemoryError)


def test_a_pending_call_of_a_canceled_task_is_stopped() -> None:
    async def run() -> None:
        bounded = BoundedCalls(asyncio.get_running_loop(), MEMORY, idle_s=SECONDS)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await bounded.run(called_functions.endless, None, SECONDS)
        bounded.close()

    asyncio.run(run())
