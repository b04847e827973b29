"""What a leader knows of one follower (Kafka's Replica and ReplicaState)."""

from __future__ import annotations

from barnabas.replication.results import UNKNOWN_OFFSET
from barnabas.storage.offset_metadata import LogOffsetMetadata

UNKNOWN_END = LogOffsetMetadata(UNKNOWN_OFFSET)
NO_BROKER_EPOCH = -1
# Longer ago than any replica.lag.time.max.ms; 0 would not do, a monotonic clock may begin there.
NEVER_MS = float("-inf")


class Replica:
    """One follower, as its fetches show it. Times are monotonic milliseconds."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "end",
        "last_caught_up_ms",
        "last_fetch_leader_log_end_offset",
        "last_fetch_ms",
        "log_start_offset",
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
        self.last_fetch_ms = NEVER_MS
        # The latest time at which it had all that we had. Never goes back within a leadership.
        self.last_caught_up_ms = NEVER_MS
        # Of the registration that fetched last; None until a fetch says it (KIP-903).
        self.broker_epoch: int | None = None

    @property
    def log_end_offset(self) -> int:
        """Offset behind the last record it has; -1 if unknown."""
        return self.end.message_offset

    def reset(
        self, now_ms: float, leader_log_end_offset: int, is_new_leader: bool, in_isr: bool
    ) -> None:
        """A leader epoch begins: members of the ISR count as caught up now, others as never."""
        self.last_caught_up_ms = now_ms if in_isr else NEVER_MS
        if is_new_leader:
            self.end = UNKNOWN_END
            self.log_start_offset = UNKNOWN_OFFSET
            self.last_fetch_leader_log_end_offset = UNKNOWN_OFFSET
            self.last_fetch_ms = NEVER_MS
            self.broker_epoch = None
        else:
            self.last_fetch_leader_log_end_offset = leader_log_end_offset
            self.last_fetch_ms = self.last_caught_up_ms

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
        if end.message_offset >= leader_log_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif end.message_offset >= self.last_fetch_leader_log_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.end = end
        self.log_start_offset = log_start_offset
        self.last_fetch_leader_log_end_offset = max(
            self.last_fetch_leader_log_end_offset, leader_log_end_offset
        )
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def is_caught_up(
        self, leader_log_end_offset: int, now_ms: float, lag_time_max_ms: float
    ) -> bool:
        """Whether it has everything, or had within the last `replica.lag.time.max.ms`."""
        return (
            self.end.message_offset == leader_log_end_offset
            or now_ms - self.last_caught_up_ms <= lag_time_max_ms
        )
