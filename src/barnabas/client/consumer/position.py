"""One assigned partition as the consumer has it: its position, and what is being done about it.

A table of states as in Kafka's SubscriptionState: a partition begins without a position, finds one
in the group's commits or by resetting, has it validated where a leader's epoch is known, and is
fetched from only while it is FETCHING. A seek is allowed from anywhere.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.client.consumer.offset_reset import OffsetReset

__all__ = ["PartitionPosition", "PositionState"]


class PositionState(Enum):
    """What a partition waits for."""

    # For the group's committed offset, or its reset.
    INITIALIZING = "initializing"
    # For the offset that its reset strategy means.
    AWAIT_RESET = "await reset"
    # For its leader to confirm that the position's history is its own (KIP-320).
    AWAIT_VALIDATION = "await validation"
    # For records.
    FETCHING = "fetching"


_S = PositionState
_ALLOWED = {
    _S.INITIALIZING: frozenset({_S.AWAIT_RESET, _S.AWAIT_VALIDATION, _S.FETCHING}),
    _S.AWAIT_RESET: frozenset({_S.AWAIT_RESET, _S.AWAIT_VALIDATION, _S.FETCHING}),
    _S.AWAIT_VALIDATION: frozenset({_S.AWAIT_RESET, _S.AWAIT_VALIDATION, _S.FETCHING}),
    _S.FETCHING: frozenset({_S.AWAIT_RESET, _S.AWAIT_VALIDATION, _S.FETCHING}),
}


class PartitionPosition:
    """State and position of one assigned partition."""

    __slots__ = (
        "busy",
        "epoch",
        "failures",
        "is_paused",
        "is_revoking",
        "offset",
        "reset",
        "state",
        "version",
    )

    def __init__(self) -> None:
        self.state = _S.INITIALIZING
        # Offset of the record to be handed out next; -1 without a position. Moved by `advance`
        # when records are handed out, and by `seek`.
        self.offset = -1
        # Leader epoch of the record before it, -1 if not known.
        self.epoch = -1
        # How a position is to be found, while AWAIT_RESET.
        self.reset: OffsetReset | None = None
        # Whether a call for the present state is under way.
        self.busy = False
        # Calls for the present state that failed in a row.
        self.failures = 0
        # Counts the seeks and resets, so that answers to older questions are noticed.
        self.version = 0
        self.is_paused = False
        # Being taken away: nothing is handed out any more.
        self.is_revoking = False

    def _enter(self, state: PositionState) -> None:
        assert state in _ALLOWED[self.state], (self.state, state)
        self.state = state
        self.busy = False
        self.failures = 0
        self.version += 1

    @property
    def has_position(self) -> bool:
        """Whether there is a position, validated or not."""
        return self.state in (_S.FETCHING, _S.AWAIT_VALIDATION)

    @property
    def is_fetchable(self) -> bool:
        """Whether records may be handed out."""
        return self.state is _S.FETCHING and not self.is_paused and not self.is_revoking

    def seek(self, offset: int, epoch: int = -1) -> None:
        """Take a position; with an epoch it has to be validated first."""
        self.offset = offset
        self.epoch = epoch
        self.reset = None
        self._enter(_S.AWAIT_VALIDATION if epoch >= 0 else _S.FETCHING)

    def request_reset(self, reset: OffsetReset) -> None:
        """Forget the position; another one is to be found."""
        self.offset = self.epoch = -1
        self.reset = reset
        self._enter(_S.AWAIT_RESET)

    def request_validation(self) -> None:
        """A leader took over: what was read may not be in its log."""
        assert self.has_position, self.state
        self._enter(_S.AWAIT_VALIDATION)

    def validated(self) -> None:
        """The leader has what was read."""
        assert self.state is _S.AWAIT_VALIDATION, self.state
        self._enter(_S.FETCHING)

    def advance(self, offset: int, epoch: int) -> None:
        """Records before `offset` were handed out."""
        self.offset = offset
        if epoch >= 0:
            self.epoch = epoch
