"""Results of a search as a file: JSON lines, CSV or Parquet, written while the search runs.

A download has whole values, which a list cuts. It is bounded in messages, bytes and time; a file
that ends early says so at its end.

What is made of one fetch waits in a spool, and the client reads it when the fetch is no longer
held. So a client that reads slowly delays no other reader of large messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition
from barnabas.console.search.expressions import ExpressionError, FilterTooSlowError
from barnabas.console.search.file_formats import TooLargeForParquetError
from barnabas.console.search.streams import read_spool
from barnabas.runtime.spool import Spool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence

    from barnabas.console.messages.record_view import DecodedRecord
    from barnabas.console.search.file_formats import Writer
    from barnabas.console.search.jobs import Search
    from barnabas.console.search.ranges import Plan, Ranges
    from barnabas.console.search.scan import Scan
    from barnabas.runtime.clock import Clock

_MS_PER_S = 1000
# Bytes of the newest messages that are read at once.
_GROUP_BYTES = 4 * 1024 * 1024

# Errors that end a file early, which then says why.
_ENDS = (
    ClientError,
    ExpressionError,
    FilterTooSlowError,
    TimeoutError,
    TooLargeForParquetError,
)


class DownloadLimits(NamedTuple):
    """The limits at which a download ends early."""

    messages: int = 100_000
    size: int = 256 * 1024 * 1024
    # How long records are read.
    seconds: float = 600.0
    # How much longer a client may take to read what was made of them.
    reading_s: float = 120.0
    # Bytes that are made of one fetch and wait for the client.
    spooled: int = 512 * 1024 * 1024


class Download:
    """One download.

    Args:
        search: What is searched.
        writer: Writes the file.
        clock: Measures the time.
        limits: Where the download ends early.
    """

    def __init__(
        self, search: Search, writer: Writer, clock: Clock, limits: DownloadLimits
    ) -> None:
        self._search = search
        self._writer = writer
        self._clock = clock
        self._limits = limits
        # Messages that are still allowed.
        self._left = search.limit if search.place.is_newest else limits.messages
        self._size = 0
        # Why messages are missing.
        self._truncated = ""
        # When the time limit is reached (ms, monotonic clock).
        self._ends_ms = 0.0
        # Bytes of the file that were made of the last fetch.
        self._spool = Spool()

    async def parts(self, plan: Plan, scan: Scan) -> AsyncGenerator[bytes]:
        """Yield the bytes of the file.

        Args:
            plan: The offsets that are examined.
            scan: Reads them.

        Raises:
            SlowClientError: The client reads so slowly that the time limit is exceeded.
            SpoolError: The bytes for the client cannot be kept.
        """
        self._ends_ms = self._clock.monotonic_ms() + self._limits.seconds * _MS_PER_S
        step = self._newest_step if self._search.place.is_newest else self._step
        try:
            try:
                while not self._has_ended and plan.begin_step():
                    async with contextlib.aclosing(step(plan, scan)) as pauses:
                        async for _ in pauses:
                            async for piece in self._spooled():
                                yield piece
            except _ENDS as error:
                self._truncated = str(error) or type(error).__name__
            await self._spool_all(self._writer.end(self._truncated))
            async for piece in self._spooled():
                yield piece
        finally:
            self._spool.close()

    @property
    def _has_ended(self) -> bool:
        return bool(self._truncated) or (self._search.place.is_newest and self._left <= 0)

    async def _found(self, ranges: Ranges, scan: Scan) -> AsyncGenerator[list[DecodedRecord]]:
        """Yield the records of ranges, or none, until the file ends."""
        async with contextlib.aclosing(scan.read(ranges)) as parts:
            async for found in parts:
                if self._clock.monotonic_ms() > self._ends_ms:
                    self._truncated = f"the limit is {self._limits.seconds:g} s"
                else:
                    yield found
                if self._has_ended:
                    return

    async def _step(self, plan: Plan, scan: Scan) -> AsyncGenerator[None]:
        """Write the records of a step in the order in which they are found.

        Yields when no fetch is held.
        """
        async with contextlib.aclosing(self._found(plan.step, scan)) as parts:
            async for found in parts:
                await self._write(found)
                if not scan.is_holding:
                    yield
        plan.advance(scan.left)

    async def _newest_step(self, plan: Plan, scan: Scan) -> AsyncGenerator[None]:
        """Write the newest records of a step, the newest first.

        They are known at its end. Until then only their places are kept; then they are read again,
        as many at once as fit in the memory. Yields when no fetch is held.
        """
        newest: list[_Place] = []
        async with contextlib.aclosing(self._found(plan.step, scan)) as parts:
            async for found in parts:
                newest = heapq.nlargest(self._left, newest + [_place(each) for each in found])
                found.clear()
        plan.advance(scan.left)
        for group in _groups(newest):
            wanted = set(group)
            read: list[DecodedRecord] = []
            async with contextlib.aclosing(
                self._found(_ranges(self._search, group), scan)
            ) as parts:
                async for found in parts:
                    read += (each for each in found if _place(each) in wanted)
                    found.clear()
                    if len(read) == len(wanted):
                        await self._write_newest(read)
            # The cleaner may have removed some meanwhile.
            await self._write_newest(read)
            yield

    async def _write_newest(self, records: list[DecodedRecord]) -> None:
        records.sort(key=_place, reverse=True)
        await self._write(records)

    async def _write(self, records: list[DecodedRecord]) -> None:
        """Write records to the spool, and forget them."""
        if len(records) > self._left:
            self._truncated = f"the limit is {self._limits.messages} messages"
            del records[self._left :]
        self._left -= len(records)
        self._size += sum(record.size for record in records)
        if self._size > self._limits.size:
            self._truncated = f"the limit is {self._limits.size} bytes"
        if records:
            await self._spool_all(self._writer.write(records))
            records.clear()
        if self._spool.size > self._limits.spooled:
            self._truncated = f"the limit is {self._limits.spooled} bytes of one fetch in the file"

    async def _spool_all(self, pieces: Iterator[bytes]) -> None:
        """Make pieces of the file in a thread, and keep them for the client."""

        def make() -> None:
            for piece in pieces:
                self._spool.write(piece)

        await asyncio.to_thread(make)

    async def _spooled(self) -> AsyncIterator[bytes]:
        """Yield what was written since the last call, while no fetch is held."""
        ends_ms = self._ends_ms + self._limits.reading_s * _MS_PER_S
        async for piece in read_spool(self._spool, self._clock, ends_ms):
            yield piece


class _Place(NamedTuple):
    """Where a record is; places have the order of a list of the newest messages."""

    timestamp: int
    partition: int
    offset: int
    size: int


def _place(record: DecodedRecord) -> _Place:
    return _Place(record.timestamp, record.partition, record.offset, record.size)


def _groups(places: Sequence[_Place]) -> Iterator[list[_Place]]:
    """Yield places whose records are read at once."""
    group: list[_Place] = []
    size = 0
    for place in places:
        if group and size + place.size > _GROUP_BYTES:
            yield group
            group, size = [], 0
        group.append(place)
        size += place.size
    if group:
        yield group


def _ranges(search: Search, places: Sequence[_Place]) -> Ranges:
    """Return the ranges of offsets that have these places."""
    ranges: Ranges = {}
    for place in places:
        tp = TopicPartition(search.topic, place.partition)
        first, end = ranges.get(tp, (place.offset, 0))
        ranges[tp] = (min(first, place.offset), max(end, place.offset + 1))
    return ranges
