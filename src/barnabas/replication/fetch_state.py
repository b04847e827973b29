"""Where a follower is with one partition (Kafka's PartitionFetchState)."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.results import UNKNOWN_EPOCH

# Of what has been tried and failed nothing is due; a monotonic clock may begin at 0.
NOT_DELAYED = float("-inf")


class FetchPhase(Enum):
    """What is to be done next. A partition that has *failed* has no state at all."""

    # The log may hold what the leader's does not: cut before anything is fetched.
    TRUNCATING = auto()
    FETCHING = auto()
    # The leader does not have the offset: ask where its log begins and ends.
    OUT_OF_RANGE = auto()


class InitialFetchState(NamedTuple):
    """A partition that a fetcher is to take on."""

    topic_id: bytes
    leader_id: int
    current_leader_epoch: int
    # Where to begin: the log end, or the high watermark of a log without epochs.
    fetch_offset: int


class FetchState:
    """One partition of a fetcher; a new object for each leader epoch."""

    __slots__ = (
        "current_leader_epoch",
        "delayed_until_ms",
        "errors_in_a_row",
        "fetch_offset",
        "is_syncing",
        "lag",
        "last_fetched_epoch",
        "phase",
        "told_error",
        "topic_id",
    )

    def __init__(self, initial: InitialFetchState, phase: FetchPhase) -> None:
        self.topic_id = initial.topic_id
        # Of the leadership that is followed; sent with every request, never changes.
        self.current_leader_epoch = initial.current_leader_epoch
        # Where the next fetch begins: the log end, once truncation is done.
        self.fetch_offset = initial.fetch_offset
        # Epoch of the last record below it; -1: the log has none, divergence cannot be told.
        self.last_fetched_epoch = UNKNOWN_EPOCH
        # Offsets behind the leader's high watermark; None until an answer said it.
        self.lag: int | None = None
        self.phase = phase
        # Backing off after an error; monotonic ms.
        self.delayed_until_ms = NOT_DELAYED
        # Answered by the leader since it answered records or nothing new; and the last one of them
        # that was logged.
        self.errors_in_a_row = 0
        self.told_error = ErrorCode.NONE
        # What was appended must be synced before a fetch may say that it is here.
        self.is_syncing = False

    def is_ready(self, now_ms: float) -> bool:
        """Whether it may be in the next fetch, throttles apart."""
        return (
            self.phase is FetchPhase.FETCHING
            and not self.is_syncing
            and self.delayed_until_ms <= now_ms
        )
