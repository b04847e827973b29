"""Results of a search as a file: JSON lines, CSV or Parquet, written while the search runs.

A download has whole values, which a list cuts. It is bounded in messages, bytes and time; a file
that ends early says so at its end.
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

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Sequence

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


class SlowClientError(RuntimeError):
    """A client reads a download too slowly; its connection is closed."""


class DownloadLimits(NamedTuple):
    """The limits at which a download ends early."""

    messages: int = 100_000
    size: int = 256 * 1024 * 1024
    seconds: float = 600.0
    # How long a client may take to read what was made of one part of the records. Others wait for
    # the memory that these records have.
    reading_s: float = 120.0


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

    async def parts(self, plan: Plan, scan: Scan) -> AsyncGenerator[bytes]:
        """Yield the bytes of the file.

        Args:
            plan: The offsets that are examined.
            scan: Reads them.
        """
        self._ends_ms = self._clock.monotonic_ms() + self._limits.seconds * _MS_PER_S
        step = self._newest_step if self._search.place.is_newest else self._step
        try:
            while not self._has_ended and plan.begin_step():
                async with contextlib.aclosing(step(plan, scan)) as pieces:
                    async for piece in pieces:
                        yield piece
        except _ENDS as error:
            self._truncated = str(error) or type(error).__name__
        async for piece in _made(self._writer.end(self._truncated)):
            yield piece

    @property
    def _has_ended(self) -> bool:
        return bool(self._truncated) or (self._search.place.is_newest and self._left <= 0)

    async def _found(self, ranges: Ranges, scan: Scan) -> AsyncGenerator[list[DecodedRecord]]:
        """Yield the records of ranges until the file ends."""
        async with contextlib.aclosing(scan.read(ranges)) as parts:
            async for found in parts:
                if self._clock.monotonic_ms() > self._ends_ms:
                    self._truncated = f"the limit is {self._limits.seconds:g} s"
                elif found:
                    yield found
                if self._has_ended:
                    return

    async def _step(self, plan: Plan, scan: Scan) -> AsyncGenerator[bytes]:
        """Write the records of a step in the order in which they are found."""
        async with contextlib.aclosing(self._found(plan.step, scan)) as parts:
            async for found in parts:
                async for piece in self._written(found):
                    yield piece
        plan.advance(scan.left)

    async def _newest_step(self, plan: Plan, scan: Scan) -> AsyncGenerator[bytes]:
        """Write the newest records of a step, the newest first.

        They are known at its end. Until then only their places are kept; then they are read again,
        as many at once as fit in the memory.
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
            async for piece in self._written(sorted(read, key=_place, reverse=True)):
                yield piece

    async def _written(self, records: list[DecodedRecord]) -> AsyncGenerator[bytes]:
        """Write records, and forget them."""
        if len(records) > self._left:
            self._truncated = f"the limit is {self._limits.messages} messages"
            del records[self._left :]
        self._left -= len(records)
        self._size += sum(record.size for record in records)
        if self._size > self._limits.size:
            self._truncated = f"the limit is {self._limits.size} bytes"
        began_ms = self._clock.monotonic_ms()
        async for piece in _made(self._writer.write(records)):
            yield piece
            limit_s = self._limits.reading_s
            if self._clock.monotonic_ms() - began_ms > limit_s * _MS_PER_S:
                raise SlowClientError(
                    f"the client did not read the messages up to {self._size} bytes within "
                    f"{limit_s:g} s"
                )
        records.clear()


async def _made(pieces: Iterator[bytes]) -> AsyncGenerator[bytes]:
    """Make pieces of a file in a thread, and yield them."""
    while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
        if piece:
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
