"""Generators that work in small steps, so that the loop can do other work in between.

`server/slices` runs the steps of requests; `run_in_slices` runs those without a request.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterable

    from barnabas.runtime.clock import Clock

T = TypeVar("T")
H = TypeVar("H", bound="Hashable")

# Time limit of `run_in_slices` per turn of the loop, in ms.
SLICE_MS = 4.0
# Names counted per step.
_COUNTED_AT_ONCE = 100


def gradually(items: Iterable[T]) -> Generator[None, None, list[T]]:
    """Collect the items in a list, one per step."""
    made: list[T] = []
    for each in items:
        made.append(each)
        yield
    return made


def count_gradually(names: Iterable[H]) -> Generator[None, None, dict[H, int]]:
    """Count the occurrences of each name, in order of first occurrence."""
    times: dict[H, int] = {}
    for number, name in enumerate(names):
        times[name] = times.get(name, 0) + 1
        if number % _COUNTED_AT_ONCE == 0:
            yield
    return times


def run_in_slices(
    steps: Generator[None, None, T],
    clock: Clock,
    schedule: Callable[[Callable[[], None]], object],
    on_done: Callable[[T], object],
) -> None:
    """Run the steps: a slice now, and further slices in the next turns.

    Args:
        steps: the work.
        clock: measures the slices.
        schedule: has its argument called in a later turn, for example `Timer.call_soon`.
        on_done: receives the result; may run before this returns.
    """
    ends_ms = clock.monotonic_ms() + SLICE_MS
    try:
        while True:
            next(steps)
            if clock.monotonic_ms() > ends_ms:
                schedule(partial(run_in_slices, steps, clock, schedule, on_done))
                return
    except StopIteration as end:
        result: T = end.value
    on_done(result)
