"""The state of a follower's fetching of one partition (Kafka's PartitionFetchState)."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.partition.results import UNKNOWN_EPOCH

# Earlier than every time. Not 0, since a monotonic clock may start at 0.
NOT_DELAYED = float("-inf")


class FetchPhase(Enum):
    """The next step for a partition. A *failed* partition has no state."""

    # The log may diverge from the leader's: truncate it before the first fetch.
    TRUNCATING = auto()
    FETCHING = auto()
    # The leader does not have the fetch offset: query the start and end of its log.
    OUT_OF_RANGE = auto()


class InitialFetchState(NamedTuple):
    """The parameters for a partition that a fetcher starts to fetch."""

    topic_id: bytes
    leader_id: int
    current_leader_epoch: int
    # The log end offset, or the high watermark of a log without epochs.
    fetch_offset: int
    # Whether the metadata has this replica in the ISR.
    is_in_isr: bool


class FetchState:
    """One partition of a fetcher. Each leader epoch has a new object."""

    __slots__ = (
        "current_leader_epoch",
        "delayed_until_ms",
        "errors_in_a_row",
        "fetch_offset",
        "is_in_isr",
        "is_syncing",
        "lag",
        "last_fetched_epoch",
        "logged_error",
        "phase",
        "topic_id",
    )

    def __init__(self, initial: InitialFetchState, phase: FetchPhase) -> None:
        self.topic_id = initial.topic_id
        # The leader epoch in all requests. Never changes.
        self.current_leader_epoch = initial.current_leader_epoch
        # Offset of the next fetch. Equals the log end offset after truncation.
        self.fetch_offset = initial.fetch_offset
        # Whether the metadata has this replica in the ISR. Moved by the manager.
        self.is_in_isr = initial.is_in_isr
        # Epoch of the last record below it. -1: the log has no epochs, so divergence cannot be
        # detected.
        self.last_fetched_epoch = UNKNOWN_EPOCH
        # Number of records behind the leader's high watermark. None before the first response.
        self.lag: int | None = None
        self.phase = phase
        # End of the backoff after an error, in monotonic ms.
        self.delayed_until_ms = NOT_DELAYED
        # Number of consecutive errors from the leader, and the last of them that was logged.
        self.errors_in_a_row = 0
        self.logged_error = ErrorCode.NONE
        # Whether appended records must be synced before the next fetch.
        self.is_syncing = False

    @property
    def may_change_fetchers(self) -> bool:
        """Whether another fetcher may continue: no query and no sync is pending."""
        return self.phase is FetchPhase.FETCHING and not self.is_syncing

    def is_ready(self, now_ms: float) -> bool:
        """Whether the next fetch may include the partition, apart from throttles."""
        return self.may_change_fetchers and self.delayed_until_ms <= now_ms
