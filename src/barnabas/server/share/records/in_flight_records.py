"""In-flight records of a share partition, in batches, and its offsets (Kafka's SharePartition).

These classes have no I/O and no clock. The operations of members are in `acquisition`,
`acknowledgement` and `share_records`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

import msgspec

from barnabas.server.share.records.record_states import (
    NO_MEMBER,
    STATE_BY_VALUE,
    RecordRun,
    RecordState,
    is_terminal,
    terminal_count,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from barnabas.server.share.group_settings import ShareLimits
    from barnabas.server.share.records.record_states import StateChange


class InFlightBatch:
    """Consecutive offsets, which share one state until they are tracked by offset.

    A batch that is tracked by offset has a run for each range of offsets with one state. Kafka has
    an object for each offset of such a batch. Hostile batches may have millions of offsets.
    """

    __slots__ = ("first", "is_by_offset", "last", "runs")

    def __init__(
        self, first: int, last: int, state: RecordState, delivery_count: int, member_id: str
    ) -> None:
        # Offsets of the first and the last record; constant.
        self.first = first
        self.last = last
        # Whether states of single offsets may differ. Never reset: responses about such a batch
        # list its offsets one by one.
        self.is_by_offset = False
        # All offsets, in order. Exactly one run unless `is_by_offset`.
        self.runs = [RecordRun(first, last, state, delivery_count, member_id)]

    def __len__(self) -> int:
        return self.last - self.first + 1

    @property
    def whole(self) -> RecordRun:
        """The only run of a batch that is not tracked by offset."""
        assert not self.is_by_offset, f"{self.first}-{self.last} is tracked by offset"
        return self.runs[0]

    def is_within(self, first: int, last: int) -> bool:
        """Whether all offsets of the batch are in the range."""
        return first <= self.first and self.last <= last

    def contains(self, offset: int) -> bool:
        """Whether the offset belongs to the batch."""
        return self.first <= offset <= self.last

    def run_at(self, offset: int) -> RecordRun:
        """Return the run with the offset. Offsets above the batch get its last run."""
        return self.runs[self._index(offset)]

    def _index(self, offset: int) -> int:
        return max(0, bisect_right(self.runs, offset, key=_first_of) - 1)

    def runs_in(self, first: int, last: int) -> list[RecordRun]:
        """Cut the runs at the borders of the range and return those inside it, in order.

        The batch is tracked by offset from then on.
        """
        self.is_by_offset = True
        first, last = max(first, self.first), min(last, self.last)
        if first > last:
            return []
        begin = self._cut(first)
        end = len(self.runs) if last == self.last else self._cut(last + 1)
        return self.runs[begin:end]

    def _cut(self, offset: int) -> int:
        """Make a run begin at `offset` and return its index."""
        index = self._index(offset)
        run = self.runs[index]
        if run.first == offset:
            return index
        self.runs.insert(index + 1, run.split(offset))
        return index + 1


def _first_of(run: RecordRun) -> int:
    return run.first


class StoredBatch(msgspec.Struct, frozen=True):
    """Offsets with one state, as a share coordinator stores them."""

    first: int
    last: int
    # Value of a RecordState.
    state: int
    delivery_count: int


class GapWindow(msgspec.Struct):
    """The offsets between stored batches, which a new leader must fetch again.

    A share coordinator does not know records that the previous leader acquired but that were never
    acknowledged. Later gaps between batches are gaps of the log.
    """

    # End offset when the state was loaded. The window ends when the end offset moves.
    end_offset: int
    # First offset of the window that was not fetched again.
    start_offset: int


class InFlightRecords:
    """Batches between start offset and end offset, and the offset of the next fetch."""

    __slots__ = (
        "_first_offsets",
        "batches",
        "delivery_complete_count",
        "end_offset",
        "gap_window",
        "has_available",
        "start_offset",
    )

    def __init__(self, start_offset: int) -> None:
        # The records below are processed. Moved by acknowledgements and by the log start offset;
        # never decreases.
        self.start_offset = start_offset
        # Last in-flight offset; without batches, the offset of the next fetch.
        self.end_offset = start_offset
        # Batches in ascending order, without overlaps. `_first_offsets` has their first offsets.
        self.batches: list[InFlightBatch] = []
        self._first_offsets: list[int] = []
        # Whether batches may have available records. Kafka's findNextFetchOffset.
        self.has_available = False
        self.gap_window: GapWindow | None = None
        # Number of terminal records from the start offset on, for the lag (KIP-1226).
        self.delivery_complete_count = 0

    @classmethod
    def load(cls, start_offset: int, stored: Iterable[StoredBatch]) -> InFlightRecords:
        """Return the records in the state that a share coordinator has.

        Raises:
            ValueError: a batch is below the start offset or overlaps another one, or a state is
                unknown.
        """
        loaded = cls(start_offset)
        gap_start = None
        next_offset = start_offset
        for each in stored:
            state = STATE_BY_VALUE.get(each.state)
            if each.first < next_offset or each.last < each.first or state is None:
                raise ValueError(f"invalid state batch: {each} start_offset={start_offset}")
            if gap_start is None and each.first > next_offset:
                gap_start = next_offset
            next_offset = each.last + 1
            batch = InFlightBatch(each.first, each.last, state, each.delivery_count, NO_MEMBER)
            loaded.add(batch)
            loaded.delivery_complete_count += terminal_count(batch.whole, start_offset)
        if loaded.batches:
            loaded.has_available = True
            loaded.end_offset = loaded.batches[-1].last
            if gap_start is not None:
                loaded.gap_window = GapWindow(loaded.end_offset, gap_start)
            loaded.advance()
        return loaded

    # Batches.

    def add(self, batch: InFlightBatch) -> None:
        """Add a batch at offsets that no other batch has."""
        index = bisect_left(self._first_offsets, batch.first)
        assert index == len(self.batches) or batch.last < self._first_offsets[index], (
            "batches overlap"
        )
        assert index == 0 or self.batches[index - 1].last < batch.first, "batches overlap"
        self.batches.insert(index, batch)
        self._first_offsets.insert(index, batch.first)

    def floor(self, offset: int) -> InFlightBatch | None:
        """Return the last batch that begins at or below the offset; None without one."""
        index = bisect_right(self._first_offsets, offset)
        return self.batches[index - 1] if index else None

    def between(self, first: int, last: int) -> list[InFlightBatch]:
        """Return the batches whose first offsets are in the range, which includes `last`."""
        return self.batches[
            bisect_left(self._first_offsets, first) : bisect_right(self._first_offsets, last)
        ]

    def overlapping(self, first: int, last: int) -> list[InFlightBatch]:
        """Return the batches with offsets in the range, which includes `last`."""
        floor = self.floor(first)
        if floor is not None and floor.last >= first:
            first = floor.first
        return self.between(first, last)

    def free_until(self, first: int, last: int) -> int:
        """Return the last offset up to `last` such that no batch has an offset from `first` on.

        The result is below `first` if a batch has this offset.
        """
        found = self.overlapping(first, last)
        return min(last, found[0].first - 1) if found else last

    def runs(self) -> Iterator[RecordRun]:
        """Yield all runs in order."""
        for batch in self.batches:
            yield from batch.runs

    @property
    def in_flight_count(self) -> int:
        """Number of offsets from start to end offset, which the limit of record locks bounds."""
        return self.end_offset - self.start_offset + 1 if self.batches else 0

    @property
    def is_gap_window_active(self) -> bool:
        """Whether gaps between the batches must be fetched again."""
        return self.gap_window is not None and self.gap_window.end_offset == self.end_offset

    def shrink_gap_window(self, offset: int) -> None:
        """Record that the gaps below the offset are acquired."""
        if self.gap_window is None:
            return
        if self.is_gap_window_active and offset <= self.gap_window.end_offset:
            self.gap_window.start_offset = offset
        else:
            self.gap_window = None

    # The next fetch.

    def next_fetch_offset(self) -> int:
        """Return the offset from which the log is read for the next acquisition."""
        if not self.batches or self.start_offset > self.batches[-1].last:
            self.has_available = False
            return self.end_offset
        if self.has_available:
            found = self._first_available()
            if found is not None:
                return found
            self.has_available = False
        return self.end_offset + 1

    def _first_available(self) -> int | None:
        """Return the first available offset of a batch, or of a gap that is fetched again."""
        gap = (
            self.gap_window.start_offset if self.is_gap_window_active and self.gap_window else None
        )
        for batch in self.batches:
            if gap is not None:
                if batch.first > gap:
                    return gap
                gap = max(batch.last + 1, gap)
            for run in batch.runs:
                if run.can_be_acquired:
                    return run.first
        return None

    def can_acquire(self, limits: ShareLimits) -> bool:
        """Whether a fetch may acquire records: some are available, or the limit is not reached."""
        if self.next_fetch_offset() != self.end_offset + 1:
            return True
        return self.in_flight_count < limits.record_locks_max

    # The start offset.

    def advance(self) -> bool:
        """Move the start offset above terminal records and drop their batches.

        Returns:
            Whether the start offset or the batches changed.
        """
        if not self._may_advance():
            return False
        last, terminal = self._last_processed()
        if last is None:
            return False
        if last == self.batches[-1].last:
            # The log start offset may be above all batches.
            self.start_offset = self.end_offset = max(self.start_offset, last + 1)
            self._drop_below(last + 1)
            self.delivery_complete_count = 0
            return True
        floor = self.floor(last)
        assert floor is not None, f"{last} belongs to a batch"
        if last == floor.last:
            self._start_at_batch_after(last)
            self._drop_below(last + 1)
        else:
            self.start_offset = max(self.start_offset, last + 1)
            self._drop_below(floor.first)
        self.delivery_complete_count -= terminal
        return True

    def _may_advance(self) -> bool:
        """Whether the record at the start offset is terminal."""
        floor = self.floor(self.start_offset)
        if floor is None:
            # A gap at the start offset, which is fetched again.
            return False
        run = floor.run_at(self.start_offset)
        return run.change is None and is_terminal(run.state)

    def _last_processed(self) -> tuple[int | None, int]:
        """Return the end of the terminal records at the beginning, inclusive, and their number.

        Only records from the start offset on are counted.
        """
        last: int | None = None
        terminal = 0
        gap = self.gap_window if self.is_gap_window_active else None
        for batch in self.batches:
            if gap is not None and batch.last >= gap.start_offset:
                break
            for run in batch.runs:
                if run.change is not None or not is_terminal(run.state):
                    return last, terminal
                last = run.last
                terminal += terminal_count(run, self.start_offset)
        return last, terminal

    def _start_at_batch_after(self, last: int) -> None:
        """Move the start offset to the next batch, or to the gap before it."""
        following = self.batches[bisect_right(self._first_offsets, last)].first
        if self.is_gap_window_active and self.gap_window is not None:
            following = min(self.gap_window.start_offset, following)
        self.start_offset = max(self.start_offset, following)

    def _drop_below(self, offset: int) -> None:
        """Drop the batches that begin below the offset."""
        count = bisect_left(self._first_offsets, offset)
        del self.batches[:count]
        del self._first_offsets[:count]

    # Records that the log has lost.

    def move_log_start(self, log_start_offset: int) -> bool:
        """Move the start offset to a new log start offset. Return whether it moved.

        Available records below are archived. Acquired records stay with their members until they
        are acknowledged or their lock times out; then they are archived.
        """
        if log_start_offset <= self.start_offset:
            return False
        if not self.batches:
            self.start_offset = self.end_offset = log_start_offset
            self.delivery_complete_count = 0
            return True
        self._cut_change(log_start_offset)
        self.delivery_complete_count -= self._terminal_below(log_start_offset)
        lost = (self.start_offset, log_start_offset - 1)
        if self._archive(self.batches, lost, RecordState.AVAILABLE, is_counted=False):
            self.has_available = True
        self.start_offset = log_start_offset
        self.end_offset = max(self.end_offset, log_start_offset)
        return True

    def _cut_change(self, offset: int) -> None:
        """Cut a run at the offset if it is being changed: its parts may get different states."""
        floor = self.floor(offset - 1)
        if floor is None or floor.last < offset:
            return
        if floor.run_at(offset - 1).change is not None:
            floor.runs_in(offset, floor.last)

    def _terminal_below(self, offset: int) -> int:
        """Return the number of terminal records from the start offset up to `offset`, exclusive."""
        return sum(
            terminal_count(run, self.start_offset) - terminal_count(run, offset)
            for batch in self.between(0, offset - 1)
            for run in batch.runs
        )

    def archive_compacted(self, fetch_offset: int, base_offset: int) -> None:
        """Archive available records that compaction has removed.

        Args:
            fetch_offset: where the log was read.
            base_offset: the first offset that the read has returned.
        """
        if not self.batches or fetch_offset >= base_offset:
            return
        lost = (fetch_offset, base_offset - 1)
        if self._archive(self.overlapping(*lost), lost, RecordState.AVAILABLE):
            self.has_available = True

    def archive_aborted(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Archive acquired records of aborted transactions. The ranges include their ends."""
        for lost in ranges:
            self._archive(self.overlapping(*lost), lost, RecordState.ACQUIRED)

    def _archive(
        self,
        batches: Iterable[InFlightBatch],
        lost: tuple[int, int],
        state: RecordState,
        *,
        is_counted: bool = True,
    ) -> bool:
        """Archive the records of a range that are in the state. Return whether there were some.

        Args:
            batches: batches to look at.
            lost: first and last offset of the range.
            state: state of the records that are archived.
            is_counted: whether they count as delivered. False below a new start offset.
        """
        found = False
        first, last = lost
        for batch in batches:
            if batch.first > last:
                break
            if batch.is_by_offset:
                runs = batch.runs_in(first, last)
            elif batch.whole.state is not state:
                continue
            elif batch.is_within(first, last):
                runs = batch.runs
            else:
                runs = batch.runs_in(first, last)
            for run in runs:
                if run.state is not state:
                    continue
                run.remove()
                found = True
                if is_counted:
                    self.delivery_complete_count += terminal_count(run, self.start_offset)
        return found

    # Changes that were written.

    def end_change(
        self, change: StateChange, is_written: bool, now_ms: float, limits: ShareLimits
    ) -> bool:
        """End a change after its write. Return whether the start offset moved."""
        for run in list(change.runs):
            terminal_before = terminal_count(run, self.start_offset)
            run.end_change(is_written, now_ms, limits)
            if run.state is RecordState.AVAILABLE and run.last < self.start_offset:
                run.remove()
            self.delivery_complete_count += terminal_count(run, self.start_offset) - terminal_before
            if run.state is RecordState.AVAILABLE:
                self.has_available = True
        return is_written and self.advance()

    def archiving(self) -> list[RecordRun]:
        """Return the records that wait for their dead-letter write."""
        return [run for run in self.runs() if run.state is RecordState.ARCHIVING]

    def end_archiving(self, first: int, last: int) -> list[RecordRun]:
        """Archive the records of a range whose dead-letter write has ended, and return them."""
        ended: list[RecordRun] = []
        for batch in self.overlapping(first, last):
            for run in batch.runs:
                is_inside = first <= run.first and run.last <= last
                if is_inside and run.state is RecordState.ARCHIVING and run.change is None:
                    run.archive()
                    self.delivery_complete_count += terminal_count(run, self.start_offset)
                    ended.append(run)
        return ended
