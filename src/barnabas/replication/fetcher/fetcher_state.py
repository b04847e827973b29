"""The states of a fetcher, and the events that change them.

        QUERY_SENT, FETCH_SENT                   RESPONSE_RECEIVED
IDLE -------------------------> QUERYING, FETCHING --------------> IDLE
  |                                                                 ^
  | RECORDS_RECEIVED             PROCESSED                          |
  +------------------> PROCESSING ----------------------------------+
  | SYNC_STARTED                 SYNCED                             |
  +------------------> SYNCING -------------------------------------+
  | PAUSE_STARTED                PAUSE_ENDED                        |
  +------------------> PAUSED --------------------------------------+
"""

from __future__ import annotations

from enum import Enum, auto

__all__ = ["FETCHER_STATES", "FetcherEvent", "FetcherState"]


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
