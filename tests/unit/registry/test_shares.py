"""Clients share memory and turns by their addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from barnabas.registry.errors import RegistryError
from barnabas.registry.shares import BodyMemory, FairTurns

MEBIBYTE = 1 << 20


async def settle() -> None:
    """Let all tasks run until they wait."""
    for _ in range(5):
        await asyncio.sleep(0)


def run(test: Callable[[FairTurns], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await test(FairTurns(1))

    asyncio.run(main())


def test_an_address_with_one_request_does_not_wait_for_all_of_another() -> None:
    done: list[str] = []

    async def test(turns: FairTurns) -> None:
        async def work(address: str) -> None:
            async with turns.turn(address):
                await asyncio.sleep(0)
                done.append(address)

        await asyncio.gather(*[work("greedy") for _ in range(5)], work("modest"))

    run(test)
    assert done == ["greedy", "greedy", "modest", "greedy", "greedy", "greedy"]


@pytest.mark.parametrize("steps", range(6))
def test_a_cancelled_task_leaves_its_turn_to_others(steps: int) -> None:
    async def test(turns: FairTurns) -> None:
        async def work() -> None:
            async with turns.turn("a"):
                await asyncio.sleep(0)

        first, cancelled, last = (asyncio.create_task(work()) for _ in range(3))
        for _ in range(steps):
            await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(first, cancelled, last, return_exceptions=True)
        async with asyncio.timeout(60), turns.turn("a"):
            await settle()

    run(test)


def test_an_address_with_large_bodies_leaves_memory_to_others() -> None:
    memory = BodyMemory()
    with memory.request("a") as first, memory.request("a") as second:
        first.take(20 * MEBIBYTE)
        with pytest.raises(RegistryError, match="too many large requests") as caught:
            second.take(20 * MEBIBYTE)
        assert caught.value.status == 503
        with memory.request("b") as other:
            other.take(20 * MEBIBYTE)
    with memory.request("a") as again:
        again.take(20 * MEBIBYTE)


def test_many_addresses_cannot_exceed_the_memory_of_all_bodies() -> None:
    memory = BodyMemory()
    with memory.request("a") as a, memory.request("b") as b, memory.request("c") as c:
        a.take(30 * MEBIBYTE)
        b.take(30 * MEBIBYTE)
        with pytest.raises(RegistryError):
            c.take(30 * MEBIBYTE)
