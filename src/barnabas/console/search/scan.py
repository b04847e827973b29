"""Reads ranges of offsets, and yields the records that fulfill conditions.

Each record is decoded and masked before it is compared. The event loop does other work after each
slice of records.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.client.topic_partition import TopicPartition
from barnabas.console.messages.record_view import record_size

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

    from barnabas.client.fetch.record_set import ConsumerRecord
    from barnabas.console.messages.reading import RecordReader
    from barnabas.console.messages.record_view import DecodedRecord, RecordView
    from barnabas.console.search.conditions import Conditions
    from barnabas.console.search.expressions import ExpressionFilter
    from barnabas.console.search.ranges import Ranges

_POLL_RECORDS = 1000
_POLL_S = 0.5
# Records and bytes that are decoded together.
_SLICE_RECORDS = 100
_SLICE_BYTES = 256 * 1024


class Scan:
    """One pass over ranges of offsets.

    Args:
        reader: Reads the records.
        view: Decodes and masks the records.
        conditions: What the records must fulfill.
        expressions: Evaluates the expression of the conditions.
    """

    def __init__(
        self,
        reader: RecordReader,
        view: RecordView,
        conditions: Conditions,
        expressions: ExpressionFilter,
    ) -> None:
        self._reader = reader
        self._view = view
        self._conditions = conditions
        self._expressions = expressions
        # The next offset to examine, of partitions with a rest.
        self.left: dict[TopicPartition, int] = {}
        # Whether a fetch is held, for which other readers of large messages may wait.
        self.is_holding = False
        # Number of records that were examined, and their bytes.
        self.records = 0
        self.size = 0
        # Number of records for which the expression failed, and why it did for the first one.
        self.failed = 0
        self.failure = ""

    async def read(self, ranges: Ranges) -> AsyncGenerator[list[DecodedRecord]]:
        """Yield records that fulfill the conditions, or none, at least twice a second.

        Args:
            ranges: First offset and end (exclusive) by partition.
        """
        self.left = {tp: start for tp, (start, end) in ranges.items() if start < end}
        self._reader.begin()
        while self.left:
            async with self._reader.poll(self.left, _POLL_S, _POLL_RECORDS) as fetched:
                self.is_holding = True
                # The parts are taken out, and no slice is kept: a record can have 50 MB.
                while fetched.parts:
                    tp, part = fetched.parts.pop(0)
                    parts = slices(iter(part)) if tp in self.left else iter(())
                    del part
                    for each in parts:
                        yield await self._examine(tp, each, ranges[tp][1])
                        each.clear()
            self.is_holding = False
            await self._drop_finished(ranges, fetched.next_offsets)
            yield []

    def return_to(self, record: DecodedRecord) -> None:
        """Continue behind this record of the newest slice, because the reader takes no more."""
        self.left[TopicPartition(record.topic, record.partition)] = record.offset + 1

    async def _examine(
        self, tp: TopicPartition, records: Sequence[ConsumerRecord], end: int
    ) -> list[DecodedRecord]:
        await self._view.look_up(records)
        wanted = [record for record in records if record.offset < end]
        decoded = await self._view.decode_all(wanted, self._conditions.fits_texts)
        self.left[tp] = min(records[-1].offset + 1, end)
        self.records += len(wanted)
        self.size += sum(map(record_size, wanted))
        selection = await self._conditions.select(decoded, self._expressions)
        self.failed += selection.failed
        self.failure = self.failure or selection.failure
        await asyncio.sleep(0)
        return await self._reader.marks.mark(tp, selection.records)

    async def _drop_finished(self, ranges: Ranges, polled: Mapping[TopicPartition, object]) -> None:
        """Drop partitions whose range is examined; the last offsets may hold no records."""
        for tp in list(self.left):
            if tp not in polled:
                # Behind a gap (compaction, markers of transactions), only the position moves.
                self.left[tp] = max(self.left[tp], await self._reader.position(tp))
            if self.left[tp] >= ranges[tp][1]:
                del self.left[tp]


def slices(records: Iterator[ConsumerRecord]) -> Iterator[list[ConsumerRecord]]:
    """Yield parts of records that are decoded at once. Only the parts refer to the records."""
    while True:
        part: list[ConsumerRecord] = []
        size = 0
        while size < _SLICE_BYTES and len(part) < _SLICE_RECORDS:
            try:
                part.append(next(records))
            except StopIteration:
                break
            size += record_size(part[-1])
        if not part:
            return
        yield part
