"""Splits a batch that the broker refuses as too large into two halves (KAFKA-3995).

The client limits a batch by `batch.size`, the broker by `max.message.bytes`. If the broker's limit
is smaller, the broker refuses a batch although it would accept each of its records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.producer.batches.producer_batch import ProducerBatch
from barnabas.record.batch import HEADER_SIZE
from barnabas.record.builder import record_size_max
from barnabas.record.reader import records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.record.record import Record

__all__ = ["split"]


def split(batch: ProducerBatch, compression: int, level: int | None) -> list[ProducerBatch]:
    """Return two closed batches with the records and callbacks of a closed batch.

    The batch must have two records or more. Records of an idempotent producer keep their sequences,
    so the broker sees the same sequences as before. The halves count one attempt, which makes the
    sender send them one at a time and in order.

    Args:
        batch: the refused batch; the first half gets its number, the second half the next.
        compression: code of the codec for the halves.
        level: compression level, None for the codec's default.
    """
    assert batch.data is not None, "still open"
    assert batch.count > 1, "nothing to split"
    found = records(batch.data)
    middle = batch.count // 2
    halves = []
    for index, start, end in ((0, 0, middle), (1, middle, batch.count)):
        half = _encoded(batch, batch.number + index, found[start:end])
        half.callbacks = [
            (position - start, timestamp, callback)
            for position, timestamp, callback in batch.callbacks
            if start <= position < end
        ]
        half.close(compression, level)
        half.reserved_bytes = half.size
        half.attempts = 1
        half.last_error = batch.last_error
        if batch.producer_id >= 0:
            sequence = (batch.base_sequence + start) & 0x7FFFFFFF
            half.set_producer(batch.producer_id, batch.producer_epoch, sequence)
        halves.append(half)
    return halves


def _encoded(batch: ProducerBatch, number: int, part: Sequence[Record]) -> ProducerBatch:
    size = HEADER_SIZE + sum(record_size_max(r.key, r.value, r.headers) for r in part)
    made = ProducerBatch(batch.tp, number, size, batch.created_ms)
    first = part[0]
    made.append_first(first.timestamp, first.key, first.value, list(first.headers))
    for position, record in enumerate(part[1:], 1):
        added = made.append(
            position, record.timestamp, record.key, record.value, list(record.headers)
        )
        assert added is not None, "a batch of this size must hold all records"
    made.count = len(part)
    made.max_timestamp = max(record.timestamp for record in part)
    return made
