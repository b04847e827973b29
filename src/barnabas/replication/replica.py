"""What a leader knows of one follower (Kafka's Replica and ReplicaState)."""

from __future__ import annotations

from typing import Protocol

from barnabas.replication.results import UNKNOWN_OFFSET
from barnabas.storage.offset_metadata import LogOffsetMetadata

UNKNOWN_END = LogOffsetMetadata(UNKNOWN_OFFSET)
NO_BROKER_EPOCH = -1
# Longer ago than any replica.lag.time.max.ms; 0 would not do, a monotonic clock may begin there.
NEVER_MS = float("-inf")


class Pulse(Protocol):
    """A session of a follower that fetches from our log end, without news since it did so first."""

    # When it did so last.
    fetched_ms: float


class Replica:
    """One follower, as its fetches show it. Times are monotonic milliseconds."""

    __slots__ = (
        "_last_caught_up_ms",
        "_last_fetch_ms",
        "broker_epoch",
        "broker_id",
        "end",
        "last_fetch_leader_log_end_offset",
        "log_start_offset",
        "pulse",
        "refusals",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        # Its log end: the offset of its last fetch. Moved by fetches, unknown in a new leadership
        # until the first one; may go back when the follower truncates.
        self.end = UNKNOWN_END
        # Its log start, for the low watermark; -1 until the first fetch.
        self.log_start_offset = UNKNOWN_OFFSET
        # Our log end at its last fetch; never goes back within a leadership.
        self.last_fetch_leader_log_end_offset = UNKNOWN_OFFSET
        self._last_fetch_ms = NEVER_MS
        self._last_caught_up_ms = NEVER_MS
        # Tells of fetches that nobody noted here; None unless all of them found nothing new.
        self.pulse: Pulse | None = None
        # How often in a row it asked again for what it was sent: it refuses the batch, perhaps.
        self.refusals = 0
        # Of the registration that fetched last; None until a fetch says it (KIP-903).
        self.broker_epoch: int | None = None

    @property
    def log_end_offset(self) -> int:
        """Offset behind the last record it has; -1 if unknown."""
        return self.end.message_offset

    @property
    def last_fetch_ms(self) -> float:
        """When it fetched last."""
        pulse = self.pulse
        return self._last_fetch_ms if pulse is None else max(self._last_fetch_ms, pulse.fetched_ms)

    @property
    def last_caught_up_ms(self) -> float:
        """The latest time at which it had all that we had. Never goes back within a leadership."""
        pulse = self.pulse
        if pulse is None:
            return self._last_caught_up_ms
        return max(self._last_caught_up_ms, pulse.fetched_ms)

    def settle(self) -> None:
        """Note what the pulse tells: from now on each fetch is noted here again."""
        self._last_caught_up_ms = self.last_caught_up_ms
        self._last_fetch_ms = self.last_fetch_ms
        self.pulse = None

    def reset(
        self, now_ms: float, leader_log_end_offset: int, is_new_leader: bool, in_isr: bool
    ) -> None:
        """A leader epoch begins: members of the ISR count as caught up now, others as never."""
        self.pulse = None
        self._last_caught_up_ms = now_ms if in_isr else NEVER_MS
        if is_new_leader:
            self.end = UNKNOWN_END
            self.log_start_offset = UNKNOWN_OFFSET
            self.last_fetch_leader_log_end_offset = UNKNOWN_OFFSET
            self._last_fetch_ms = NEVER_MS
            self.broker_epoch = None
        else:
            self.last_fetch_leader_log_end_offset = leader_log_end_offset
            self._last_fetch_ms = self._last_caught_up_ms

    def update(
        self,
        end: LogOffsetMetadata,
        log_start_offset: int,
        now_ms: float,
        leader_log_end_offset: int,
        broker_epoch: int,
    ) -> None:
        """It fetched from `end` while our log ended at `leader_log_end_offset`.

        It is caught up now if it asked for what we do not have yet, and was caught up at its
        previous fetch if it asks for what we did not have then.
        """
        if self.pulse is not None:
            self.settle()
        if end.message_offset >= leader_log_end_offset:
            self._last_caught_up_ms = max(self._last_caught_up_ms, now_ms)
        elif end.message_offset >= self.last_fetch_leader_log_end_offset:
            self._last_caught_up_ms = max(self._last_caught_up_ms, self._last_fetch_ms)
        self.end = end
        self.log_start_offset = log_start_offset
        self.last_fetch_leader_log_end_offset = max(
            self.last_fetch_leader_log_end_offset, leader_log_end_offset
        )
        self._last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def is_caught_up(
        self, leader_log_end_offset: int, now_ms: float, lag_time_max_ms: float
    ) -> bool:
        """Whether it has everything, or had within the last `replica.lag.time.max.ms`."""
        return (
            self.end.message_offset == leader_log_end_offset
            or now_ms - self.last_caught_up_ms <= lag_time_max_ms
        )
