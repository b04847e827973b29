"""The states of a fetcher, and of its partitions in the order in which they are fetched next.

        QUERY_SENT, FETCH_SENT                   RESPONSE_RECEIVED
IDLE -------------------------> QUERYING, FETCHING --------------> IDLE
  |                                                                 ^
  | RECORDS_RECEIVED             PROCESSED                          |
  +------------------> PROCESSING ----------------------------------+
  | SYNC_STARTED                 SYNCED                             |
  +------------------> SYNCING -------------------------------------+
  | PAUSE_STARTED                PAUSE_ENDED                        |
  +------------------> PAUSED --------------------------------------+

Kafka: PartitionFetchState and PartitionStates.
"""

from __future__ import annotations

import logging
from enum import Enum, auto
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.partition.results import UNKNOWN_EPOCH, UNKNOWN_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.runtime.clock import Clock
    from barnabas.storage.topic_partition import TopicPartition

_log = logging.getLogger(__name__)


class FetcherState(Enum):
    """State of a fetcher: the event that it waits for."""

    # The hash of an enum is Python code. The states and events of each fetch are looked up.
    __hash__ = object.__hash__

    # Nothing, a new partition, or the end of a backoff.
    IDLE = auto()
    # The response to a query of epoch ends or offsets.
    QUERYING = auto()
    # The response to a fetch. The leader may hold it until it has data.
    FETCHING = auto()
    # The rest of a fetch response, which is processed in slices over several turns.
    PROCESSING = auto()
    # The sync of appended records, for flush.messages.
    SYNCING = auto()
    # The end of a pause between two fetches of a catch-up fetcher.
    PAUSED = auto()
    # An unexpected error stopped the fetcher. Its partitions are no longer fetched.
    DEAD = auto()
    # The manager closed the fetcher. This state is final.
    CLOSED = auto()


class FetcherEvent(Enum):
    """An event that changes the state of a fetcher."""

    __hash__ = object.__hash__

    QUERY_SENT = auto()
    FETCH_SENT = auto()
    # A response, or the failure of the request.
    RESPONSE_RECEIVED = auto()
    # The fetch is abandoned in favor of a new partition.
    FETCH_ABANDONED = auto()
    RECORDS_RECEIVED = auto()
    PROCESSED = auto()
    SYNC_STARTED = auto()
    SYNCED = auto()
    PAUSE_STARTED = auto()
    PAUSE_ENDED = auto()
    # An exception that nothing expects.
    FAILED = auto()
    CLOSED = auto()


_END = {FetcherEvent.FAILED: FetcherState.DEAD, FetcherEvent.CLOSED: FetcherState.CLOSED}

FETCHER_STATES: dict[FetcherState, dict[FetcherEvent, FetcherState]] = {
    FetcherState.IDLE: {
        FetcherEvent.QUERY_SENT: FetcherState.QUERYING,
        FetcherEvent.FETCH_SENT: FetcherState.FETCHING,
        FetcherEvent.RECORDS_RECEIVED: FetcherState.PROCESSING,
        FetcherEvent.SYNC_STARTED: FetcherState.SYNCING,
        FetcherEvent.PAUSE_STARTED: FetcherState.PAUSED,
        **_END,
    },
    FetcherState.QUERYING: {FetcherEvent.RESPONSE_RECEIVED: FetcherState.IDLE, **_END},
    FetcherState.FETCHING: {
        FetcherEvent.RESPONSE_RECEIVED: FetcherState.IDLE,
        FetcherEvent.FETCH_ABANDONED: FetcherState.IDLE,
        **_END,
    },
    FetcherState.PROCESSING: {FetcherEvent.PROCESSED: FetcherState.IDLE, **_END},
    FetcherState.SYNCING: {FetcherEvent.SYNCED: FetcherState.IDLE, **_END},
    FetcherState.PAUSED: {FetcherEvent.PAUSE_ENDED: FetcherState.IDLE, **_END},
    FetcherState.DEAD: {FetcherEvent.CLOSED: FetcherState.CLOSED},
    FetcherState.CLOSED: {FetcherEvent.CLOSED: FetcherState.CLOSED},
}


# Number of expected errors in a row after which a warning is logged. They take more than two
# seconds.
USUAL_ERRORS_MAX = 8
# Backoff after the first of them; it doubles up to `replica.fetch.backoff.ms`. A new leader that
# learns of its election after the follower would otherwise not be fetched from for a whole backoff,
# and no write could be committed in that time.
FIRST_BACKOFF_MS = 20.0

# Earlier than every time. Not 0, since a monotonic clock may start at 0.
NOT_DELAYED = float("-inf")


class FetchPhase(Enum):
    """The next step for a partition. A *failed* partition has no state."""

    # The log may diverge from the leader's: truncate it before the first fetch.
    TRUNCATING = auto()
    FETCHING = auto()
    # The leader does not have the fetch offset: query the start and end of its log.
    OUT_OF_RANGE = auto()
    # The leader has the fetch offset only in the remote tier: query where its local log starts.
    TIERED = auto()
    # The state at the end of a remote segment is loaded, to start the log there.
    BUILDING = auto()


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
        "leader_high_watermark",
        "leader_log_start_offset",
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
        # What the leader told when the partition became TIERED. -1: unknown.
        self.leader_log_start_offset = UNKNOWN_OFFSET
        self.leader_high_watermark = UNKNOWN_OFFSET

    @property
    def may_change_fetchers(self) -> bool:
        """Whether another fetcher may continue: no query and no sync is pending."""
        return self.phase is FetchPhase.FETCHING and not self.is_syncing

    def is_ready(self, now_ms: float) -> bool:
        """Whether the next fetch may include the partition, apart from throttles."""
        return self.may_change_fetchers and self.delayed_until_ms <= now_ms

    @property
    def usual_backoff_ms(self) -> float:
        """Limit of the backoff after an expected error. It grows with `errors_in_a_row`."""
        if self.errors_in_a_row > USUAL_ERRORS_MAX:
            return inf
        return FIRST_BACKOFF_MS * (1 << self.errors_in_a_row - 1)

    def begin_tiered(self, leader_log_start_offset: int, leader_high_watermark: int) -> None:
        """Skip the records that the leader has only in the remote tier, before the next fetch."""
        self.phase = FetchPhase.TIERED
        self.leader_log_start_offset = leader_log_start_offset
        self.leader_high_watermark = leader_high_watermark


class FailedPartitions:
    """Partitions that are not fetched until their leader changes."""

    __slots__ = ("_partitions",)

    def __init__(self) -> None:
        # A dict, for a stable order of iteration.
        self._partitions: dict[TopicPartition, None] = {}

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._partitions)

    def add(self, key: TopicPartition) -> None:
        """Add a partition whose fetching has failed."""
        self._partitions[key] = None

    def discard(self, keys: Iterable[TopicPartition]) -> None:
        """Remove partitions that are fetched again or are deleted."""
        for key in keys:
            self._partitions.pop(key, None)


class FetchStates:
    """Fetch states by partition. A partition with data or an error moves to the end of the order.

    A partition is *unchanged* if the leader's fetch session has its current parameters. The others
    are *changed*. Only changed partitions are checked before a fetch, since checks of thousands
    of idle partitions would dominate the cost of a follower. Each change of a state must call
    `mark_changed`.
    """

    __slots__ = ("_backoff_ms", "_changed", "_clock", "_failed", "_states", "_unchanged")

    def __init__(self, clock: Clock, backoff_ms: float, failed: FailedPartitions) -> None:
        self._clock = clock
        self._backoff_ms = backoff_ms
        self._failed = failed
        self._states: dict[TopicPartition, FetchState] = {}
        # Partitions to check. Includes removed ones, until the leader's session forgets them.
        self._changed: dict[TopicPartition, None] = {}
        # The unchanged partitions, least recently requested first.
        self._unchanged: dict[TopicPartition, None] = {}

    def __len__(self) -> int:
        return len(self._states)

    def get(self, key: TopicPartition) -> FetchState | None:
        """Return the state of a partition, or None if it is not fetched here."""
        return self._states.get(key)

    def items(self) -> list[tuple[TopicPartition, FetchState]]:
        """Return a copy of all states, in order."""
        return list(self._states.items())

    def put(self, key: TopicPartition, state: FetchState) -> None:
        """Add a partition at the end of the order, or replace its state in place."""
        self._states[key] = state
        self.mark_changed(key)

    def pop(self, key: TopicPartition) -> FetchState | None:
        """Remove a partition and return its state."""
        state = self._states.pop(key, None)
        if state is not None:
            self.mark_changed(key)
        return state

    def mark_changed(self, key: TopicPartition) -> None:
        """Make a partition changed, for example after a change of its state."""
        self._unchanged.pop(key, None)
        self._changed[key] = None

    def mark_some_changed(self, count: int) -> None:
        """Make the least recently requested unchanged partitions changed."""
        for key in list(islice(self._unchanged, count)):
            self.mark_changed(key)

    def mark_sent(self, key: TopicPartition) -> None:
        """Mark a partition as unchanged after a request with its current parameters."""
        del self._changed[key]
        if key in self._states:
            self._unchanged[key] = None

    def changed(self) -> list[TopicPartition]:
        """Return a copy of the changed partitions, which may include removed ones."""
        return list(self._changed)

    def move_to_end(self, key: TopicPartition) -> None:
        """Move a partition to the end of the order."""
        self._states[key] = self._states.pop(key)
        self._changed.pop(key, None)
        self.mark_changed(key)

    def delay(self, keys: Iterable[TopicPartition], limit_ms: float = inf) -> None:
        """Delay partitions by `replica.fetch.backoff.ms`, but at most by `limit_ms`.

        A delay in progress is not extended.
        """
        now_ms = self._clock.monotonic_ms()
        delay_ms = min(self._backoff_ms, limit_ms)
        for key in keys:
            state = self._states.get(key)
            if state is not None and state.delayed_until_ms <= now_ms:
                state.delayed_until_ms = now_ms + delay_ms
                self.move_to_end(key)

    def fail(self, key: TopicPartition) -> None:
        """Stop fetching a partition until its leader changes. The caller logs the reason."""
        self._states.pop(key, None)
        self._failed.add(key)

    def fail_unexpectedly(self, key: TopicPartition, occasion: str) -> None:
        """Stop fetching a partition and log the exception that is being handled.

        Args:
            occasion: the operation that raised the exception.
        """
        _log.exception(
            "Unexpected error, replication failed until the leader changes: partition=%s while=%s",
            key,
            occasion,
        )
        self.fail(key)

    def fence(self, key: TopicPartition, request_epoch: int) -> None:
        """Handle FENCED_LEADER_EPOCH: fail the partition, or delay it if its epoch has changed."""
        state = self._states.get(key)
        if state is None:
            return
        if state.current_leader_epoch == request_epoch:
            _log.info(
                "Fetching stopped until newer metadata: partition=%s fenced_leader_epoch=%d",
                key,
                request_epoch,
            )
            self.fail(key)
        else:
            self.delay([key])

    @property
    def are_ready(self) -> bool:
        """Whether no changed partition needs a truncation or a query before its next fetch."""
        return all(state.phase is FetchPhase.FETCHING for _, state in self._changed_states())

    def in_phase(self, phase: FetchPhase) -> list[tuple[TopicPartition, FetchState]]:
        """Return the partitions that are in that phase and not delayed."""
        now_ms = self._clock.monotonic_ms()
        return [
            (key, state)
            for key, state in self._changed_states()
            if state.phase is phase and state.delayed_until_ms <= now_ms
        ]

    def next_delay_ms(self) -> float | None:
        """Return the time in ms until the first delay ends, or None if no partition is delayed."""
        now_ms = self._clock.monotonic_ms()
        due = [
            state.delayed_until_ms
            for _, state in self._changed_states()
            if state.delayed_until_ms > now_ms
        ]
        return min(due) - now_ms if due else None

    def _changed_states(self) -> Iterator[tuple[TopicPartition, FetchState]]:
        for key in self._changed:
            state = self._states.get(key)
            if state is not None:
                yield key, state
