"""A batch that the broker finds too large, as two of half its records (KAFKA-3995).

The bytes of a batch are bounded by `batch.size` here and by `max.message.bytes` there; where the
second is smaller a batch is refused though each of its records would be taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.producer.producer_batch import ProducerBatch
from barnabas.record.batch import HEADER_SIZE
from barnabas.record.builder import record_size_max
from barnabas.record.reader import records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.record.record import Record

__all__ = ["split"]


def split(batch: ProducerBatch, compression: int, level: int | None) -> list[ProducerBatch]:
    """Two closed batches with the records and callbacks of a closed one of two records or more.

    An idempotent producer's sequences stay with their records, so that the halves are to the broker
    what the whole was. They count as sent once: such batches go one at a time, in order.

    Args:
        batch: what was refused; its number is the first half's, the second half has the next.
        compression: code of the codec for the halves.
        level: of the codec, None for its default.
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
    for position, record in enumerate(part):
        added = made.append(
            position, record.timestamp, record.key, record.value, list(record.headers)
        )
        assert added is not None, "the bound of the size is one"
        made.count += 1
    return made
