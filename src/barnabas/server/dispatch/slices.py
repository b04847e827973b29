"""Slices: long work on requests, as generators that run for a limited time in each turn.

A generator yields after each small step. Its first slice runs immediately and is enough for most
requests. The rest is queued. Each turn of the loop runs one slice of one request, round robin, so
that other connections are served in between. Handlers use `RequestContext.in_slices`.

Large requests are decoded, served and encoded in slices too, but only one at a time. In this phase
a message uses about a hundred times its encoded size.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from barnabas.protocol.schema import Array
from barnabas.waiting.steps import UNFINISHED, run_slice

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from barnabas.protocol.schema import Message, Struct
    from barnabas.runtime.clock import Clock, Timer
    from barnabas.runtime.loop_watch import LoopWatch
    from barnabas.waiting.steps import Unfinished

T = TypeVar("T")
V = TypeVar("V")

# Limit of the first slice of a request, which runs in the turn that read the request.
FIRST_SLICE_MS = 2.0
# Limit of a slice of queued work. Each turn runs one.
SLICE_MS = 4.0
# Items that one step releases: plain items, and items that have arrays themselves.
_RELEASED_AT_ONCE = 256
_NESTED_RELEASED_AT_ONCE = 8
# Names that one step sorts.
_SORTED_AT_ONCE = 2_000


class Sliced(Protocol):
    """A request with queued work. The queue reports the end of the work to it."""

    @property
    def is_needed(self) -> bool:
        """Whether the result is still needed."""
        ...

    @property
    def source(self) -> tuple[str, str]:
        """API name and client, for log lines."""
        ...

    def on_work_done(self, spent_ms: float) -> None:
        """Handle the end of the work. `spent_ms` is the total time of the slices."""
        ...

    def on_work_failed(self, error: Exception) -> None:
        """Handle an exception that a step raised."""
        ...


class _Job:
    __slots__ = ("is_kept", "is_large", "request", "spent_ms", "steps")

    def __init__(
        self,
        steps: Generator[None, None, object],
        request: Sliced,
        *,
        is_large: bool,
        is_kept: bool,
    ) -> None:
        self.steps = steps
        self.request = request
        self.is_large = is_large
        # Whether the job runs to its end even if its result is not needed.
        self.is_kept = is_kept
        # Total time (ms) of the job's slices so far.
        self.spent_ms = 0.0


class SliceQueue:
    """Queue of the pending work of one event loop."""

    __slots__ = ("_clock", "_is_due", "_jobs", "_large", "_timer", "_waiting", "_watch")

    def __init__(self, clock: Clock, timer: Timer, watch: LoopWatch) -> None:
        self._clock = clock
        self._timer = timer
        # Measures the turns of the loop, and logs the request of each slow slice.
        self._watch = watch
        # Jobs in progress. The first one gets the next slice.
        self._jobs: deque[_Job] = deque()
        # Number of large jobs in progress (0 or 1), and the large jobs that wait for it.
        self._large = 0
        self._waiting: deque[_Job] = deque()
        # Whether a turn is scheduled. At most one is.
        self._is_due = False

    def __len__(self) -> int:
        return len(self._jobs) + len(self._waiting)

    def try_now(self, steps: Generator[None, None, T]) -> T | Unfinished:
        """Run the first slice.

        Returns:
            The result of the generator, or UNFINISHED. In that case pass the generator to `add`.
        """
        return run_slice(steps, self._clock, FIRST_SLICE_MS)

    def add(
        self,
        steps: Generator[None, None, object],
        request: Sliced,
        *,
        is_large: bool = False,
        is_kept: bool = False,
    ) -> None:
        """Run the steps in slices from the next turn on. Large jobs run one after the other.

        Jobs that are not kept end early if their result is no longer needed.
        """
        job = _Job(steps, request, is_large=is_large, is_kept=is_kept)
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
                self._watch.check(now_ms, began_ms, *job.request.source)
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
        """Run one slice of a job, and return whether the job has ended."""
        if not (job.is_kept or job.request.is_needed):
            job.steps.close()
            job.request.on_work_done(job.spent_ms)
            return True
        began_ms = self._clock.monotonic_ms()
        try:
            result = run_slice(job.steps, self._clock, SLICE_MS)
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001 - the request logs it; other jobs continue
            job.request.on_work_failed(error)
            return True
        job.spent_ms += self._clock.monotonic_ms() - began_ms
        if result is UNFINISHED:
            return False
        job.request.on_work_done(job.spent_ms)
        return True


def drained(items: dict[T, V]) -> Iterator[tuple[T, V]]:
    """Yield and remove the items of a dictionary. Freeing all at once may take too long."""
    for key in list(items):
        yield key, items.pop(key)


def sorted_gradually(names: list[str]) -> Generator[None, None, Iterator[str]]:
    """Sort names in steps. The returned iterator merges the sorted runs lazily."""
    runs: list[list[str]] = []
    for start in range(0, len(names), _SORTED_AT_ONCE):
        runs.append(sorted(names[start : start + _SORTED_AT_ONCE]))
        yield
    return heapq.merge(*runs)


def release(message: Message | Struct) -> Generator[None, None, None]:
    """Empty the arrays of a message that is no longer needed, in steps.

    Freeing 100,000 objects at once takes tens of milliseconds.
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
