"""Long work for a group, done in slices by the timers of its shard, between other requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.waiting.steps import SHORT_SLICE_MS, Unfinished, run_slice

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.coordinator.runtime.shards.shard_timers import ShardTimers
    from barnabas.runtime.clock import Clock

T = TypeVar("T")


class GroupSlices(Generic[T]):
    """Work of one sort for the groups of a shard. At most one piece of work per group runs."""

    __slots__ = ("_clock", "_name", "_on_done", "_running", "_timers")

    def __init__(
        self,
        name: str,
        timers: ShardTimers,
        clock: Clock,
        on_done: Callable[[str, T], CoordinatorResult[None]],
    ) -> None:
        """Create it without work.

        Args:
            name: the name of its timers.
            timers: run the slices.
            clock: measures the slices.
            on_done: returns the records of the result. Arguments: the group id, the result.
        """
        self._name = name
        self._timers = timers
        self._clock = clock
        self._on_done = on_done
        # Groups with unfinished work.
        self._running: set[str] = set()

    def is_running(self, group_id: str) -> bool:
        """Whether work for the group is unfinished."""
        return group_id in self._running

    def start(self, group_id: str, steps: Generator[None, None, T]) -> None:
        """Do the work from the next turn on, after the records of this turn are replayed."""
        self._running.add(group_id)
        self._timers.schedule((self._name, group_id), 0, lambda: self._slice(group_id, steps))

    def _slice(self, group_id: str, steps: Generator[None, None, T]) -> CoordinatorResult[None]:
        if group_id not in self._running:
            # The timer retries a slice that failed. The next heartbeat starts the work again.
            return CoordinatorResult(None)
        self._running.discard(group_id)
        result = run_slice(steps, self._clock, SHORT_SLICE_MS)
        if isinstance(result, Unfinished):
            self.start(group_id, steps)
            return CoordinatorResult(None)
        return self._on_done(group_id, result)
