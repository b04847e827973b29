"""Limits for costly requests: searches, downloads and examinations."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

    from barnabas.runtime.clock import Clock

# Parts of paths of requests that read many records, or that ask all brokers.
_COSTLY = ("/messages", "/message/", "download", "search", "export")
# Paths of pages that are costly only when their form was sent (the field `ask`).
_COSTLY_WHEN_ASKED = ("/doctor", "/why")
_CLIENTS_MAX = 10_000
_MINUTE_MS = 60_000.0


def is_costly(path: str, query: str) -> bool:
    """Return whether a request is costly.

    Args:
        path: The path without the prefix of a cluster.
        query: The query of the address.
    """
    if path.startswith(_COSTLY_WHEN_ASKED):
        return "ask=" in query
    return any(part in path for part in _COSTLY)


class RateLimit:
    """Counts costly requests of each client (token buckets).

    Args:
        per_minute: The number of requests in a minute, and at once after a quiet minute; 0 for any.
        clock: Refills the buckets.
    """

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self._per_minute = per_minute
        self._clock = clock
        # Requests that a client may send at once, and when that was counted (ms, monotonic clock).
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, client: Hashable) -> int:
        """Count a request.

        Returns:
            0, or after how many seconds the client may send the request again.
        """
        if not self._per_minute:
            return 0
        now_ms = self._clock.monotonic_ms()
        left, counted_ms = self._buckets.get(client, (float(self._per_minute), now_ms))
        refill_ms = _MINUTE_MS / self._per_minute
        left = min(float(self._per_minute), left + (now_ms - counted_ms) / refill_ms)
        wait_s = 0 if left >= 1 else math.ceil((1 - left) * refill_ms / 1000)
        self._buckets[client] = (left if wait_s else left - 1, now_ms)
        self._buckets.move_to_end(client)
        if len(self._buckets) > _CLIENTS_MAX:
            self._buckets.popitem(last=False)
        return wait_s
