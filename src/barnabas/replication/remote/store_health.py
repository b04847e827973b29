"""Reports failures of the remote store, and pauses copies that cannot succeed.

A store that refuses or is full refuses every copy. So after such an error all copies pause together
for half a minute, instead of each partition trying on its own. Other errors concern one call, and
its task retries. Each kind of failure is logged once a minute, with the number of those since, and
with what an operator can do.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from barnabas.replication.remote.copy_causes import CopyCause
from barnabas.storage.remote.remote_storage import (
    RemoteDamagedError,
    RemoteFullError,
    RemoteMissingError,
    RemoteRefusedError,
    RemoteStorageError,
    RemoteUnavailableError,
)

if TYPE_CHECKING:
    from barnabas.runtime.clock import Clock

_log = logging.getLogger(__name__)

# How long all copies pause after a refusal.
PAUSE_MS = 30_000.0
_LOGGED_EVERY_MS = 60_000.0

# The kind of each error of a store.
FAILURE_KINDS: dict[type[BaseException], CopyCause] = {
    RemoteUnavailableError: CopyCause.UNAVAILABLE,
    RemoteRefusedError: CopyCause.REFUSED,
    RemoteFullError: CopyCause.FULL,
    RemoteMissingError: CopyCause.MISSING,
    RemoteDamagedError: CopyCause.DAMAGED,
}
# What an operator can do, for the lines of the log.
_FIXES = {
    CopyCause.UNAVAILABLE: "check that the store runs or is mounted, and that it is reached",
    CopyCause.REFUSED: "check the rights of the broker in the store, its credentials and its clock",
    CopyCause.FULL: "free space in the store, or raise its limit",
    CopyCause.MISSING: "restore the object in the store; reads of its offsets fail until then",
    CopyCause.DAMAGED: "restore the object in the store; reads of its offsets fail until then",
    CopyCause.UNEXPECTED: "report the traceback to the author of the store",
}


def failure_kind(error: BaseException) -> CopyCause:
    """Return the kind of an error of the store."""
    kinds = (kind for each, kind in FAILURE_KINDS.items() if isinstance(error, each))
    return next(kinds, CopyCause.UNEXPECTED)


def fix_of(error: BaseException) -> str:
    """Return what an operator can do about an error of the store."""
    return _FIXES[failure_kind(error)]


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

    __slots__ = ("_clock", "_limit", "_pause", "_paused_until_ms", "failures")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._limit = FailureLimit(clock)
        # Until then no copy starts (monotonic, ms), and the kind of error that is the reason.
        self._paused_until_ms = 0.0
        self._pause: CopyCause | None = None
        # Failed calls since the start, by the kind of error.
        self.failures: Counter[CopyCause] = Counter()

    @property
    def pause_ms(self) -> float:
        """How long copies have to pause from now on; 0 if they may start."""
        return max(0.0, self._paused_until_ms - self._clock.monotonic_ms())

    @property
    def pause_cause(self) -> CopyCause | None:
        """The kind of error because of which copies pause; None if they may start."""
        return self._pause if self.pause_ms else None

    def on_failure(self, action: str, error: BaseException) -> None:
        """Count and log a failed call; pause the copies if each would fail."""
        kind = failure_kind(error)
        self.failures[kind] += 1
        must_pause = isinstance(error, (RemoteRefusedError, RemoteFullError))
        if must_pause:
            self._paused_until_ms = self._clock.monotonic_ms() + PAUSE_MS
            self._pause = kind
        if not isinstance(error, RemoteStorageError):
            # A store raises nothing else, so its author has to see where the error comes from.
            _log.error("Unexpected error of the remote store: action=%s", action, exc_info=error)
            return
        earlier = self._limit.count(error)
        if earlier is None:
            return
        _log.log(
            logging.ERROR if must_pause else logging.WARNING,
            "Remote store failed: action=%s error=%s earlier_failures=%d%s fix=%s",
            action,
            error,
            earlier,
            f" copies_pause_ms={PAUSE_MS:.0f}" if must_pause else "",
            _FIXES[kind],
        )
