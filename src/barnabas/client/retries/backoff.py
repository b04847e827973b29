"""Exponential backoff with jitter, as Kafka's clients wait between attempts (KIP-580)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.network.reconnect_backoff import exponential_ms

if TYPE_CHECKING:
    from barnabas.runtime.rng import Rng

__all__ = ["Backoff"]

_JITTER = 0.2


class Backoff:
    """Delay per attempt: doubles from `initial_ms` up to `max_ms`, plus or minus 20 %."""

    __slots__ = ("_initial_ms", "_max_ms", "_rng")

    def __init__(self, rng: Rng, initial_ms: float, max_ms: float) -> None:
        self._rng = rng
        self._initial_ms = initial_ms
        self._max_ms = max(initial_ms, max_ms)

    def delay_ms(self, attempts: int) -> float:
        """Return how long (ms) to wait after `attempts` failed attempts; 0 counts as 1."""
        delay = exponential_ms(self._initial_ms, self._max_ms, attempts)
        return delay * (1 + _JITTER * (2 * self._rng.random() - 1))
