"""Marks of found messages: whether their transactions committed, aborted, or are still open.

A consumer with isolation.level=read_uncommitted receives the records of all transactions, and its
batches tell which records are in a transaction. A second consumer with read_committed tells the
rest: it does not receive records of aborted transactions, and its end offset is the last stable
offset. It reads only ranges in which records of transactions were found.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, TypeAlias

from barnabas.console.messages.one_record import Fate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from barnabas import aio
    from barnabas.client.consumer.consumer_records import ConsumerRecords
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.console.messages.record_view import DecodedRecord

# First offset and end (exclusive) of a batch.
Batch: TypeAlias = "tuple[int, int]"

_POLL_S = 0.5
_POLL_RECORDS = 1000
# Polls for one range; a broker that sends nothing leaves its fates unknown.
_POLLS_MAX = 30
_CLOSE_S = 5.0
# Offsets that the second consumer reads over rather than seeking.
_GAP_MAX = 5000


class TransactionMarks:
    """Marks the messages of one reader.

    Args:
        open_consumer: Returns a consumer without a group, with further configuration.
        is_committed: Whether the reader has isolation.level=read_committed, so that it receives
            records of committed transactions only.
    """

    def __init__(self, open_consumer: Callable[..., aio.Consumer], *, is_committed: bool) -> None:
        self._open_consumer = open_consumer
        self._is_committed = is_committed
        # The transactional batches of the newest poll, in order.
        self._batches: dict[TopicPartition, list[Batch]] = {}
        # The second consumer; None before the first record of a transaction.
        self._committed: aio.Consumer | None = None
        # What it has read last: the partition, the range, and the first offsets of the batches
        # that it received within it.
        self._tp: TopicPartition | None = None
        self._first = 0
        self._position = 0
        self._received: set[int] = set()

    async def aclose(self) -> None:
        """Close the second consumer."""
        if self._committed is not None:
            await self._committed.close(_CLOSE_S)

    def note(self, records: ConsumerRecords) -> None:
        """Remember which records of a poll are in transactions, before `mark` is called."""
        found = {tp: part.transactional_ranges() for tp, part in records.items()}
        self._batches = {tp: ranges for tp, ranges in found.items() if ranges}

    async def mark(self, tp: TopicPartition, records: list[DecodedRecord]) -> list[DecodedRecord]:
        """Return records of the newest poll with the fates of their transactions.

        Raises:
            ClientError: The partition cannot be read.
        """
        fates = await self.fates(tp, [each.offset for each in records])
        return [
            each._replace(fate=fates[each.offset]) if each.offset in fates else each
            for each in records
        ]

    async def fates(self, tp: TopicPartition, offsets: Iterable[int]) -> dict[int, Fate]:
        """Return the fates of those offsets of the newest poll that are in transactions.

        Raises:
            ClientError: The partition cannot be read.
        """
        batches = self._batches.get(tp)
        if not batches:
            return {}
        places = ((offset, _batch_at(batches, offset)) for offset in offsets)
        batch_of = {offset: batch for offset, batch in places if batch is not None}
        if not batch_of:
            return {}
        if self._is_committed:
            return dict.fromkeys(batch_of, Fate.COMMITTED)
        found = await self._fates(tp, sorted(set(batch_of.values())))
        return {offset: found[batch] for offset, batch in batch_of.items()}

    async def _fates(self, tp: TopicPartition, batches: Sequence[Batch]) -> dict[Batch, Fate]:
        """Return the fates of batches of transactions, which are in order."""
        consumer = self._committed
        if consumer is None:
            config: dict[str, Any] = {"isolation.level": "read_committed"}
            consumer = self._committed = self._open_consumer(**config)
        last_stable = (await consumer.end_offsets([tp]))[tp]
        fates = dict.fromkeys(batches, Fate.OPEN)
        ended = [batch for batch in batches if batch[0] < last_stable]
        if not ended:
            return fates
        await self._read(consumer, tp, ended[0][0], min(ended[-1][1], last_stable))
        # Batches that were deleted meanwhile, and those that a slow broker did not send, were not
        # received either.
        start = (await consumer.beginning_offsets([tp]))[tp]
        for batch in ended:
            if batch[0] in self._received:
                fates[batch] = Fate.COMMITTED
            else:
                is_known = start < batch[1] and batch[0] < self._position
                fates[batch] = Fate.ABORTED if is_known else Fate.NONE
        return fates

    async def _read(self, consumer: aio.Consumer, tp: TopicPartition, first: int, end: int) -> None:
        """Read the committed records of a range; the next range often follows this one.

        It begins at a batch, so that the client decodes no records.
        """
        if tp != self._tp or not self._first <= first <= self._position + _GAP_MAX:
            consumer.assign([tp])
            consumer.seek(tp, first)
            self._tp, self._position = tp, first
            self._received.clear()
        self._first = first
        self._received = {offset for offset in self._received if offset >= first}
        for _ in range(_POLLS_MAX):
            if self._position >= end:
                break
            records = await consumer.poll(_POLL_S, max_records=_POLL_RECORDS)
            ranges = records[tp].transactional_ranges()
            self._received.update(base for base, _ in ranges if base >= first)
            self._position = await consumer.position(tp)


def _batch_at(batches: Sequence[Batch], offset: int) -> Batch | None:
    """Return the batch with an offset, of batches that are in order; None if there is none."""
    place = bisect_right(batches, offset, key=lambda each: each[0])
    return batches[place - 1] if place > 0 and offset < batches[place - 1][1] else None
