"""The versions of a key in a partition, the newest first.

A log has no index of keys, so the search reads backwards: windows of offsets, each twice as large
as the one behind it. It is bounded, and says where the next search continues.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas import aio
    from barnabas.client.fetch.record_set import ConsumerRecord
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.console.messages.one_record import Fate
    from barnabas.console.search.transaction_marks import TransactionMarks
    from barnabas.console.settings import VersionLimits
    from barnabas.runtime.clock import Clock

_MS_PER_S = 1000
_WINDOW_MIN = 500
_POLL_RECORDS = 500
_POLL_S = 0.5


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
        consumer: A consumer without a group.
        marks: Tells what became of transactions.
        clock: Measures the time.
        limits: Where the search ends.
        most: Number of versions after which the search ends.
    """

    def __init__(
        self,
        consumer: aio.Consumer,
        marks: TransactionMarks,
        clock: Clock,
        limits: VersionLimits,
        most: int,
    ) -> None:
        self._consumer = consumer
        self._marks = marks
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
        self._consumer.assign([tp])
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
        consumer, limits = self._consumer, self._limits
        consumer.seek(tp, window[0])
        while True:
            remaining_s = (self._deadline_ms - self._clock.monotonic_ms()) / _MS_PER_S
            if remaining_s <= 0:
                return f"{limits.seconds:g} s"
            records = await consumer.poll(min(_POLL_S, remaining_s), max_records=_POLL_RECORDS)
            within = [each for each in records if each.offset < window[1]]
            self._examined += len(within)
            self._size += sum(len(each.key or b"") + len(each.value or b"") for each in within)
            found = [each for each in within if each.key == key]
            if found:
                newest.extend(found)
                self._marks.note(records)
                self._fates.update(await self._marks.fates(tp, [each.offset for each in newest]))
            if len(within) < len(records):
                return ""
            if self._examined >= limits.records:
                return f"{limits.records} records"
            if self._size >= limits.size:
                return f"{limits.size} bytes"
            if await consumer.position(tp) >= window[1]:
                return ""
