"""Generators that run in small steps and in slices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.waiting.steps import SLICE_MS, count_gradually, run_in_slices
from steps import Loop, counted

if TYPE_CHECKING:
    from collections.abc import Generator


def work(loop: Loop, count: int) -> Generator[None, None, str]:
    """Take a millisecond in each step."""
    for _ in range(count):
        loop.now_ms += 1
        yield
    return "done"


def test_names_are_counted_in_steps_in_their_order() -> None:
    names = ["b", "a", "b", *map(str, range(1000))]
    times, steps = counted(count_gradually(names))
    assert list(times)[:2] == ["b", "a"]
    assert (times["b"], times["a"], len(times)) == (2, 1, 1002)
    assert steps == 11


def test_small_work_finishes_in_one_turn() -> None:
    loop, results = Loop(), []
    run_in_slices(work(loop, 3), loop, loop.call_soon, results.append)
    assert (results, loop.queue) == (["done"], [])


def test_large_work_takes_one_slice_per_turn() -> None:
    loop, results = Loop(), []
    run_in_slices(work(loop, 22), loop, loop.call_soon, results.append)
    turns = 1
    while loop.queue:
        assert (results, len(loop.queue)) == ([], 1)
        began_ms = loop.now_ms
        loop.queue.pop()()
        assert loop.now_ms - began_ms <= SLICE_MS + 1
        turns += 1
    assert (results, turns) == (["done"], 5)
