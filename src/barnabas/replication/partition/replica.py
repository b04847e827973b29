"""The leader's state of one follower (Kafka's Replica and ReplicaState)."""

from __future__ import annotations

from typing import Protocol

from barnabas.replication.partition.results import UNKNOWN_OFFSET
from barnabas.storage.results import LogOffsetMetadata

UNKNOWN_END = LogOffsetMetadata(UNKNOWN_OFFSET)
NO_BROKER_EPOCH = -1
# Earlier than any replica.lag.time.max.ms. Not 0, since a monotonic clock may start at 0.
NEVER_MS = float("-inf")


class IdleFetches(Protocol):
    """A follower's session, in which the follower fetches from the log end without changes."""

    # Time of the session's last fetch, in monotonic ms.
    fetched_ms: float


class Replica:
    """The state of one follower, from its fetches. Times are in monotonic ms."""

    __slots__ = (
        "_last_caught_up_ms",
        "_last_fetch_ms",
        "broker_epoch",
        "broker_id",
        "end",
        "idle_fetches",
        "last_fetch_leader_log_end_offset",
        "log_start_offset",
        "refusals",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        # The follower's log end: the offset of its last fetch. Unknown until the first fetch from a
        # new leader. It decreases when the follower truncates.
        self.end = UNKNOWN_END
        # The follower's log start offset, for the low watermark. -1 until the first fetch.
        self.log_start_offset = UNKNOWN_OFFSET
        # The leader's log end offset at the last fetch. Within a leader epoch, it decreases only if
        # the leader truncates.
        self.last_fetch_leader_log_end_offset = UNKNOWN_OFFSET
        self._last_fetch_ms = NEVER_MS
        self._last_caught_up_ms = NEVER_MS
        # The sessions that record the time of fetches without changes. A follower has two for a
        # short time when a partition moves to another fetcher.
        self.idle_fetches: tuple[IdleFetches, ...] = ()
        # Number of consecutive fetches of the same records: the follower may reject the batch.
        self.refusals = 0
        # Broker epoch in the last fetch (KIP-903). None before the first fetch.
        self.broker_epoch: int | None = None

    @property
    def log_end_offset(self) -> int:
        """The follower's log end offset (exclusive). -1 if unknown."""
        return self.end.message_offset

    @property
    def last_fetch_ms(self) -> float:
        """The time of the last fetch."""
        idle_fetches = self.idle_fetches
        if not idle_fetches:
            return self._last_fetch_ms
        return max(self._last_fetch_ms, *(each.fetched_ms for each in idle_fetches))

    @property
    def last_caught_up_ms(self) -> float:
        """The latest time at which the follower had the whole log.

        Never decreases in a leader epoch.
        """
        idle_fetches = self.idle_fetches
        if not idle_fetches:
            return self._last_caught_up_ms
        return max(self._last_caught_up_ms, *(each.fetched_ms for each in idle_fetches))

    def join_idle_set(self, session: IdleFetches) -> None:
        """Take the times of fetches from the session too, until `leave_idle_set`."""
        if session not in self.idle_fetches:
            self.idle_fetches = (*self.idle_fetches, session)

    def leave_idle_set(self, session: IdleFetches) -> None:
        """Copy the times from a session, and detach it, if it is attached."""
        if session in self.idle_fetches:
            self._copy_idle_times()
            self.idle_fetches = tuple(each for each in self.idle_fetches if each is not session)

    def _copy_idle_times(self) -> None:
        self._last_caught_up_ms = self.last_caught_up_ms
        self._last_fetch_ms = self.last_fetch_ms

    def reset(
        self, now_ms: float, leader_log_end_offset: int, is_new_leader: bool, in_isr: bool
    ) -> None:
        """Start a leader epoch. ISR members count as caught up now, other replicas as never."""
        self.idle_fetches = ()
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

    def on_leader_truncated(self) -> None:
        """Forget the follower's log end: it may be above the leader's."""
        self.end = UNKNOWN_END
        self.last_fetch_leader_log_end_offset = UNKNOWN_OFFSET

    def update(
        self,
        end: LogOffsetMetadata,
        log_start_offset: int,
        now_ms: float,
        leader_log_end_offset: int,
        broker_epoch: int,
    ) -> None:
        """Record a fetch from `end`, while the leader's log ended at `leader_log_end_offset`.

        The follower is caught up now if it fetches from the leader's log end. It was caught up at
        its previous fetch if it now fetches from the log end of that time.
        """
        if self.idle_fetches:
            self._copy_idle_times()
        if end.message_offset >= leader_log_end_offset:
            self._last_caught_up_ms = max(self._last_caught_up_ms, now_ms)
        elif end.message_offset >= self.last_fetch_leader_log_end_offset:
            self._last_caught_up_ms = max(self._last_caught_up_ms, self._last_fetch_ms)
        if self.idle_fetches and end.message_offset < leader_log_end_offset:
            # The follower has truncated its log, so no session is at the log end.
            self.idle_fetches = ()
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
        """Whether the follower has the whole log, or had it within `replica.lag.time.max.ms`."""
        return (
            self.end.message_offset == leader_log_end_offset
            or now_ms - self.last_caught_up_ms <= lag_time_max_ms
        )
