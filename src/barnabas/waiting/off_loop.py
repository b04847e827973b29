"""Work that a generator requests off the event loop: calls that release the interpreter lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

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
