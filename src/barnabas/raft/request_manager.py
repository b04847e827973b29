"""One request at a time to each destination, time-out and back-off (Kafka's RequestManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from barnabas.raft.roles import NEVER

if TYPE_CHECKING:
    from barnabas.raft.messages import Request
    from barnabas.runtime.rng import Rng

# A destination that fails again and again is asked this much more seldom, at most.
_BACKOFF_FACTOR_MAX = 8


class _Destination(msgspec.Struct):
    """What is known of one destination."""

    # Number of the request that waits for its answer; 0 if none does.
    token: int = 0
    # When the destination may be asked (again); a request in flight counts as lost by then.
    ready_at: float = -NEVER
    # Failures in a row.
    failures: int = 0


class RequestManager:
    """Numbers requests, and knows which answers are still of interest."""

    __slots__ = ("_backoff_ms", "_destinations", "_in_flight", "_last_token", "_rng", "_timeout_ms")

    def __init__(self, timeout_ms: float, backoff_ms: float, rng: Rng) -> None:
        self._timeout_ms = timeout_ms
        self._backoff_ms = backoff_ms
        self._rng = rng
        self._last_token = 0
        self._destinations: dict[int, _Destination] = {}
        # Token -> (destination, request) of answers that are of interest.
        self._in_flight: dict[int, tuple[int, Request]] = {}

    def ready_at(self, destination: int) -> float:
        """When the destination may be sent a request: now if that is past."""
        known = self._destinations.get(destination)
        return -NEVER if known is None else known.ready_at

    def is_backing_off(self, destination: int, now_ms: float) -> bool:
        """Whether the last request failed and it is not yet time for another."""
        known = self._destinations.get(destination)
        return known is not None and known.token == 0 and known.ready_at > now_ms

    def busy_until(self, now_ms: float) -> float:
        """When the last of all requests in flight counts as lost; the past if none is."""
        waiting = [each.ready_at for each in self._destinations.values() if each.token]
        return max((at for at in waiting if at > now_ms), default=-NEVER)

    def sent(self, destination: int, request: Request, now_ms: float) -> Request:
        """Number a request that is about to be sent; returns it with its token."""
        known = self._destinations.setdefault(destination, _Destination())
        assert now_ms >= known.ready_at, (destination, now_ms, known)
        self._in_flight.pop(known.token, None)
        self._last_token += 1
        known.token = self._last_token
        known.ready_at = now_ms + self._timeout_ms
        numbered = replace(request, token=known.token)
        self._in_flight[known.token] = (destination, numbered)
        return numbered

    def take(self, token: int) -> tuple[int, Request] | None:
        """The request that was answered, or failed; None if nobody is interested any more."""
        found = self._in_flight.pop(token, None)
        if found is not None:
            known = self._destinations[found[0]]
            known.token = 0
            known.ready_at = -NEVER
        return found

    def succeeded(self, destination: int) -> None:
        """The answer was a good one."""
        known = self._destinations.get(destination)
        if known is not None:
            known.failures = 0

    def failed(self, destination: int, now_ms: float) -> None:
        """There was no answer, or one that asks for patience."""
        known = self._destinations.setdefault(destination, _Destination())
        factor = min(1 << min(known.failures, 10), _BACKOFF_FACTOR_MAX)
        known.failures += 1
        # Spread by a fifth either way.
        known.ready_at = now_ms + self._backoff_ms * factor * (0.8 + 0.4 * self._rng.random())

    def reset(self) -> None:
        """The role has changed: no answer to what was asked before is of interest."""
        self._destinations.clear()
        self._in_flight.clear()
