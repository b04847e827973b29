"""The versions of a key in a partition, the newest first.

A log has no index of keys, so the search reads backwards: windows of offsets, each twice as large
as the one behind it. It is bounded, and says where the next search continues.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

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

    async def run(self, tp: TopicPartition, key: bytes, start: int, before: int) -> Versions:
        """Return the newest records with a key.

        Args:
            tp: The partition.
            key: The key.
            start: First offset of the partition.
            before: Only records before this offset are examined.
        """
        found: list[ConsumerRecord] = []
        end, window = before, _WINDOW_MIN
        while end > start:
            begin = max(start, end - window)
            # One more than is wanted shows that there is a rest.
            newest: deque[ConsumerRecord] = deque(maxlen=self._most - len(found) + 1)
            stopped = await self._read(tp, key, (begin, end), newest)
            if stopped:
                # The rest of this window is newer than what it has shown.
                return self._versions(found, end, stopped)
            found += reversed(newest)
            if len(found) > self._most:
                rest = found[self._most - 1].offset
                return self._versions(found[: self._most], rest)
            end, window = begin, window * 2
        return self._versions(found, None)

    def _versions(
        self, records: list[ConsumerRecord], rest: int | None, limit: str = ""
    ) -> Versions:
        return Versions(records, self._examined, rest, limit, self._fates)

    async def _read(
        self,
        tp: TopicPartition,
        key: bytes,
        window: tuple[int, int],
        newest: deque[ConsumerRecord],
    ) -> str:
        """Add the records of a window to `newest`; return the limit that was reached."""
        limits, position = self._limits, window[0]
        self._reader.begin()
        while True:
            remaining_s = (self._deadline_ms - self._clock.monotonic_ms()) / _MS_PER_S
            if remaining_s <= 0:
                return f"{limits.seconds:g} s"
            wait_s, matching, is_past = min(_POLL_S, remaining_s), [], False
            async with self._reader.poll({tp: position}, wait_s, _POLL_RECORDS) as fetched:
                while fetched.parts:
                    for record in fetched.parts.pop(0)[1]:
                        if record.offset >= window[1]:
                            is_past = True
                            break
                        position = record.offset + 1
                        self._examined += 1
                        self._size += len(record.key or b"") + len(record.value or b"")
                        if record.key == key:
                            newest.append(record)
                            matching.append(record.offset)
            self._fates.update(await self._reader.marks.fates(tp, matching))
            if is_past:
                return ""
            position = max(position, await self._reader.position(tp))
            if self._examined >= limits.records:
                return f"{limits.records} records"
            if self._size >= limits.size:
                return f"{limits.size} bytes"
            if position >= window[1]:
                return ""
