"""Closing of idle files while no descriptor is free (EMFILE, ENFILE).

Logs keep files open after use. During a shortage, all logs are checked twice, some seconds apart.
Files unused in between are closed; their next use opens them again. A shortage does not indicate a
disk failure, so no directory goes offline.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.storage.log_dependencies import LogDependencies

_log = logging.getLogger(__name__)

# Interval between two checks. A file that has been sent from for longer may be closed; the client
# then retries.
_LOOK_AGAIN_MS = 2_000
_WARN_AGAIN_MS = 60_000


class DescriptorRelief:
    """Closes idle files while operations lack descriptors, and one more time after that."""

    __slots__ = (
        "_close_idle",
        "_dependencies",
        "_is_running",
        "_is_short",
        "_warned_ms",
        "shortages",
    )

    def __init__(self, dependencies: LogDependencies, close_idle: Callable[[], None]) -> None:
        """Create the relief; `close_idle` closes files of all logs unused since its last call."""
        self._dependencies = dependencies
        self._close_idle = close_idle
        self._is_running = False
        # Whether a shortage was reported since the last check.
        self._is_short = False
        # Time of the last warning (monotonic clock); None before the first.
        self._warned_ms: float | None = None
        # Number of operations that found no descriptor.
        self.shortages = 0

    def on_shortage(self) -> None:
        """Handle an operation that found no free descriptor."""
        self.shortages += 1
        self._is_short = True
        self._maybe_warn()
        if not self._is_running:
            self._is_running = True
            # Do not close files in the middle of the failed operation.
            self._dependencies.timer.call_soon(self._check)

    def _check(self) -> None:
        self._is_running = self._is_short
        self._is_short = False
        self._close_idle()
        if self._is_running:
            self._dependencies.timer.call_later(_LOOK_AGAIN_MS, self._check)

    def _maybe_warn(self) -> None:
        now_ms = self._dependencies.clock.monotonic_ms()
        if self._warned_ms is not None and now_ms - self._warned_ms < _WARN_AGAIN_MS:
            return
        self._warned_ms = now_ms
        _log.warning(
            "Operations are rejected and can be retried, because no file descriptor is "
            "free: shortages=%d. Raise the limit (ulimit -n, or LimitNOFILE= of the "
            "service)",
            self.shortages,
        )
