"""Supervision of the user's polls (max.poll.interval.ms, KIP-62)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.loop import Runtime
    from barnabas.runtime.timer import Cancellable

__all__ = ["PollWatch"]


class PollWatch:
    """Reports that the user has not polled for max.poll.interval.ms, between `start` and `stop`.

    Args:
        runtime: Provides clock and timers.
        max_interval_ms: Longest time between two polls (ms).
        on_missed: Called once, after which the watch is stopped.
    """

    __slots__ = ("_clock", "_last_ms", "_max_interval_ms", "_on_missed", "_timer", "_timers")

    def __init__(
        self, runtime: Runtime, max_interval_ms: float, on_missed: Callable[[], None]
    ) -> None:
        self._clock = runtime.clock
        self._timers = runtime.timer
        self._max_interval_ms = max_interval_ms
        self._on_missed = on_missed
        # Time of the last poll (ms, monotonic clock); moved by `on_poll`, never back.
        self._last_ms = self._clock.monotonic_ms()
        # Checks the interval; None while stopped.
        self._timer: Cancellable | None = None

    @property
    def last_ms(self) -> float:
        """Time of the last poll (ms, monotonic clock)."""
        return self._last_ms

    @property
    def is_missed(self) -> bool:
        """Whether max.poll.interval.ms has passed since the last poll."""
        return self._clock.monotonic_ms() >= self._last_ms + self._max_interval_ms

    def on_poll(self) -> None:
        """Record that the user polls."""
        self._last_ms = self._clock.monotonic_ms()

    def start(self) -> None:
        """Start the supervision, from the time of the last poll."""
        self.stop()
        due_ms = self._last_ms + self._max_interval_ms
        delay_ms = max(0.0, due_ms - self._clock.monotonic_ms())
        self._timer = self._timers.call_later(delay_ms, self._on_timer)

    def stop(self) -> None:
        """Stop the supervision; does nothing if it is stopped."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        if not self.report_if_missed():
            self.start()

    def report_if_missed(self) -> bool:
        """Stop and call `on_missed` if the interval has passed; return whether it has."""
        if not self.is_missed:
            return False
        self.stop()
        self._on_missed()
        return True
