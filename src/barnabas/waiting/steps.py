"""Generators that work in small steps, so that the loop can do other work in between.

`run_slice` runs steps for a limited time, and all callers that have a time limit use it.
`run_in_slices` repeats it in the next turns, and `server/dispatch/slices` does so for requests. A
step may request work off the event loop by `OffLoop`: calls that release the interpreter lock.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Iterable, Iterator

    from barnabas.runtime.clock import Clock

    # Yields None after about a millisecond of work, or a call; receives the result of the call.
    Steps = Generator["OffLoop | None", Any, Any]


class OffLoop(NamedTuple):
    """A call that a generator yields instead of making it."""

    work: Callable[[], Any]
    # Maximum memory (bytes) that the generator takes from now on: for the result of this call, for
    # what it makes from it, and for the results of later calls without a maximum. The generator
    # has dropped the results of its earlier calls, because it may wait for this memory. A call
    # without a maximum never waits for memory.
    memory_bytes_max: int | None = None
    # Returns the memory (bytes) that the generator takes after a call with this result. The
    # generator gives up the rest, because most results are far below their maximum.
    memory_of: Callable[[Any], int] | None = None


def run_steps(steps: Steps) -> Any:
    """Run a generator to its end in one turn, and return its result."""
    answer: Any = None
    failure: Exception | None = None
    while True:
        try:
            requested = steps.send(answer) if failure is None else steps.throw(failure)
        except StopIteration as end:
            return end.value
        answer = failure = None
        if requested is not None:
            try:
                answer = requested.work()
            except Exception as error:  # noqa: BLE001 - thrown where the call was requested
                failure = error


class ImmediateSteps:
    """Runs all work at once, for tests and tools that serve no other requests."""

    __slots__ = ()

    def submit(self, _lane: object, steps: Steps, on_done: Callable[[Any], None]) -> None:
        """Run `steps` and pass the result to `on_done`, before this returns."""
        on_done(run_steps(steps))


T = TypeVar("T")
H = TypeVar("H", bound="Hashable")

# Time limit of `run_in_slices` per turn of the loop, in ms, unless the caller has another one.
SLICE_MS = 4.0
# Time limit of a turn in which other requests wait, in ms.
SHORT_SLICE_MS = 2.0
# Names counted per step.
_COUNTED_AT_ONCE = 100


def in_parts(items: list[T], size: int = 200) -> Iterator[list[T]]:
    """Split a list into parts of a limited size, each for one step."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


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


class Unfinished:
    """Type of the constant UNFINISHED."""


UNFINISHED = Unfinished()


def run_slice(steps: Generator[None, None, T], clock: Clock, limit_ms: float) -> T | Unfinished:
    """Run steps until their end, or until a step ends after the time limit.

    Args:
        steps: the work. It may raise any exception, which ends it.
        clock: measures the slice.
        limit_ms: the time limit in ms. At least one step runs.

    Returns:
        The result of the work, or UNFINISHED if steps are left.
    """
    monotonic_ms = clock.monotonic_ms
    ends_ms = monotonic_ms() + limit_ms
    try:
        while True:
            next(steps)
            if monotonic_ms() > ends_ms:
                return UNFINISHED
    except StopIteration as end:
        result: T = end.value
        return result


def run_to_end(steps: Generator[None, None, T]) -> T:
    """Run all steps in this turn, and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def run_in_slices(
    steps: Generator[None, None, T],
    clock: Clock,
    schedule: Callable[[Callable[[], None]], object],
    on_done: Callable[[T], object],
    limit_ms: float | None = None,
) -> None:
    """Run the steps: a slice now, and further slices in the next turns.

    Args:
        steps: the work.
        clock: measures the slices.
        schedule: has its argument called in a later turn, for example `Timer.call_soon`.
        on_done: receives the result; may run before this returns.
        limit_ms: the time limit of a slice in ms; None for SLICE_MS.
    """
    result = run_slice(steps, clock, SLICE_MS if limit_ms is None else limit_ms)
    if isinstance(result, Unfinished):
        schedule(partial(run_in_slices, steps, clock, schedule, on_done, limit_ms))
    else:
        on_done(result)
