"""Admits copies of segments, in the order in which they were requested.

As many copies run as there are threads for them. No copy starts while the store refuses all of
them, above the quota of the broker (KIP-956), or while the broker knows too many segments.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from barnabas.replication.remote.copy_causes import CopyCause

if TYPE_CHECKING:
    from barnabas.replication.remote.remote_quota import RemoteQuota
    from barnabas.replication.remote.store_health import StoreHealth
    from barnabas.waiting.timing_wheel import TimingWheel, WheelEntry

_log = logging.getLogger(__name__)

# Kafka's copies check the quota again after this time.
_QUOTA_RETRY_MS = 1_000.0
# Copies wait this long for room among the known segments.
_ROOM_RETRY_MS = 30_000.0


class WaitingCopy(Protocol):
    """A copy that waits for its turn."""

    def on_admitted(self) -> None:
        """Start. The copy then calls `CopySlots.release` exactly once, perhaps in this call."""
        ...


class CopySlots:
    """The copies that run and those that wait."""

    __slots__ = (
        "_count",
        "_health",
        "_is_admitting",
        "_is_closed",
        "_is_room_logged",
        "_retry",
        "_running",
        "_waiting",
        "_wheel",
        "has_room",
        "quota",
    )

    def __init__(
        self, count: int, quota: RemoteQuota, health: StoreHealth, wheel: TimingWheel
    ) -> None:
        assert count > 0, count
        # Copies that may run at a time. Set by `resize`.
        self._count = count
        # Copies count their bytes here when they start.
        self.quota = quota
        self._health = health
        self._wheel = wheel
        # The waiting copies, the oldest first; at most one for each led partition.
        self._waiting: dict[WaitingCopy, None] = {}
        self._running = 0
        # Whether the broker may know more segments. Set by the sweep.
        self.has_room = True
        # Whether the present lack of room is in the log.
        self._is_room_logged = False
        # The next look after a pause; None if nothing delays the waiting copies.
        self._retry: WheelEntry | None = None
        self._is_admitting = False
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """Number of copies that wait."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Number of copies that run."""
        return self._running

    @property
    def pause(self) -> CopyCause | None:
        """Why no copy starts now; None if nothing prevents it."""
        cause = self._health.pause_cause
        if cause is not None:
            return cause
        if not self.has_room:
            return CopyCause.SEGMENTS_MAX
        return CopyCause.QUOTA if self.quota.is_exceeded else None

    def request(self, copy: WaitingCopy) -> None:
        """Call `copy.on_admitted` when it is its turn, perhaps at once."""
        assert copy not in self._waiting, "the copy waits already"
        self._waiting[copy] = None
        self._admit()

    def withdraw(self, copy: WaitingCopy) -> None:
        """Forget a waiting copy; no effect if it does not wait."""
        self._waiting.pop(copy, None)

    def release(self) -> None:
        """End an admitted copy."""
        assert self._running > 0, "no copy was admitted"
        self._running -= 1
        self._admit()

    def resize(self, count: int) -> None:
        """Change the number of copies that may run at a time."""
        assert count > 0, count
        self._count = count
        self._admit()

    def close(self) -> None:
        """Admit no more copies."""
        self._is_closed = True
        self._waiting.clear()
        if self._retry is not None:
            self._retry.cancel()

    def _admit(self) -> None:
        # A copy may be released while it is admitted: the outer call goes on then.
        if self._is_admitting or self._is_closed:
            return
        self._is_admitting = True
        try:
            while self._waiting and self._running < self._count and not self._must_wait():
                copy = next(iter(self._waiting))
                del self._waiting[copy]
                self._running += 1
                copy.on_admitted()
        finally:
            self._is_admitting = False

    def _must_wait(self) -> bool:
        cause = self.pause
        self._log_room(cause)
        if cause is None:
            return False
        if self._retry is None:
            if cause is CopyCause.SEGMENTS_MAX:
                delay_ms = _ROOM_RETRY_MS
            elif cause is CopyCause.QUOTA:
                delay_ms = _QUOTA_RETRY_MS
                self.quota.on_throttled(delay_ms)
            else:
                delay_ms = self._health.pause_ms
            self._retry = self._wheel.add(delay_ms, self._look_again)
        return True

    def _log_room(self, cause: CopyCause | None) -> None:
        """Log once that the broker knows too many segments, until it has room again."""
        if self.has_room:
            self._is_room_logged = False
        elif cause is CopyCause.SEGMENTS_MAX and not self._is_room_logged:
            self._is_room_logged = True
            _log.warning(
                "Copies to the remote tier wait: the broker knows as many segments as it may: "
                "waiting=%d fix=raise barnabas.remote.segments.max or segment.bytes, or shorten "
                "retention.ms",
                len(self._waiting),
            )

    def _look_again(self) -> None:
        self._retry = None
        self._admit()
