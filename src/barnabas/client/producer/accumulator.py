"""Pending records of a producer, grouped into batches by partition (Kafka's RecordAccumulator).

A batch is ready when it is full, when it is `linger.ms` old, or when a flush requests it. All
batches together use at most `buffer.memory` bytes; a caller that needs more waits for room.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from barnabas.client.errors import RecordTooLargeError
from barnabas.client.producer.producer_batch import ProducerBatch, split
from barnabas.client.producer.user_objects import exact_timestamp, raise_unfit, record_parts
from barnabas.record.compression import CODES
from barnabas.runtime.system_calls import keep_freed_memory

__all__ = ["REFUSALS", "Accumulator", "PartitionQueue"]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.client.config import ClientConfig
    from barnabas.client.producer.producer_batch import DeliveryCallback
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.runtime.clock import Clock, Timer

    # Key, value, headers, timestamp in ms (None: the current time).
    BatchRecord = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes | None]], int | None]

# Exceptions of the batch writer for a record with a wrong type or value.
REFUSALS = (TypeError, ValueError, AttributeError, OverflowError, BufferError)
# Upper bound of the bytes that encoding adds: batch header, lengths, deltas.
_OVERHEAD = 61 + 36
_HEADER_OVERHEAD = 10
_NO_ID = -1
# A broker remembers the last batches of a producer, and recognizes only these as duplicates.
_REMEMBERED_BATCHES = 5
# After this number of full batches, `extend` returns so that the sender can run.
_BATCHES_PER_TURN = 8
# A timer may run early by the rounding of times. Without this margin, the timer for the linger of a
# batch could be started again and again for the same moment.
_ROUNDING_MS = 0.001


class PartitionQueue:
    """The batches of one partition: at most one open, others closed or in flight; in order."""

    __slots__ = (
        "closed",
        "delayed",
        "due",
        "in_flight",
        "known_producer_id",
        "next_number",
        "next_sequence",
        "open",
        "tp",
    )

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        # The batch that accepts records; `close_open` moves it to `closed`.
        self.open: ProducerBatch | None = None
        # Full or due batches that are not in flight, in order of their numbers.
        self.closed: deque[ProducerBatch] = deque()
        # Batches without a response, in order of their numbers; the sender changes the list.
        self.in_flight: list[ProducerBatch] = []
        # Whether the open batch may be sent before it is full.
        self.due = False
        # Whether the queue waits for the end of a retry backoff.
        self.delayed = False
        # Number of the next new batch.
        self.next_number = 0
        # Sequence of the next record of an idempotent producer (KIP-98).
        self.next_sequence = 0
        # Producer id of the last batch that the broker acknowledged, -1 if there is none.
        self.known_producer_id = -1

    @property
    def waiting(self) -> int:
        """Number of unsent batches; the adaptive partitioner uses it as the load (KIP-794)."""
        return len(self.closed) + (self.open is not None)

    @property
    def is_empty(self) -> bool:
        """Whether all records of the queue are either delivered or failed."""
        return self.open is None and not self.closed and not self.in_flight

    def is_head(self, batch: ProducerBatch) -> bool:
        """Whether no earlier batch is pending."""
        earlier = [*self.in_flight, *list(self.closed)[:1]]
        return all(other.number >= batch.number for other in earlier)

    def may_send(self) -> bool:
        """Whether the next batch can be sent now without breaking the order of records.

        A retried batch is sent alone: after all earlier batches are complete and before any later
        one. The first batch of a producer id is sent alone too. A broker accepts any sequence from
        an unknown producer id, so it could accept the second batch after it refused the first.

        A batch is not sent so far ahead of the oldest batch in flight that the broker forgets this
        one. Otherwise the broker refuses a retry of it, although it is in the log. This happens
        while the old leader of the partition is silent, and the new one responds.
        """
        if not self.in_flight:
            return True
        oldest = self.in_flight[0]
        if oldest.producer_id != _NO_ID:
            if oldest.producer_id != self.known_producer_id:
                return False
            following = self.closed[0] if self.closed else self.open
            if following is not None and following.number - oldest.number >= _REMEMBERED_BATCHES:
                return False
        if any(batch.attempts > 1 for batch in self.in_flight):
            return False
        return not (self.closed and self.closed[0].attempts)

    def put_back(self, batch: ProducerBatch) -> None:
        """Insert a batch into the queue again, at the place that its number gives."""
        later = []
        while self.closed and self.closed[0].number < batch.number:
            later.append(self.closed.popleft())
        self.closed.appendleft(batch)
        self.closed.extendleft(reversed(later))

    def renumber_after(self, number: int) -> None:
        """Add 1 to the number of all later batches, to make room for half of a split batch."""
        batches = [*self.in_flight, *self.closed]
        if self.open is not None:
            batches.append(self.open)
        for batch in batches:
            if batch.number > number:
                batch.number += 1
        self.next_number += 1


class Accumulator:
    """The batches of all partitions."""

    def __init__(
        self, config: ClientConfig, clock: Clock, timer: Timer, on_ready: Callable[[], None]
    ) -> None:
        self._config = config
        self._clock = clock
        self._timer = timer
        # Called when linger.ms has passed for at least one batch.
        self._on_ready = on_ready
        self._batch_bytes = max(1, config.batch_size)
        self._compression = CODES[config.compression_type]
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        # Queues with a batch to send, oldest first; a dict serves as an ordered set.
        self.ready: dict[PartitionQueue, None] = {}
        # Open batches with their queues, oldest first.
        self._lingering: deque[tuple[ProducerBatch, PartitionQueue]] = deque()
        self._linger_armed = False
        # Bytes of all batches; an open batch counts with its capacity. At most buffer.memory, but
        # a single batch is always allowed.
        self.reserved_bytes = 0
        # Batches closed since the producer was created; producers compare it to decide when to
        # send.
        self.closed_count = 0
        keep_freed_memory()

    @property
    def has_room(self) -> bool:
        """Whether `buffer.memory` has room for a new batch."""
        return self.reserved_bytes + self._batch_bytes <= self._config.buffer_memory or (
            self.reserved_bytes == 0
        )

    @property
    def is_empty(self) -> bool:
        """Whether no batch is pending or in flight."""
        return self.reserved_bytes == 0

    def incomplete(self) -> list[ProducerBatch]:
        """Return all batches that are neither delivered nor failed."""
        found: list[ProducerBatch] = []
        for queue in self.queues.values():
            found += queue.in_flight
            found += queue.closed
            if queue.open is not None:
                found.append(queue.open)
        return found

    def queue(self, tp: TopicPartition) -> PartitionQueue:
        """Return the queue of a partition; create it if it does not exist."""
        queue = self.queues.get(tp)
        if queue is None:
            queue = self.queues[tp] = PartitionQueue(tp)
        return queue

    def append(
        self,
        tp: TopicPartition,
        record: BatchRecord,
        now_ms: int,
        on_delivery: DeliveryCallback | None,
    ) -> ProducerBatch | None:
        """Append one record.

        Returns:
            The batch that ends with this record; None if `buffer.memory` has no room.

        Raises:
            RecordTooLargeError: the record is larger than `max.request.size`.
            InvalidRecordError: the timestamp is negative or exceeds 64 bits.
            UnfitRecordError: the timestamp is not an integer.
        """
        queue = self.queues.get(tp) or self.queue(tp)
        key, value, headers, timestamp = record
        if timestamp is None:
            timestamp = now_ms
        elif timestamp.__class__ is not int or timestamp < 0:
            timestamp = exact_timestamp(tp.topic, timestamp)
        if headers.__class__ is not list:
            headers = list(headers)
        batch = queue.open
        if batch is None or batch.append(batch.count, timestamp, key, value, headers) is None:
            batch = self._open_next(queue, record)
            if batch is None:
                return None
            self._append_first(queue, batch, (timestamp, key, value, headers))
        elif timestamp > batch.max_timestamp:
            batch.max_timestamp = timestamp
        if on_delivery is not None:
            batch.callbacks.append((batch.count, timestamp, on_delivery))
        batch.count += 1
        return batch

    def _append_first(
        self,
        queue: PartitionQueue,
        batch: ProducerBatch,
        record: tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]],
    ) -> None:
        """Append the first record; remove the new batch again if the record is refused."""
        try:
            batch.append_first(*record)
        except BaseException:
            queue.open = None
            queue.due = False
            self.release(batch)
            if not queue.closed:
                self.ready.pop(queue, None)
            raise

    def extend(
        self,
        tp: TopicPartition,
        records: Iterator[BatchRecord],
        pending: BatchRecord | None,
        now_ms: int,
    ) -> BatchRecord | None:
        """Append records to one partition until they end, room ends, or the sender must run.

        Args:
            tp: the partition.
            records: an iterator; records are taken from its current position.
            pending: a record to append before `records`: the return value of the previous call.
            now_ms: timestamp of records without one, in ms.

        Returns:
            A record that was taken from `records` but not appended; None if all were appended.

        Raises:
            RecordTooLargeError: a record is larger than `max.request.size`.
            UnfitRecordError: a part of a record has the wrong type.
            InvalidRecordError: a timestamp is negative or exceeds 64 bits.
        """
        queue = self.queue(tp)
        opened = 0
        while True:
            if pending is not None:
                if opened > _BATCHES_PER_TURN or not self._append_pending(tp, pending, now_ms):
                    return pending
                opened += 1
            batch = queue.open
            if batch is None:
                pending = next(records, None)
                if pending is None:
                    return None
                continue
            pending = _fill(batch, records, now_ms)
            if pending is None:
                return None

    def _append_pending(self, tp: TopicPartition, record: BatchRecord, now_ms: int) -> bool:
        """Append the first record of a batch; return whether there was room."""
        try:
            return self.append(tp, record_parts(tp.topic, record), now_ms, None) is not None
        except REFUSALS as error:
            raise_unfit(tp.topic, record, error)

    def _open_next(self, queue: PartitionQueue, first: BatchRecord) -> ProducerBatch | None:
        """Close the open batch and open a new one for the record; None if there is no room."""
        key, value, headers, _timestamp = first
        size = _OVERHEAD + (len(key) if key else 0) + (len(value) if value else 0)
        for name, content in headers:
            size += _HEADER_OVERHEAD + len(name) * 4 + (len(content) if content else 0)
        if size > self._config.max_request_size:
            config = self._config
            limit = config.spell("max_request_size")
            raise RecordTooLargeError(size, config.max_request_size, limit)
        if queue.open is not None:
            self.close_open(queue)
        if not self.has_room:
            return None
        now = self._clock.monotonic_ms()
        batch = ProducerBatch(queue.tp, queue.next_number, max(size, self._batch_bytes), now)
        queue.next_number += 1
        queue.open = batch
        self.reserved_bytes += batch.reserved_bytes
        if self._config.linger_ms == 0:
            queue.due = True
            self.ready[queue] = None
        else:
            self._lingering.append((batch, queue))
            self._arm_linger()
        return batch

    def close_open(self, queue: PartitionQueue) -> None:
        """Close the open batch of a queue, so that it can be sent."""
        batch = queue.open
        assert batch is not None, queue.tp
        queue.open = None
        queue.due = False
        batch.close(self._compression, self._config.compression_level)
        self.reserved_bytes += batch.size - batch.reserved_bytes
        batch.reserved_bytes = batch.size
        self.closed_count += 1
        queue.closed.append(batch)
        self.ready[queue] = None

    def take(self, queue: PartitionQueue) -> ProducerBatch | None:
        """Remove and return the next batch that may be sent now; None if there is none.

        The open batch is closed for this if it is due.
        """
        if queue.delayed or not queue.may_send():
            return None
        if not queue.closed and queue.due and queue.open is not None:
            self.close_open(queue)
        if not queue.closed:
            self.ready.pop(queue, None)
            return None
        batch = queue.closed.popleft()
        if not queue.closed and not queue.due:
            self.ready.pop(queue, None)
        return batch

    def release(self, batch: ProducerBatch) -> None:
        """Release the buffer memory of a batch that is delivered or failed."""
        self.reserved_bytes -= batch.reserved_bytes
        batch.reserved_bytes = 0

    def split(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Replace a batch that the broker refused as too large by its two halves."""
        self.release(batch)
        queue.renumber_after(batch.number)
        batch.halves = split(batch, self._compression, self._config.compression_level)
        for half in batch.halves:
            self.reserved_bytes += half.reserved_bytes
            queue.put_back(half)
        self.ready[queue] = None

    def make_all_due(self) -> None:
        """Mark every open batch as due, for a flush."""
        self._lingering.clear()
        for queue in self.queues.values():
            if queue.open is not None:
                queue.due = True
                self.ready[queue] = None

    def _arm_linger(self) -> None:
        if self._linger_armed or not self._lingering:
            return
        self._linger_armed = True
        age_ms = self._clock.monotonic_ms() - self._lingering[0][0].created_ms
        self._timer.call_later(max(0.0, self._config.linger_ms - age_ms), self._on_linger)

    def _on_linger(self) -> None:
        self._linger_armed = False
        if self.make_lingered_due():
            self._on_ready()
        self._arm_linger()

    def make_lingered_due(self) -> bool:
        """Mark open batches as due that are `linger.ms` old; return whether there were any."""
        limit = self._clock.monotonic_ms() - self._config.linger_ms + _ROUNDING_MS
        found = False
        while self._lingering and (
            self._lingering[0][0].data is not None or self._lingering[0][0].created_ms <= limit
        ):
            batch, queue = self._lingering.popleft()
            if batch is queue.open:
                queue.due = True
                self.ready[queue] = None
                found = True
        return found


def _fill(batch: ProducerBatch, records: Iterator[BatchRecord], now_ms: int) -> BatchRecord | None:
    """Append records until one does not fit; return that record, or None at the end."""
    append = batch.append
    count = batch.count
    newest = batch.max_timestamp
    record: BatchRecord = (None, None, (), None)
    try:
        for record in records:
            key, value, headers, timestamp = record
            if headers.__class__ is not list:
                headers = list(headers)
            when = now_ms
            if timestamp is not None:
                when = timestamp
                if timestamp.__class__ is not int or timestamp < 0:
                    when = exact_timestamp(batch.tp.topic, timestamp)
            if append(count, when, key, value, headers) is None:
                return record
            count += 1
            if when > newest:
                newest = when
    except REFUSALS as error:
        raise_unfit(batch.tp.topic, record, error)
    finally:
        # Also after an error: the records before the refused one are in this batch.
        batch.count = count
        batch.max_timestamp = newest
    return None
