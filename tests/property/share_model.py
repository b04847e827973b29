"""A slow, obvious model of a share partition: one entry for each offset."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from barnabas.server.share.records.record_states import RecordState

if TYPE_CHECKING:
    from barnabas.server.share.records.share_records import ShareRecords

TERMINAL = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


@dataclass(frozen=True)
class Entry:
    """The state of one offset."""

    state: RecordState
    deliveries: int
    member: str
    lock_ends_ms: float | None
    is_changing: bool


def entries(records: ShareRecords) -> dict[int, Entry]:
    """Return the state of each offset, after checks that every record is in one state."""
    found: dict[int, Entry] = {}
    previous_end = -1
    for batch in records.in_flight.batches:
        assert batch.first > previous_end
        previous_end = batch.last
        assert [run.first for run in batch.runs] == [
            batch.first,
            *(run.last + 1 for run in batch.runs[:-1]),
        ]
        assert batch.runs[-1].last == batch.last
        assert batch.is_by_offset or len(batch.runs) == 1
        for run in batch.runs:
            entry = Entry(
                run.state, run.delivery_count, run.member_id, run.lock_ends_ms, bool(run.change)
            )
            for offset in range(run.first, run.last + 1):
                found[offset] = entry
    return found


def acknowledged(entry: Entry, acknowledge_type: int, limit: int) -> Entry:
    """Return the entry after a written acknowledgement that is no renewal."""
    state = {
        0: RecordState.ARCHIVED,
        1: RecordState.ACKNOWLEDGED,
        2: RecordState.ARCHIVED if entry.deliveries >= limit else RecordState.AVAILABLE,
        3: RecordState.ARCHIVED,
    }[acknowledge_type]
    return replace(entry, state=state, member="", lock_ends_ms=None)


def timed_out(entry: Entry, is_below_start: bool, limit: int) -> Entry:
    """Return the entry after the timeout of its lock."""
    is_archived = is_below_start or entry.deliveries >= limit
    state = RecordState.ARCHIVED if is_archived else RecordState.AVAILABLE
    return replace(entry, state=state, member="", lock_ends_ms=None)
