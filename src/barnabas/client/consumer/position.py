"""State and position of one assigned partition.

The states follow Kafka's SubscriptionState. A partition begins without a position and gets one from
the group's committed offsets or by a reset. If the leader epoch is known, the position is
validated. Only partitions in state FETCHING are fetched from. A seek is allowed in every state.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.client.consumer.offset_reset import OffsetReset

__all__ = ["PartitionPosition", "PositionState"]


class PositionState(Enum):
    """What a partition waits for."""

    # Waits for the group's committed offset, or for the start of a reset.
    INITIALIZING = "initializing"
    # Waits for the offset that its reset strategy selects.
    AWAIT_RESET = "await reset"
    # Waits for the leader to confirm that its log contains the position's history (KIP-320).
    AWAIT_VALIDATION = "await validation"
    # Waits for records.
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
        # Offset of the next record to return; -1 without a position. Moved by `advance` when
        # records are returned, and by `seek`.
        self.offset = -1
        # Leader epoch of the record before the position; -1 if unknown.
        self.epoch = -1
        # The reset strategy; set only in state AWAIT_RESET.
        self.reset: OffsetReset | None = None
        # Whether a request for the current state is in flight, or waits for its retry backoff.
        self.busy = False
        # Number of consecutive failed requests for the current state.
        self.failures = 0
        # Incremented by every state change; a response to an older request is ignored.
        self.version = 0
        # Whether the user has paused the partition; changed by `pause` and `resume`.
        self.is_paused = False
        # Whether the partition is being revoked; then no records are returned.
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
        """Whether records of this partition may be returned."""
        return self.state is _S.FETCHING and not self.is_paused and not self.is_revoking

    def seek(self, offset: int, epoch: int = -1) -> None:
        """Set the position; with a leader epoch it must be validated before fetching."""
        self.offset = offset
        self.epoch = epoch
        self.reset = None
        self._enter(_S.AWAIT_VALIDATION if epoch >= 0 else _S.FETCHING)

    def request_reset(self, reset: OffsetReset) -> None:
        """Discard the position; `reset` selects the next one."""
        self.offset = self.epoch = -1
        self.reset = reset
        self._enter(_S.AWAIT_RESET)

    def request_validation(self) -> None:
        """Require validation: after a leader change, the log may lack records that were read."""
        assert self.has_position, self.state
        self._enter(_S.AWAIT_VALIDATION)

    def validated(self) -> None:
        """Start fetching: the leader has confirmed the position."""
        assert self.state is _S.AWAIT_VALIDATION, self.state
        self._enter(_S.FETCHING)

    def advance(self, offset: int, epoch: int) -> None:
        """Move the position to `offset` after the records before it were returned."""
        self.offset = offset
        if epoch >= 0:
            self.epoch = epoch
