"""A shard's timers, by key (Kafka's CoordinatorTimer).

A timer can be postponed and canceled. All timers end with the shard's leadership. A timer whose
operation raises runs again after a backoff: otherwise an expired member would stay forever, and
periodic work would end.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
    from barnabas.runtime.clock import Clock
    from barnabas.waiting.timing_wheel import TimingWheel, WheelEntry

    Operation = Callable[[], CoordinatorResult[None]]

# Delay after a failed operation, in ms. It doubles with each failure in a row, up to the maximum.
RETRY_MS = 500
RETRY_MS_MAX = 60_000


class _Delay:
    """One timer."""

    __slots__ = ("due_ms", "entry", "failures", "operation")

    def __init__(self, due_ms: float, operation: Operation) -> None:
        # Expiry in monotonic ms.
        self.due_ms = due_ms
        self.operation = operation
        # Number of failures in a row.
        self.failures = 0
        # Entry in the wheel, at `due_ms` or earlier. When it fires early, it is added again.
        self.entry: WheelEntry


class ShardTimers:
    """Operations that run later, unless they are postponed or canceled. Their records are written.

    Each heartbeat postpones a session timer, and sessions rarely expire. So a postponed timer keeps
    its entry in the wheel, and is added again when the entry fires.
    """

    __slots__ = ("_clock", "_delays", "_is_closed", "_on_failure", "_run", "_wheel")

    def __init__(
        self,
        wheel: TimingWheel,
        clock: Clock,
        run: Callable[[Operation], None],
        on_failure: Callable[[Hashable], None],
    ) -> None:
        """Create the timers of a shard.

        Args:
            wheel: the delays.
            clock: the monotonic clock.
            run: runs an operation and writes its records.
            on_failure: called with the key of a timer while the exception of its operation is
                handled.
        """
        self._wheel = wheel
        self._clock = clock
        self._run = run
        self._on_failure = on_failure
        # Scheduled timers by key. Invariant: each has an entry in the wheel.
        self._delays: dict[Hashable, _Delay] = {}
        # Set by `close`; never reset. A closed shard schedules no timers.
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._delays)

    def schedule(self, key: Hashable, delay_ms: float, operation: Operation) -> None:
        """Run `operation` after `delay_ms`, instead of the key's previous operation."""
        if self._is_closed:
            return
        due_ms = self._clock.monotonic_ms() + delay_ms
        delay = self._delays.get(key)
        if delay is not None:
            if delay.due_ms <= due_ms:
                delay.due_ms = due_ms
                delay.operation = operation
                return
            delay.entry.cancel()
        delay = self._delays[key] = _Delay(due_ms, operation)
        delay.entry = self._wheel.add(delay_ms, partial(self._on_due, key, delay))

    def is_scheduled(self, key: Hashable) -> bool:
        """Whether the key has a timer."""
        return key in self._delays

    def cancel(self, key: Hashable) -> None:
        """Cancel the key's timer, if any."""
        delay = self._delays.pop(key, None)
        if delay is not None:
            delay.entry.cancel()

    def close(self) -> None:
        """Cancel all timers permanently."""
        self._is_closed = True
        for delay in self._delays.values():
            delay.entry.cancel()
        self._delays.clear()

    def _on_due(self, key: Hashable, delay: _Delay) -> None:
        left_ms = delay.due_ms - self._clock.monotonic_ms()
        if left_ms > 0:
            delay.entry = self._wheel.add(left_ms, partial(self._on_due, key, delay))
            return
        del self._delays[key]
        try:
            self._run(delay.operation)
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - `_on_failure` reports it, and the timer is retried
            self._on_failure(key)
            self._retry(key, delay)

    def _retry(self, key: Hashable, failed: _Delay) -> None:
        """Run a failed operation again, or the one that it has scheduled, after the backoff."""
        delay_ms = min(RETRY_MS * 2.0**failed.failures, RETRY_MS_MAX)
        if key not in self._delays:
            self.schedule(key, delay_ms, failed.operation)
        again = self._delays.get(key)
        if again is not None:
            again.due_ms = max(again.due_ms, self._clock.monotonic_ms() + delay_ms)
            again.failures = failed.failures + 1
