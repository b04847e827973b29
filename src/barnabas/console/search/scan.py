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

    from barnabas import aio
    from barnabas.client.fetch.record_set import ConsumerRecord
    from barnabas.console.messages.record_view import DecodedRecord, RecordView
    from barnabas.console.search.conditions import Conditions
    from barnabas.console.search.expressions import ExpressionFilter
    from barnabas.console.search.ranges import Ranges
    from barnabas.console.search.transaction_marks import TransactionMarks

_POLL_RECORDS = 1000
_POLL_S = 0.5
# Records and bytes that are decoded together.
_SLICE_RECORDS = 100
_SLICE_BYTES = 256 * 1024


class Scan:
    """One pass over ranges of offsets.

    Args:
        consumer: A consumer without a group.
        view: Decodes and masks the records.
        conditions: What the records must fulfill.
        expressions: Evaluates the expression of the conditions.
        marks: Marks records of transactions.
    """

    def __init__(
        self,
        consumer: aio.Consumer,
        view: RecordView,
        conditions: Conditions,
        expressions: ExpressionFilter,
        marks: TransactionMarks,
    ) -> None:
        self._consumer = consumer
        self._view = view
        self._conditions = conditions
        self._expressions = expressions
        self._marks = marks
        # The next offset to examine, of partitions with a rest.
        self.left: dict[TopicPartition, int] = {}
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
        if not self.left:
            return
        self._consumer.assign(list(self.left))
        self._consumer.resume(*self.left)
        for tp, start in self.left.items():
            self._consumer.seek(tp, start)
        while self.left:
            records = await self._consumer.poll(_POLL_S, max_records=_POLL_RECORDS)
            self._marks.note(records)
            await self._view.look_up(records)
            for tp, part in records.items():
                for each in slices(list(part)) if tp in self.left else ():
                    yield await self._examine(tp, each, ranges[tp][1])
            await self._drop_finished(ranges, dict(records.next_offsets))
            yield []

    def return_to(self, record: DecodedRecord) -> None:
        """Continue behind this record of the newest slice, because the reader takes no more."""
        self.left[TopicPartition(record.topic, record.partition)] = record.offset + 1

    async def _examine(
        self, tp: TopicPartition, records: Sequence[ConsumerRecord], end: int
    ) -> list[DecodedRecord]:
        wanted = [record for record in records if record.offset < end]
        decoded = await self._view.decode_all(wanted, self._conditions.fits_texts)
        self.left[tp] = min(records[-1].offset + 1, end)
        self.records += len(wanted)
        self.size += sum(map(record_size, wanted))
        selection = await self._conditions.select(decoded, self._expressions)
        self.failed += selection.failed
        self.failure = self.failure or selection.failure
        await asyncio.sleep(0)
        return await self._marks.mark(tp, selection.records)

    async def _drop_finished(self, ranges: Ranges, polled: Mapping[TopicPartition, object]) -> None:
        """Drop partitions whose range is examined; the last offsets may hold no records."""
        for tp in list(self.left):
            if tp not in polled:
                # Behind a gap (compaction, markers of transactions), only the position moves.
                self.left[tp] = max(self.left[tp], await self._consumer.position(tp))
            if self.left[tp] >= ranges[tp][1]:
                del self.left[tp]
                self._consumer.pause(tp)


def slices(records: Sequence[ConsumerRecord]) -> Iterator[Sequence[ConsumerRecord]]:
    """Yield parts of records that are decoded at once."""
    start = size = 0
    for place, record in enumerate(records):
        size += record_size(record)
        if size >= _SLICE_BYTES or place + 1 - start >= _SLICE_RECORDS:
            yield records[start : place + 1]
            start, size = place + 1, 0
    if start < len(records):
        yield records[start:]
