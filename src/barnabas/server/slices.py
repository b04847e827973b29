"""Work on requests that would hold the event loop too long: generators that run in slices.

A generator stops after each small step. Its first slice runs at once, which is all that most
requests take. The rest is queued: each turn of the loop runs one slice of one request, in turns, so
that other connections are served in between. `RequestContext.in_slices` is the way in for handlers.

Requests that are large themselves are decoded, served and answered in slices too, and one after the
other: a message takes a hundred times its bytes while it is worked on.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from barnabas.protocol.schema import Array

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from barnabas.protocol.schema import Message, Struct
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.loop_watch import LoopWatch
    from barnabas.runtime.timer import Timer

T = TypeVar("T")
V = TypeVar("V")

# The first slice of a request, which runs in the turn that read it.
FIRST_SLICE_MS = 2.0
# A slice of queued work; one in a turn.
SLICE_MS = 4.0
# Items that are let go of in one step: plain ones, and those that have arrays themselves.
_RELEASED_AT_ONCE = 256
_NESTED_RELEASED_AT_ONCE = 8
# Names that are sorted in one step.
_SORTED_AT_ONCE = 2_000


class Sliced(Protocol):
    """What the work is for: told of its end, one way or the other."""

    @property
    def is_wanted(self) -> bool:
        """Whether anyone waits for the result."""
        ...

    @property
    def source(self) -> tuple[str, str]:
        """API and client, for the log."""
        ...

    def on_work_done(self, spent_ms: float) -> None:
        """Take note of the end; `spent_ms` is the time that the slices took."""
        ...

    def on_work_failed(self, error: Exception) -> None:
        """Take note that a step raised."""
        ...


class _Unfinished:
    """The type of UNFINISHED."""


UNFINISHED = _Unfinished()


class _Job:
    __slots__ = ("is_large", "owner", "spent_ms", "steps")

    def __init__(
        self, steps: Generator[None, None, object], owner: Sliced, *, is_large: bool
    ) -> None:
        self.steps = steps
        self.owner = owner
        self.is_large = is_large
        self.spent_ms = 0.0


class SliceQueue:
    """The queued work of one event loop."""

    __slots__ = ("_clock", "_is_due", "_jobs", "_large", "_timer", "_waiting", "_watch")

    def __init__(self, clock: Clock, timer: Timer, watch: LoopWatch) -> None:
        self._clock = clock
        self._timer = timer
        # Told which request a slice was for.
        self._watch = watch
        # Jobs under way; the first one has the next slice.
        self._jobs: deque[_Job] = deque()
        # Large jobs under way, one at most, and those that wait for it to end.
        self._large = 0
        self._waiting: deque[_Job] = deque()
        self._is_due = False

    def __len__(self) -> int:
        return len(self._jobs) + len(self._waiting)

    def try_now(self, steps: Generator[None, None, T]) -> T | _Unfinished:
        """Run the first slice; returns the result, or UNFINISHED: then `add` the generator."""
        ends_ms = self._clock.monotonic_ms() + FIRST_SLICE_MS
        try:
            while True:
                next(steps)
                if self._clock.monotonic_ms() > ends_ms:
                    return UNFINISHED
        except StopIteration as end:
            result: T = end.value
            return result

    def add(
        self,
        steps: Generator[None, None, object],
        owner: Sliced,
        *,
        is_large: bool = False,
    ) -> None:
        """Run the steps in slices, from the next turn on; large ones one after the other."""
        job = _Job(steps, owner, is_large=is_large)
        if is_large and self._large:
            self._waiting.append(job)
            return
        self._large += is_large
        self._jobs.append(job)
        self._arm()

    def _arm(self) -> None:
        if self._jobs and not self._is_due:
            self._is_due = True
            self._timer.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due = False
        job = self._jobs.popleft()
        is_over = True
        began_ms = self._clock.monotonic_ms()
        try:
            is_over = self._run_slice(job)
            now_ms = self._clock.monotonic_ms()
            if now_ms > self._watch.due_ms:
                self._watch.look(now_ms, began_ms, *job.owner.source)
        finally:
            if not is_over:
                self._jobs.append(job)
            elif job.is_large:
                self._large -= 1
                if self._waiting:
                    self._large += 1
                    self._jobs.append(self._waiting.popleft())
            self._arm()

    def _run_slice(self, job: _Job) -> bool:
        """Run one slice; returns whether the job has ended."""
        if not job.owner.is_wanted:
            job.steps.close()
            job.owner.on_work_done(job.spent_ms)
            return True
        monotonic_ms, steps = self._clock.monotonic_ms, job.steps
        began_ms = monotonic_ms()
        ends_ms = began_ms + SLICE_MS
        try:
            while True:
                next(steps)
                if monotonic_ms() > ends_ms:
                    job.spent_ms += monotonic_ms() - began_ms
                    return False
        except StopIteration:
            job.owner.on_work_done(job.spent_ms + monotonic_ms() - began_ms)
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001 - its owner logs it, others go on
            job.owner.on_work_failed(error)
        return True


def drained(items: dict[T, V]) -> Iterator[tuple[T, V]]:
    """Yield the items of a dictionary, and let go of each: all at once may take too long."""
    for key in list(items):
        yield key, items.pop(key)


def sorted_gradually(names: list[str]) -> Generator[None, None, Iterator[str]]:
    """Sort names in steps; the iterator that is returned takes a step for each of them."""
    runs: list[list[str]] = []
    for start in range(0, len(names), _SORTED_AT_ONCE):
        runs.append(sorted(names[start : start + _SORTED_AT_ONCE]))
        yield
    return heapq.merge(*runs)


def release(message: Message | Struct) -> Generator[None, None, None]:
    """Empty the arrays of a message that is needed no more.

    Letting go of 100,000 objects at once takes tens of milliseconds.
    """
    for field in message.__fields__:
        items: Any = getattr(message, field.name, None)
        if not isinstance(items, list):
            continue
        fields = getattr(items[0], "__fields__", ()) if items else ()
        arrays = [each.name for each in fields if isinstance(each.kind, Array)]
        at_once = _NESTED_RELEASED_AT_ONCE if arrays else _RELEASED_AT_ONCE
        while items:
            for each in items[-at_once:] if arrays else ():
                if any(len(getattr(each, name) or ()) > at_once for name in arrays):
                    yield from release(each)
            del items[-at_once:]
            yield
