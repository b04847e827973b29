"""One request in flight per destination, with timeout and backoff (Kafka's RequestManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from barnabas.raft.core.roles import NEVER

if TYPE_CHECKING:
    from barnabas.raft.core.messages import Request
    from barnabas.runtime.rng import Rng

# Upper limit of the factor by which repeated failures lengthen the backoff.
_BACKOFF_FACTOR_MAX = 8


class _Destination(msgspec.Struct):
    """The request state of one destination."""

    # Token of the request in flight; 0 if there is none.
    token: int = 0
    # When a request may be sent. A request in flight counts as lost from this time on, ms.
    ready_at: float = -NEVER
    # Number of consecutive failures.
    failures: int = 0


class RequestManager:
    """Assigns tokens to requests, and matches responses to the requests in flight."""

    __slots__ = ("_backoff_ms", "_destinations", "_in_flight", "_last_token", "_rng", "_timeout_ms")

    def __init__(self, timeout_ms: float, backoff_ms: float, rng: Rng) -> None:
        self._timeout_ms = timeout_ms
        self._backoff_ms = backoff_ms
        self._rng = rng
        self._last_token = 0
        self._destinations: dict[int, _Destination] = {}
        # Token -> (destination, request) of the requests in flight.
        self._in_flight: dict[int, tuple[int, Request]] = {}

    def ready_at(self, destination: int) -> float:
        """Return when the destination may be sent a request, ms; a past time means now."""
        known = self._destinations.get(destination)
        return -NEVER if known is None else known.ready_at

    def is_backing_off(self, destination: int, now_ms: float) -> bool:
        """Return whether the last request failed and the backoff has not passed yet."""
        known = self._destinations.get(destination)
        return known is not None and known.token == 0 and known.ready_at > now_ms

    def busy_until(self, now_ms: float) -> float:
        """Return when the last request in flight counts as lost, ms.

        The result is a past time if no request is in flight.
        """
        waiting = [each.ready_at for each in self._destinations.values() if each.token]
        return max((at for at in waiting if at > now_ms), default=-NEVER)

    def sent(self, destination: int, request: Request, now_ms: float) -> Request:
        """Register a request that is about to be sent; returns it with its token."""
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
        """Return the request that a response or failure ends; None if it is no longer pending."""
        found = self._in_flight.pop(token, None)
        if found is not None:
            known = self._destinations[found[0]]
            known.token = 0
            known.ready_at = -NEVER
        return found

    def succeeded(self, destination: int) -> None:
        """Reset the failure count after a successful response."""
        known = self._destinations.get(destination)
        if known is not None:
            known.failures = 0

    def failed(self, destination: int, now_ms: float) -> None:
        """Start the backoff after a failure, or after a response that asks for a retry."""
        known = self._destinations.setdefault(destination, _Destination())
        factor = min(1 << min(known.failures, 10), _BACKOFF_FACTOR_MAX)
        known.failures += 1
        # A random factor between 0.8 and 1.2 spreads the retries.
        known.ready_at = now_ms + self._backoff_ms * factor * (0.8 + 0.4 * self._rng.random())

    def reset(self) -> None:
        """Forget all requests after a change of the role; late responses are ignored."""
        self._destinations.clear()
        self._in_flight.clear()
