"""States of records that a share group has fetched, and their transitions (KIP-932)."""

from __future__ import annotations

from enum import IntEnum


class RecordState(IntEnum):
    """The state of a record in a share partition. The values are stored by share coordinators."""

    # The record can be acquired.
    AVAILABLE = 0
    # A member has the record until it acknowledges it or until the acquisition lock times out.
    ACQUIRED = 1
    # The record is processed. Terminal.
    ACKNOWLEDGED = 2
    # The record is not delivered again, but is not yet in the group's dead-letter topic (KIP-1191).
    ARCHIVING = 3
    # The record is not delivered again. Terminal.
    ARCHIVED = 4


# Transitions by requests and timeouts. A record is also archived in any state if its log or its
# transaction removes it.
TRANSITIONS: dict[RecordState, frozenset[RecordState]] = {
    RecordState.AVAILABLE: frozenset({RecordState.ACQUIRED}),
    RecordState.ACQUIRED: frozenset(
        {
            RecordState.AVAILABLE,
            RecordState.ACKNOWLEDGED,
            RecordState.ARCHIVING,
            RecordState.ARCHIVED,
        }
    ),
    RecordState.ARCHIVING: frozenset({RecordState.ARCHIVED}),
    RecordState.ACKNOWLEDGED: frozenset(),
    RecordState.ARCHIVED: frozenset(),
}

STATE_BY_VALUE: dict[int, RecordState] = {int(state): state for state in RecordState}


def is_terminal(state: RecordState) -> bool:
    """Whether the state is final."""
    return state is RecordState.ACKNOWLEDGED or state is RecordState.ARCHIVED


# Acknowledge types of the protocol.
GAP = 0
ACCEPT = 1
RELEASE = 2
REJECT = 3
RENEW = 4

# State after an acknowledgement. A renewal (KIP-1222) keeps the state. A rejected record of a group
# with a dead-letter topic is ARCHIVING.
STATE_BY_ACKNOWLEDGE_TYPE: dict[int, RecordState] = {
    GAP: RecordState.ARCHIVED,
    ACCEPT: RecordState.ACKNOWLEDGED,
    RELEASE: RecordState.AVAILABLE,
    REJECT: RecordState.ARCHIVED,
}
