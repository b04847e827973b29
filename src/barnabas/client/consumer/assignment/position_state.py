"""The states of a partition's position, and the events that move it from one to another.

They follow Kafka's SubscriptionState. A partition begins without a position and gets one from the
group's committed offsets or by a reset. If the leader epoch is known, the position is validated.
Only partitions in state FETCHING are fetched from. A seek is allowed in every state.
"""

from __future__ import annotations

from enum import Enum

__all__ = ["TRANSITIONS", "PositionState"]


class PositionState(Enum):
    """The event that a partition waits for."""

    # Waits for the group's committed offset, or for the start of a reset.
    INITIALIZING = "initializing"
    # Waits for the offset that its reset strategy selects.
    AWAIT_RESET = "await reset"
    # Waits for the leader to confirm that its log contains the position's history (KIP-320).
    AWAIT_VALIDATION = "await validation"
    # Waits for records.
    FETCHING = "fetching"


_S = PositionState

_SEEK = "seek, by the user or to the offset that was found"
_RESET = "reset, by the user or because there is no valid offset"
_LEADER = "another leader or a seek, when the leader epoch of the position is known"
_CONFIRMED = "the leader confirms the position, or a seek without a leader epoch"

# Each allowed transition with its trigger.
TRANSITIONS = {
    (_S.INITIALIZING, _S.AWAIT_RESET): _RESET,
    (_S.INITIALIZING, _S.AWAIT_VALIDATION): _SEEK,
    (_S.INITIALIZING, _S.FETCHING): _SEEK,
    (_S.AWAIT_RESET, _S.AWAIT_RESET): _RESET,
    (_S.AWAIT_RESET, _S.AWAIT_VALIDATION): _SEEK,
    (_S.AWAIT_RESET, _S.FETCHING): _SEEK,
    (_S.AWAIT_VALIDATION, _S.AWAIT_RESET): _RESET,
    (_S.AWAIT_VALIDATION, _S.AWAIT_VALIDATION): _SEEK,
    (_S.AWAIT_VALIDATION, _S.FETCHING): _CONFIRMED,
    (_S.FETCHING, _S.AWAIT_RESET): _RESET,
    (_S.FETCHING, _S.AWAIT_VALIDATION): _LEADER,
    (_S.FETCHING, _S.FETCHING): _SEEK,
}
