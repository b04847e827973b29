"""The lifecycle of a shard: its states, and the events that change them.

            LOADED
LOADING ---------------> ACTIVE
   |  \\                    |
   |   \\ CLOSED            | CLOSED
   |    +------> CLOSED <--+
   | LOADING_FAILED   ^
   +--------> FAILED -+ CLOSED
"""

from __future__ import annotations

from enum import Enum


class ShardState(Enum):
    """The state of a shard. The values are tags of a metric."""

    # The log is replayed. Requests get COORDINATOR_LOAD_IN_PROGRESS.
    LOADING = "loading"
    # The shard handles requests and timers.
    ACTIVE = "active"
    # The log could not be read. Requests get NOT_COORDINATOR. The next leader epoch loads again.
    FAILED = "failed"
    # This broker lost the leadership, or it stops. This state is final.
    CLOSED = "closed"


class ShardEvent(Enum):
    """An event that changes the state of a shard."""

    # The whole log is replayed.
    LOADED = "loaded"
    # The log is unreadable, or its partition is not online.
    LOADING_FAILED = "loading failed"
    # The broker resigned, was elected in a newer leader epoch, or stops.
    CLOSED = "closed"


# Next state by event. An event that a state lacks cannot happen in it.
SHARD_STATES: dict[ShardState, dict[ShardEvent, ShardState]] = {
    ShardState.LOADING: {
        ShardEvent.LOADED: ShardState.ACTIVE,
        ShardEvent.LOADING_FAILED: ShardState.FAILED,
        ShardEvent.CLOSED: ShardState.CLOSED,
    },
    ShardState.ACTIVE: {ShardEvent.CLOSED: ShardState.CLOSED},
    ShardState.FAILED: {ShardEvent.CLOSED: ShardState.CLOSED},
    ShardState.CLOSED: {},
}
