"""Reports failures of the remote store, and pauses copies that cannot succeed.

A store that refuses or is full refuses every copy. So after such an error all copies pause together
for half a minute, instead of each partition trying on its own. Other errors concern one call, and
its task retries. Each kind of failure is logged once a minute, with the number of those since.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.storage.remote.remote_storage import (
    RemoteFullError,
    RemoteRefusedError,
    RemoteStorageError,
)

if TYPE_CHECKING:
    from barnabas.runtime.clock import Clock

_log = logging.getLogger(__name__)

# How long all copies pause after a refusal.
PAUSE_MS = 30_000.0
_LOGGED_EVERY_MS = 60_000.0


class FailureLimit:
    """Allows a line of the log for each kind of failure in a minute, and counts the others."""

    __slots__ = ("_clock", "_logged_ms", "_unlogged")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # When a failure of a kind was logged last, and the number of failures since.
        self._logged_ms: dict[type[BaseException], float] = {}
        self._unlogged: dict[type[BaseException], int] = {}

    def count(self, error: BaseException) -> int | None:
        """Count a failure.

        Returns:
            The number of unlogged failures of its kind before, if it is to be logged; else None.
        """
        kind, now_ms = type(error), self._clock.monotonic_ms()
        last_ms = self._logged_ms.get(kind)
        if last_ms is not None and now_ms - last_ms < _LOGGED_EVERY_MS:
            self._unlogged[kind] = self._unlogged.get(kind, 0) + 1
            return None
        self._logged_ms[kind] = now_ms
        return self._unlogged.pop(kind, 0)


class StoreHealth:
    """The latest failures of the store."""

    __slots__ = ("_clock", "_limit", "_paused_until_ms", "_reason", "failures")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._limit = FailureLimit(clock)
        # Until then no copy starts (monotonic, ms), and the error that is the reason.
        self._paused_until_ms = 0.0
        self._reason = ""
        # Failed calls since the start.
        self.failures = 0

    @property
    def pause_ms(self) -> float:
        """How long copies have to pause from now on; 0 if they may start."""
        return max(0.0, self._paused_until_ms - self._clock.monotonic_ms())

    @property
    def pause_reason(self) -> str:
        """The error because of which copies pause; empty if they may start."""
        return self._reason if self.pause_ms else ""

    def on_failure(self, action: str, error: BaseException) -> None:
        """Count and log a failed call; pause the copies if each would fail."""
        self.failures += 1
        must_pause = isinstance(error, (RemoteRefusedError, RemoteFullError))
        if must_pause:
            self._paused_until_ms = self._clock.monotonic_ms() + PAUSE_MS
            self._reason = str(error)
        if not isinstance(error, RemoteStorageError):
            # A store raises nothing else, so its author has to see where the error comes from.
            _log.error("Unexpected error of the remote store: action=%s", action, exc_info=error)
            return
        earlier = self._limit.count(error)
        if earlier is None:
            return
        _log.log(
            logging.ERROR if must_pause else logging.WARNING,
            "Remote store failed: action=%s error=%s earlier_failures=%d%s",
            action,
            error,
            earlier,
            f" copies_pause_ms={PAUSE_MS:.0f}" if must_pause else "",
        )
