"""Runs generators that work in small steps to their end."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator

T = TypeVar("T")


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
