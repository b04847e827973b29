"""The versions of a key in a partition, the newest first.

A log has no index of keys, so the search reads backwards: windows of offsets, each twice as large
as the one behind it, as far as their bytes allow. A window that turns out to be too large is read
again as a smaller one. So each search goes back by at least one offset, however large the records
are. It is bounded, and says where the next search continues.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from barnabas.console.messages.record_view import record_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.client.fetch.record_set import ConsumerRecord
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.console.messages.one_record import Fate
    from barnabas.console.messages.reading import RecordReader
    from barnabas.runtime.clock import Clock

_MS_PER_S = 1000
_WINDOW_MIN = 500
_POLL_RECORDS = 500
_POLL_S = 0.5
# Bytes of a window of more than one offset.
_WINDOW_BYTES = 8 * 1024 * 1024
# How much longer a search may take that has not examined a whole window yet (ms).
_FIRST_MS = 20_000


class VersionLimits(NamedTuple):
    """The limits at which one search for the versions of a key ends."""

    # Records that are examined.
    records: int = 50_000
    # Bytes of keys and values that are examined.
    size: int = 32 * 1024 * 1024
    seconds: float = 5.0


class Versions(NamedTuple):
    """The records of one key."""

    # The newest first.
    records: list[ConsumerRecord]
    # Number of records that were examined.
    examined: int
    # Continue before this offset; None if the start of the log is reached.
    rest: int | None
    # Why the search ended early; "" if it has examined everything.
    limit: str
    # What became of the transactions of those records that are in one, by offset.
    fates: Mapping[int, Fate]


class VersionSearch:
    """One search backwards.

    Args:
        reader: Reads the records.
        clock: Measures the time.
        limits: Where the search ends.
        most: Number of versions after which the search ends.
    """

    def __init__(
        self, reader: RecordReader, clock: Clock, limits: VersionLimits, most: int
    ) -> None:
        self._reader = reader
        self._fates: dict[int, Fate] = {}
        self._deadline_ms = clock.monotonic_ms() + limits.seconds * _MS_PER_S
        self._clock = clock
        self._limits = limits
        self._most = most
        self._examined = 0
        self._size = 0

    async def run(
        self, tp: TopicPartition, like: ConsumerRecord, start: int, before: int
    ) -> Versions:
        """Return the newest records with the key of a record.

        Args:
            tp: The partition.
            like: The record. Others are expected to have a similar size.
            start: First offset of the partition.
            before: Only records before this offset are examined.
        """
        found: list[ConsumerRecord] = []
        end, window = before, _next_window(_WINDOW_MIN, record_size(like) * _WINDOW_MIN)
        while end > start:
            limit = self._limit(has_advanced=end < before)
            if limit:
                return self._versions(found, end, limit)
            begin, size = max(start, end - window), self._size
            # One more than is wanted shows that there is a rest.
            newest: deque[ConsumerRecord] = deque(maxlen=self._most - len(found) + 1)
            position = await self._read(
                tp, like.key, (begin, end), newest, has_advanced=end < before
            )
            if position < end:
                # The rest of this window is newer than what it has shown.
                window = max(1, (position - begin) // 2)
                continue
            found += reversed(newest)
            if len(found) > self._most:
                rest = found[self._most - 1].offset
                return self._versions(found[: self._most], rest)
            end, window = begin, _next_window(window * 2, (self._size - size) * 2)
        return self._versions(found, None)

    def _limit(self, *, has_advanced: bool) -> str:
        """Return the limit that the search has reached; "" if it goes on."""
        limits, late_ms = self._limits, self._clock.monotonic_ms() - self._deadline_ms
        if late_ms >= (0 if has_advanced else _FIRST_MS):
            return f"{limits.seconds:g} s"
        if has_advanced and self._examined >= limits.records:
            return f"{limits.records} records"
        if has_advanced and self._size >= limits.size:
            return f"{limits.size} bytes"
        return ""

    def _versions(
        self, records: list[ConsumerRecord], rest: int | None, limit: str = ""
    ) -> Versions:
        return Versions(records, self._examined, rest, limit, self._fates)

    async def _read(
        self,
        tp: TopicPartition,
        key: bytes | None,
        window: tuple[int, int],
        newest: deque[ConsumerRecord],
        *,
        has_advanced: bool,
    ) -> int:
        """Add the records of a window to `newest`, and return the next offset to read.

        It is before the end of the window if a limit was reached, or if the window is too large.
        """
        (begin, end), size = window, self._size
        position = begin
        self._reader.begin()
        while position < end and not self._limit(has_advanced=has_advanced):
            if self._size - size > _WINDOW_BYTES and end - begin > 1:
                break
            matching: list[int] = []
            async with self._reader.poll({tp: position}, _POLL_S, _POLL_RECORDS) as fetched:
                while fetched.parts:
                    for record in fetched.parts.pop(0)[1]:
                        position = record.offset + 1
                        if record.offset >= end:
                            break
                        self._examined += 1
                        self._size += record_size(record)
                        if record.key == key:
                            newest.append(record)
                            matching.append(record.offset)
            self._fates.update(await self._reader.marks.fates(tp, matching))
            position = max(position, await self._reader.position(tp))
        return position


def _next_window(offsets: int, size: int) -> int:
    """Return the offsets of a window, of so many as are expected to have this size (bytes)."""
    return offsets if size <= _WINDOW_BYTES else max(1, offsets * _WINDOW_BYTES // size)
