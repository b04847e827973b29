"""The state of one assigned partition (Kafka's TopicPartitionState).

It has the position of the user, pause and revocation, and, as a `FetchState`, the fetch position
and the fetched records that the user has not received.

The states of its position follow Kafka's SubscriptionState. A partition begins without a position
and gets one from the group's committed offsets or by a reset (`OffsetReset`). If the leader epoch
is known, the position is validated. Only partitions in state FETCHING are fetched from. A seek is
allowed in every state.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.errors import ClientConfigError
from barnabas.client.fetch.fetch_buffer import FetchState
from barnabas.client.fetch.offset_lookups import EARLIEST, LATEST

if TYPE_CHECKING:
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["TRANSITIONS", "OffsetReset", "PositionState", "TopicPartitionState"]

_BY_DURATION = "by_duration:"
# ISO 8601 durations as Java's Duration parses them: days, hours, minutes and decimal seconds.
_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?"
    r"(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)
_UNITS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}


class OffsetReset(NamedTuple):
    """A strategy to choose the first offset of a partition."""

    # EARLIEST or LATEST; 0 for a duration.
    spec: int
    # For a duration: how far before the current time reading begins (ms).
    duration_ms: int = 0
    # auto.offset.reset=none: a missing offset is an error.
    is_none: bool = False

    @classmethod
    def earliest(cls) -> OffsetReset:
        """Begin at the first available record."""
        return cls(EARLIEST)

    @classmethod
    def latest(cls) -> OffsetReset:
        """Begin after the last record."""
        return cls(LATEST)

    @classmethod
    def parse(cls, text: str) -> OffsetReset:
        """Parse "earliest", "latest", "none" or "by_duration:PnDTnHnMn.nS".

        Raises:
            ClientConfigError: The text is none of these.
        """
        lowered = text.strip().lower()
        if lowered in ("earliest", "smallest"):
            return cls.earliest()
        if lowered in ("latest", "largest"):
            return cls.latest()
        if lowered == "none":
            return cls(0, is_none=True)
        if lowered.startswith(_BY_DURATION):
            found = _DURATION.fullmatch(text.strip()[len(_BY_DURATION) :])
            if found is not None and any(found.groups()):
                parts = found.groupdict()
                total = sum(float(parts[unit] or 0) * size for unit, size in _UNITS_MS.items())
                return cls(0, int(total))
        raise ClientConfigError(
            f"auto.offset.reset={text} is not one of: earliest, latest, none, "
            f"by_duration:PnDTnHnMn.nS"
        )

    def timestamp(self, now_ms: int) -> int:
        """Return the ListOffsets timestamp: EARLIEST, LATEST or ms since the epoch."""
        assert not self.is_none
        return self.spec or max(0, now_ms - self.duration_ms)


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
