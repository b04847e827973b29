"""Records that a share partition has acquired at once (Kafka's InFlightBatch)."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from barnabas.server.share.records.record_run import RecordRun

if TYPE_CHECKING:
    from barnabas.server.share.records.record_state import RecordState


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
