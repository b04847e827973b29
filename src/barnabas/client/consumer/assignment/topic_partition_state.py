"""The state of one assigned partition (Kafka's TopicPartitionState).

It has the position of the user, pause and revocation, and, as a `FetchState`, the fetch position
and the fetched records that the user has not received.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.consumer.assignment.position_state import TRANSITIONS, PositionState
from barnabas.client.fetch.fetch_state import FetchState

if TYPE_CHECKING:
    from barnabas.client.consumer.assignment.offset_reset import OffsetReset
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["TopicPartitionState"]

_S = PositionState


class TopicPartitionState(FetchState):
    """Position, pause, revocation and buffered records of one assigned partition."""

    __slots__ = (
        "epoch",
        "failures",
        "is_paused",
        "is_requesting",
        "is_revoking",
        "offset",
        "reset",
        "state",
        "version",
    )

    def __init__(self, tp: TopicPartition) -> None:
        super().__init__(tp)
        self.state = _S.INITIALIZING
        # Offset of the next record to return; -1 without a position. Moved by `advance` when
        # records are returned, and by `seek`. Invariant in state FETCHING: offset <= fetch_offset,
        # unless the partition is stopped.
        self.offset = -1
        # Leader epoch of the record before the position; -1 if unknown. Moves with `offset`.
        self.epoch = -1
        # The reset strategy. Invariant: set exactly in state AWAIT_RESET.
        self.reset: OffsetReset | None = None
        # Whether a request for the current state is in flight, or waits for its retry backoff.
        # Set by `Positions`, cleared by it and by every change of the state.
        self.is_requesting = False
        # Number of consecutive failed requests for the current state.
        self.failures = 0
        # Number of changes of the state; a response to a request of an older version is ignored.
        self.version = 0
        # Whether the user has paused the partition; changed by `FetchCollector`.
        self.is_paused = False
        # Whether the group takes the partition away; changed by `FetchCollector`.
        self.is_revoking = False

    @property
    def is_held(self) -> bool:
        """Whether the partition is neither fetched nor its records returned."""
        return self.is_paused or self.is_revoking

    @property
    def is_fetchable(self) -> bool:
        """Whether the partition is fetched now."""
        return not (self.is_stopped or self.is_delayed or self.is_paused or self.is_revoking)

    @property
    def has_position(self) -> bool:
        """Whether there is a position, validated or not."""
        return self.state in (_S.FETCHING, _S.AWAIT_VALIDATION)

    def start(self, offset: int, epoch: int = -1, leader_epoch: int = -1) -> None:
        """Start fetching at the position; see `FetchState.start`."""
        assert self.state is _S.FETCHING, (self.tp, self.state)
        assert offset == self.offset, (self.tp, offset, self.offset)
        super().start(offset, epoch, leader_epoch)

    def _enter(self, state: PositionState) -> None:
        assert (self.state, state) in TRANSITIONS, (self.tp, self.state, state)
        assert (self.reset is not None) == (state is _S.AWAIT_RESET), (self.tp, state, self.reset)
        self.state = state
        self.is_requesting = False
        self.failures = 0
        self.version += 1

    def seek(self, offset: int, epoch: int = -1) -> None:
        """Set the position; with a leader epoch it must be validated before fetching.

        The caller sets `topic_id` if the offset may belong to another topic than before.
        """
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
        assert self.has_position, (self.tp, self.state)
        self._enter(_S.AWAIT_VALIDATION)

    def validated(self) -> None:
        """Allow fetching: the leader has confirmed the position."""
        assert self.state is _S.AWAIT_VALIDATION, (self.tp, self.state)
        self._enter(_S.FETCHING)

    def advance(self, offset: int, epoch: int) -> None:
        """Move the position after records were returned, or back after they were given back.

        Args:
            offset: The offset after the last returned record.
            epoch: The leader epoch of that record; -1 if unknown.
        """
        assert self.state is _S.FETCHING, (self.tp, self.state)
        assert offset <= self.fetch_offset, (
            f"PositionsInOrder: {self.tp} offset={offset} fetch_offset={self.fetch_offset}"
        )
        self.offset = offset
        if epoch >= 0:
            self.epoch = epoch
