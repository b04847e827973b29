"""Closes files that are not used when the process has no free descriptor (EMFILE, ENFILE).

Logs keep the files that they wrote and read last open. Under a shortage all of them are looked at,
and again some seconds later: what was not used in between is closed, and opened again when it is
needed. A shortage says nothing of the disk: no directory goes offline for it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.storage.doors import LogDoors

_log = logging.getLogger(__name__)

# Between two looks. A file whose slice is being sent for longer may be closed; its client asks
# again.
_LOOK_AGAIN_MS = 2_000
_WARN_AGAIN_MS = 60_000


class DescriptorRelief:
    """Runs while operations find no descriptor, and once more after that."""

    __slots__ = ("_close_idle", "_doors", "_is_running", "_is_short", "_warned_ms", "shortages")

    def __init__(self, doors: LogDoors, close_idle: Callable[[], None]) -> None:
        """`close_idle` closes in every log what was not used since it was called last."""
        self._doors = doors
        self._close_idle = close_idle
        self._is_running = False
        # Whether a shortage was reported since the last look.
        self._is_short = False
        # When the operator was warned last, by the monotonic clock; None: never.
        self._warned_ms: float | None = None
        # Operations that found no descriptor.
        self.shortages = 0

    def on_shortage(self) -> None:
        """An operation found no free descriptor."""
        self.shortages += 1
        self._is_short = True
        self._maybe_warn()
        if not self._is_running:
            self._is_running = True
            # Not in the midst of the operation that has just failed.
            self._doors.timer.call_soon(self._look)

    def _look(self) -> None:
        self._is_running = self._is_short
        self._is_short = False
        self._close_idle()
        if self._is_running:
            self._doors.timer.call_later(_LOOK_AGAIN_MS, self._look)

    def _maybe_warn(self) -> None:
        now_ms = self._doors.clock.monotonic_ms()
        if self._warned_ms is not None and now_ms - self._warned_ms < _WARN_AGAIN_MS:
            return
        self._warned_ms = now_ms
        _log.warning(
            "No file descriptor is free; operations that need one are refused and may be "
            "retried: shortages=%d. Raise the limit (ulimit -n, or LimitNOFILE= of the service)",
            self.shortages,
        )
