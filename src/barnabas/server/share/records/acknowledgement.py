"""Acknowledgements of a member, and the release of its records (KIP-932, KIP-1222)."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.server.share.records.record_states import (
    NO_MEMBER,
    REJECT,
    RENEW,
    STATE_BY_ACKNOWLEDGE_TYPE,
    RecordState,
    StateChange,
    given_up_state,
    released_state,
    terminal_count,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.server.share.group_settings import ShareLimits
    from barnabas.server.share.records.in_flight_records import InFlightBatch, InFlightRecords
    from barnabas.server.share.records.record_states import RecordRun

# Maximum number of ranges in the acknowledgements of one partition. More than the record locks that
# a partition may have (10,000).
RANGES_MAX = 12_000

_INVALID_STATE = ErrorCode.INVALID_RECORD_STATE
_ABOVE_END = "The {} acknowledged offset is above the records in flight."


class AcknowledgedBatch(msgspec.Struct, frozen=True):
    """A range of acknowledged offsets, both inclusive."""

    first: int
    last: int
    # One type for all offsets, or one for each.
    types: Sequence[int]


class Refusal(msgspec.Struct, frozen=True):
    """The reason why acknowledgements are refused."""

    error: ErrorCode
    message: str


class Acknowledgement:
    """The acknowledgements of one member for one share partition. All succeed, or none."""

    __slots__ = (
        "_change",
        "_limits",
        "_lock_ends_ms",
        "_member_id",
        "_ranges",
        "_records",
        "renewed",
    )

    def __init__(
        self, records: InFlightRecords, member_id: str, lock_ends_ms: float, limits: ShareLimits
    ) -> None:
        """Begin.

        Args:
            records: the records of the share partition.
            member_id: the member that acknowledges.
            lock_ends_ms: when renewed locks time out, ms of the monotonic clock.
            limits: the configuration of the group.
        """
        self._records = records
        self._member_id = member_id
        self._lock_ends_ms = lock_ends_ms
        self._limits = limits
        self._change = StateChange()
        self._ranges = 0
        # First and last offset of each range of records whose locks were renewed, also if the
        # request is refused.
        self.renewed: list[tuple[int, int]] = []

    def run(self, batches: Sequence[AcknowledgedBatch]) -> StateChange | Refusal:
        """Change the states of the records. The caller writes them and ends the change."""
        for batch in batches:
            if batch.last < self._records.start_offset:
                continue
            refusal = self._acknowledge(batch)
            if refusal is not None:
                return self._undo(refusal)
        return self._change

    def _undo(self, refusal: Refusal) -> Refusal:
        # No lock has timed out since the beginning of this call.
        self._records.end_change(self._change, False, float("-inf"), self._limits)
        return refusal

    def _acknowledge(self, batch: AcknowledgedBatch) -> Refusal | None:
        found = self._find(batch)
        if isinstance(found, Refusal):
            return found
        for each in found:
            if each.last < self._records.start_offset:
                continue
            refusal = self._acknowledge_batch(each, batch)
            if refusal is not None:
                return refusal
        return None

    def _find(self, batch: AcknowledgedBatch) -> list[InFlightBatch] | Refusal:
        """Return the in-flight batches from the one with the first offset to the last offset."""
        records = self._records
        floor = records.floor(batch.first)
        if floor is None and batch.first < records.start_offset <= batch.last:
            floor = records.floor(records.start_offset)
        if floor is None:
            return Refusal(_INVALID_STATE, "The acknowledged records are not in flight.")
        found = records.between(floor.first, batch.last)
        if found[-1].last < batch.first:
            return Refusal(ErrorCode.INVALID_REQUEST, _ABOVE_END.format("first"))
        if batch.last > found[-1].last:
            return Refusal(ErrorCode.INVALID_REQUEST, _ABOVE_END.format("last"))
        return found

    def _acknowledge_batch(
        self, in_flight: InFlightBatch, batch: AcknowledgedBatch
    ) -> Refusal | None:
        start = self._records.start_offset
        if not in_flight.is_by_offset:
            refusal = refuse_batch(in_flight.whole, self._member_id)
            if refusal is not None:
                return refusal
        if (
            in_flight.is_by_offset
            or len(batch.types) > 1
            or not in_flight.is_within(batch.first, batch.last)
            or in_flight.first < start <= in_flight.last
        ):
            return self._acknowledge_offsets(in_flight, batch)
        return self._count_range() or self._change_run(in_flight.whole, batch.types[0])

    def _acknowledge_offsets(
        self, in_flight: InFlightBatch, batch: AcknowledgedBatch
    ) -> Refusal | None:
        first = max(in_flight.first, batch.first, self._records.start_offset)
        last = min(in_flight.last, batch.last)
        in_flight.is_by_offset = True
        for range_first, range_last, acknowledge_type in typed_ranges(batch, first, last):
            refusal = self._count_range()
            if refusal is not None:
                return refusal
            for run in in_flight.runs_in(range_first, range_last):
                refusal = refuse_offsets(run, self._member_id) or self._change_run(
                    run, acknowledge_type
                )
                if refusal is not None:
                    return refusal
        return None

    def _count_range(self) -> Refusal | None:
        self._ranges += 1
        if self._ranges <= RANGES_MAX:
            return None
        return Refusal(
            ErrorCode.INVALID_REQUEST,
            f"More than {RANGES_MAX} ranges are acknowledged for one partition.",
        )

    def _change_run(self, run: RecordRun, acknowledge_type: int) -> Refusal | None:
        if acknowledge_type == RENEW:
            if not self._limits.can_renew:
                return Refusal(
                    _INVALID_STATE, "The group does not allow to renew acquisition locks."
                )
            run.lock_ends_ms = self._lock_ends_ms
            if self.renewed and run.first == self.renewed[-1][1] + 1:
                self.renewed[-1] = (self.renewed[-1][0], run.last)
            else:
                self.renewed.append((run.first, run.last))
            return None
        state = STATE_BY_ACKNOWLEDGE_TYPE[acknowledge_type]
        if state is RecordState.AVAILABLE:
            state = released_state(run.delivery_count, self._limits)
        run.is_rejected = acknowledge_type == REJECT
        if run.is_rejected:
            state = given_up_state(self._limits)
        run.begin_change(self._change, state)
        self._records.delivery_complete_count += terminal_count(run, self._records.start_offset)
        return None


def refuse_batch(run: RecordRun, member_id: str) -> Refusal | None:
    """Return why a member may not acknowledge a batch with a single state; None if it may."""
    if run.member_id == NO_MEMBER:
        return Refusal(_INVALID_STATE, "The records are not acquired.")
    if run.member_id != member_id:
        return Refusal(_INVALID_STATE, "Another member has acquired the records.")
    return None


def refuse_offsets(run: RecordRun, member_id: str) -> Refusal | None:
    """Return why a member may not acknowledge offsets of a batch; None if it may."""
    if run.state is not RecordState.ACQUIRED:
        return Refusal(_INVALID_STATE, "A record is not acquired.")
    if run.member_id != member_id:
        return Refusal(_INVALID_STATE, "Another member has acquired a record.")
    return None


def typed_ranges(batch: AcknowledgedBatch, first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Yield first offset, last offset and type of each range from `first` to `last`."""
    if first > last:
        return
    if len(batch.types) == 1:
        yield first, last, batch.types[0]
        return
    offset = first
    for acknowledge_type, group in groupby(
        batch.types[first - batch.first : last - batch.first + 1]
    ):
        count = sum(1 for _ in group)
        yield offset, offset + count - 1, acknowledge_type
        offset += count


def release_member(records: InFlightRecords, member_id: str, limits: ShareLimits) -> StateChange:
    """Release all records of a member whose session has ended.

    Records below the start offset and records after their last delivery are archived.
    """
    change = StateChange()
    start = records.start_offset
    for batch in records.batches:
        if batch.is_by_offset or batch.first < start <= batch.last:
            runs = _owned(batch, member_id, start)
        else:
            runs = [batch.whole]
        for run in runs:
            if run.member_id != member_id or run.state is not RecordState.ACQUIRED:
                continue
            run.is_rejected = False
            state = released_state(run.delivery_count, limits)
            run.begin_change(change, RecordState.ARCHIVED if run.last < start else state)
            records.delivery_complete_count += terminal_count(run, start)
    return change


def _owned(batch: InFlightBatch, member_id: str, start: int) -> list[RecordRun]:
    """Return the runs of a batch, cut at the start offset if the member has records there."""
    if not any(run.member_id == member_id for run in batch.runs):
        return []
    return [*batch.runs_in(batch.first, start - 1), *batch.runs_in(start, batch.last)]
