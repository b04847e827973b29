"""The messages that a search has found, as rows of a list: a bounded number and size."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

from barnabas.console.search.columns import Row, Suggestions, row_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.console.messages.record_view import DecodedRecord
    from barnabas.console.search.columns import Column

# Characters of all rows of a search.
_CHARACTERS_MAX = 8 * 1024 * 1024
# Counted for each row besides its texts.
_ROW_CHARACTERS = 500


class _Entry(NamedTuple):
    """A row, ordered by the time and the place of its message."""

    time: int
    partition: int
    offset: int
    row: Row

    def __lt__(self, other: tuple[object, ...]) -> bool:
        return self[:3] < other[:3]


class Results:
    """The rows of a search.

    Args:
        columns: Columns of the list.
        limit: Maximum number of rows.
        keeps_newest: Whether further messages replace those with older timestamps. Otherwise the
            rows stay in the order in which they were found.
    """

    def __init__(self, columns: Sequence[Column], limit: int, *, keeps_newest: bool) -> None:
        self._columns = columns
        self._limit = limit
        self._keeps_newest = keeps_newest
        # In the order of the search; with `keeps_newest` a heap, the oldest first.
        self._entries: list[_Entry] = []
        self._characters = 0
        self.suggestions = Suggestions()
        # Changes with every change of the rows.
        self.version = 0
        # With `keeps_newest`: the end of the offsets of messages that were dropped, by partition.
        self.dropped: dict[int, int] = {}
        # Times by which messages are ordered, by partition: of the latest message, of the first one
        # of this window, and the lowest of earlier windows, which have higher offsets.
        self._latest: dict[int, int] = {}
        self._first: dict[int, int] = {}
        self._floor: dict[int, int] = {}

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._entries)

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached."""
        return len(self._entries) >= self._limit or self._characters >= _CHARACTERS_MAX

    @property
    def rows(self) -> list[Row]:
        """The rows; the newest first with `keeps_newest`."""
        entries = self._entries
        if self._keeps_newest:
            entries = sorted(entries, reverse=True)
        return [entry.row for entry in entries]

    def begin_window(self) -> None:
        """Expect messages with lower offsets than those until now; for `keeps_newest`."""
        self._floor.update(self._first)
        self._first.clear()
        self._latest.clear()

    def add(self, record: DecodedRecord) -> None:
        """Add a message. It must not be called when full, except with `keeps_newest`."""
        assert self._keeps_newest or not self.is_full, f"{len(self)} rows are the limit"
        place = (self._time(record), record.partition, record.offset)
        if self.is_full and place < self._entries[0][:3]:
            self._drop(record.partition, record.offset)
            return
        if self.is_full:
            oldest = heapq.heappop(self._entries)
            self._characters -= _characters(oldest.row)
            self._drop(oldest.partition, oldest.offset)
        row = row_of(record, self._columns)
        self.suggestions.add(record)
        self.version += 1
        self._characters += _characters(row)
        entry = _Entry(*place, row)
        if self._keeps_newest:
            heapq.heappush(self._entries, entry)
        else:
            self._entries.append(entry)

    def _time(self, record: DecodedRecord) -> int:
        """Return the time by which a message is ordered.

        It never falls as the offsets of a partition rise, unlike timestamps of producers. So the
        rows of a partition are its last messages, and a next page has all others.
        """
        number = record.partition
        time = max(record.timestamp, self._latest.get(number, record.timestamp))
        time = min(time, self._floor.get(number, time))
        self._latest[number] = time
        self._first.setdefault(number, time)
        return time

    def _drop(self, partition: int, offset: int) -> None:
        self.dropped[partition] = max(self.dropped.get(partition, 0), offset + 1)


def _characters(row: Row) -> int:
    message = row.message
    headers = sum(len(name) + len(value.text) for name, value in message.headers)
    cells = sum(len(cell.text) for cell in row.cells.values())
    return _ROW_CHARACTERS + len(message.key.text) + len(message.value.text) + headers + cells
