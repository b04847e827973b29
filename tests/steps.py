"""Runs generators that work in small steps, and a loop whose turns the test makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

T = TypeVar("T")


class Loop:
    """A clock that goes on with the work, and the turns of a loop."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.queue: list[Callable[[], None]] = []

    def wall_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> float:
        return self.now_ms

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.queue.append(callback)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> None:
        raise NotImplementedError

    def turn(self) -> None:
        for _ in range(len(self.queue)):
            self.queue.pop(0)()


def finish(steps: Generator[None, None, T]) -> T:
    """Run all steps; return the result."""
    return counted(steps)[0]


def counted(steps: Generator[None, None, T]) -> tuple[T, int]:
    """Run all steps; return the result, and how many steps it took."""
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, count
        count += 1
