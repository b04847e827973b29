"""A batch of records for one partition (KIP-98), its split, its deliveries and its metrics.

The C writer of `aiokafka.record` encodes each record when it is appended. Compression happens when
the batch is closed; producer id, sequence and CRC are written when it is first sent. The writer's
own header is not used, because its CRC takes five times as long as ours.

A batch that the broker refuses as too large is split into two halves (KAFKA-3995). The client
limits a batch by `batch.size`, the broker by `max.message.bytes`. If the broker's limit is smaller,
the broker refuses a batch although it would accept each of its records.

`send` returns a `Delivery` (Kafka's FutureRecordMetadata). Completing a batch costs nothing per
record: a delivery knows its batch and its index in it, and reads the outcome from the batch on
request.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from barnabas.client.errors import ClientTimeoutError
from barnabas.client.user_code import LogUserErrors
from barnabas.record.batch import HEADER_SIZE, LOG_OVERHEAD, set_crc
from barnabas.record.builder import record_size_max
from barnabas.record.compiled import CompiledReader
from barnabas.record.compression import NONE, compress
from barnabas.record.reader import records

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.client.errors import ClientError
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.record.record import Record


__all__ = [
    "Delivery",
    "DeliveryCallback",
    "DeliveryState",
    "ProducerBatch",
    "ProducerMetrics",
    "RecordMetadata",
    "split",
]

_LENGTH = Struct(">i")
_LENGTH_POSITION = 8
# Layout: attributes, last offset delta, first timestamp, maximum timestamp.
_RECORDS = Struct(">hiqq")
_ATTRIBUTES_POSITION = 21
_COUNT = Struct(">i")
_COUNT_POSITION = 57
# Bit in the lower byte of the attributes.
_TRANSACTIONAL = 0x10
# Layout: producer id, producer epoch, base sequence.
_PRODUCER = Struct(">qhi")
_PRODUCER_POSITION = 43
# Replaces the bytes of a completed batch, so that their memory is freed.
_SPENT = bytearray()


@lru_cache(maxsize=1)
def _builder_class() -> Any:
    """Return the class of the C writer.

    The reader is created first, which keeps aiokafka's own client from being imported.
    """
    CompiledReader()
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    return DefaultRecordBatchBuilder


class RecordMetadata(NamedTuple):
    """Position of a delivered record in its partition's log."""

    topic: str
    partition: int
    # -1 with acks=0, and for a duplicate whose offset the broker no longer knows.
    offset: int
    # Milliseconds since 1970; the broker's time if the topic has log append time.
    timestamp: int


class DeliveryCallback(Protocol):
    """Function that receives the outcome of one record: its position, or the error."""

    def __call__(self, metadata: RecordMetadata | None, error: ClientError | None, /) -> object: ...


class ProducerBatch:
    """Encoded records of one partition; first open, then closed, then in flight, then complete."""

    __slots__ = (
        "_encoded",
        "append",
        "append_time",
        "attempts",
        "base_offset",
        "base_sequence",
        "callbacks",
        "count",
        "created_ms",
        "data",
        "error",
        "first_timestamp",
        "halves",
        "is_completed",
        "is_reported",
        "last_error",
        "max_timestamp",
        "number",
        "producer_epoch",
        "producer_id",
        "reserved_bytes",
        "tp",
    )

    def __init__(self, tp: TopicPartition, number: int, max_bytes: int, created_ms: float) -> None:
        self.tp = tp
        # Number of the batch in its partition; batches are sent in this order.
        self.number = number
        # Monotonic time of creation in ms; linger.ms and delivery.timeout.ms count from it.
        self.created_ms = created_ms
        builder = _builder_class()(2, NONE, 0, -1, -1, -1, max_bytes)
        # append(relative offset, timestamp, key, value, headers) -> None if it does not fit.
        self.append = builder.append
        # Header and records. `build` returns the buffer of the writer, which `append` extends.
        self._encoded: bytearray = builder.build()
        # Records so far; the caller of `append` increments it.
        self.count = 0
        # Timestamps in ms: of the first record, set by `append_first`, and the maximum, raised by
        # the caller of `append`.
        self.first_timestamp = -1
        self.max_timestamp = -1
        # (relative offset, timestamp in ms, callback) of the records that have a callback.
        self.callbacks: list[tuple[int, int, DeliveryCallback]] = []
        # Bytes of buffer.memory held by this batch.
        self.reserved_bytes = max_bytes
        # The encoded batch; None while the batch is open.
        self.data: bytearray | None = None
        # Number of sends so far; the sender increments it.
        self.attempts = 0
        # Error of the last attempt, for the message of a delivery timeout.
        self.last_error: ClientError | None = None
        # Set at the first send of an idempotent producer; -1 before that and without idempotence.
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = -1
        # Whether the batch is delivered or failed; then the three fields below hold the outcome.
        self.is_completed = False
        self.base_offset = -1
        # Timestamp in ms of all records if the topic has log append time, else -1.
        self.append_time = -1
        self.error: ClientError | None = None
        # Whether a callback or a caller of the delivery received the error.
        self.is_reported = False
        # The two batches that replace this one after a split; they hold the outcome of its records.
        self.halves: list[ProducerBatch] = []

    @property
    def size(self) -> int:
        """Bytes of header and records so far; of the compressed batch once it is closed."""
        return len(self._encoded)

    def append_first(
        self, timestamp: int, key: Any, value: Any, headers: list[tuple[str, bytes | None]]
    ) -> None:
        """Append the first record, which always fits; the caller increments `count`."""
        self.append(0, timestamp, key, value, headers)
        self.first_timestamp = self.max_timestamp = timestamp

    def close(self, compression: int, level: int | None) -> None:
        """Compress the batch and write its header; no record can be appended afterwards.

        The CRC is not valid before `set_crc` or `set_producer`.
        """
        assert self.data is None, "closed twice"
        data = self._encoded
        if compression != NONE:
            with memoryview(data) as view:
                payload = compress(compression, view[HEADER_SIZE:], level)
                data = bytearray(view[:HEADER_SIZE])
            data += payload
        _LENGTH.pack_into(data, _LENGTH_POSITION, len(data) - LOG_OVERHEAD)
        first, newest = self.first_timestamp, self.max_timestamp
        _RECORDS.pack_into(data, _ATTRIBUTES_POSITION, compression, self.count - 1, first, newest)
        _COUNT.pack_into(data, _COUNT_POSITION, self.count)
        self._encoded = self.data = data

    def set_crc(self) -> None:
        """Write the CRC into the closed batch."""
        assert self.data is not None, "still open"
        set_crc(self.data, 0, len(self.data))

    def set_producer(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        *,
        is_transactional: bool = False,
    ) -> None:
        """Write producer id, epoch, base sequence and CRC into the closed batch."""
        assert self.data is not None, "still open"
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        _PRODUCER.pack_into(
            self.data, _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence
        )
        if is_transactional:
            self.data[_ATTRIBUTES_POSITION + 1] |= _TRANSACTIONAL
        self.set_crc()

    def complete(self, base_offset: int, log_append_time: int) -> None:
        """Record that the batch is in the log; `run_callbacks` calls the callbacks."""
        self.base_offset = base_offset
        self.append_time = log_append_time
        self._complete()

    def fail(self, error: ClientError) -> None:
        """Record that delivery failed; `run_callbacks` calls the callbacks.

        The batch may be in the log nevertheless, for example after a timeout.
        """
        self.error = error
        self.is_reported = self.is_reported or bool(self.callbacks)
        self._complete()

    def _complete(self) -> None:
        """Mark the batch complete and free its bytes: deliveries of the user refer to the batch."""
        self.is_completed = True
        self.data = self._encoded = _SPENT
        self.append = None

    def run_callbacks(self) -> None:
        """Call the callbacks of a completed batch with its outcome.

        An exception of a callback is logged, so that the other callbacks still run.
        """
        callbacks, self.callbacks = self.callbacks, []
        for index, timestamp, callback in callbacks:
            with LogUserErrors(callback, "delivery callback"):
                if self.error is None:
                    callback(self.metadata(index, timestamp), None)
                else:
                    callback(None, self.error)

    def metadata(self, index: int, timestamp: int) -> RecordMetadata:
        """Return the position of the record at `index` of this delivered batch.

        Args:
            index: offset of the record relative to the batch.
            timestamp: the producer's timestamp in ms; log append time takes precedence.
        """
        topic, partition = self.tp
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        time = timestamp if self.append_time < 0 else self.append_time
        return RecordMetadata(topic, partition, offset, time)


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


class DeliveryState(msgspec.Struct, eq=False):
    """The delivery of one record, without waiting: each of the two producers waits in its own way.

    The fields are private to the producer.
    """

    # The batch and the record's index in it; after a split those of the half.
    _batch: Any
    _index: int
    # The producer's timestamp in ms.
    _timestamp: int
    # Function (predicate, timeout) that waits until the predicate holds.
    _wait: Any

    def done(self) -> bool:
        """Whether the record is delivered or has failed."""
        return self._final().is_completed

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Call `callback(delivery)` when the record is delivered or has failed.

        If that is already the case, the callback runs before this method returns; else it runs
        while a later call of the producer runs. `flush` no longer raises this record's error.
        """
        batch = self._final()
        if batch.is_completed:
            batch.is_reported = True
            callback(self)
        else:
            entry = (self._index, self._timestamp, lambda _metadata, _error: callback(self))
            batch.callbacks.append(entry)

    def _final(self) -> ProducerBatch:
        """Return the batch that holds the record's outcome; follow splits to the right half."""
        batch: ProducerBatch = self._batch
        while batch.halves:
            first, second = batch.halves
            if self._index < first.count:
                batch = first
            else:
                self._index -= first.count
                batch = second
            self._batch = batch
        return batch

    def _error(self) -> ClientError | None:
        batch = self._final()
        batch.is_reported = True
        return batch.error

    def _outcome(self) -> RecordMetadata:
        error = self._error()
        if error is not None:
            raise error
        batch = self._final()
        return batch.metadata(self._index, self._timestamp)


class Delivery(DeliveryState, eq=False):
    """The delivery of one record that the blocking producer sends."""

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait until the record is delivered and return its position in the log.

        Sends pending batches that are due while it waits.

        Args:
            timeout: seconds; None waits until `delivery.timeout.ms` has decided the outcome.

        Returns:
            Topic, partition, offset and timestamp (ms).

        Raises:
            ClientTimeoutError: the record was neither delivered nor failed in time.
            ClientError: the delivery failed.
        """
        self._wait_until_settled(timeout)
        return self._outcome()

    def exception(self, timeout: float | None = None) -> ClientError | None:
        """Return the error of a failed record, None if it was delivered; waits as `result` does.

        Raises:
            ClientTimeoutError: the record was neither delivered nor failed in time.
        """
        self._wait_until_settled(timeout)
        return self._error()

    def _wait_until_settled(self, timeout: float | None) -> None:
        if not self.done() and not self._wait(self.done, timeout):
            topic, partition = self._final().tp
            limit = "delivery.timeout.ms" if timeout is None else f"{timeout} s"
            raise ClientTimeoutError(f"{topic}-{partition}: not delivered within {limit}")


class ProducerMetrics:
    """Counters since the producer was created; times in ms, sizes in bytes."""

    def __init__(self) -> None:
        self.requests = 0
        self.responses = 0
        self.batches = 0
        self.bytes = 0
        # Records of first sends, and records of retries.
        self.records = 0
        self.retried_records = 0
        self.splits = 0
        # Sums for the averages, in ms.
        self._latency_ms = 0.0
        self._queue_ms = 0.0

    def on_sent(self, batches: Sequence[ProducerBatch], now_ms: float) -> None:
        """Count a request that is sent with these batches."""
        self.requests += 1
        for batch in batches:
            self.batches += 1
            self.bytes += batch.size
            if batch.attempts > 1:
                self.retried_records += batch.count
            else:
                self.records += batch.count
                self._queue_ms += (now_ms - batch.created_ms) * batch.count

    def on_response(self, sent_ms: float, now_ms: float) -> None:
        """Count a request that has ended, with a response or an error."""
        self.responses += 1
        self._latency_ms += now_ms - sent_ms

    def snapshot(self) -> dict[str, float]:
        """Return totals and averages under Kafka's names; times in ms, sizes in bytes."""
        sent = self.records + self.retried_records
        return {
            "request-total": self.requests,
            "requests-in-flight": self.requests - self.responses,
            "request-latency-avg": self._latency_ms / max(1, self.responses),
            "outgoing-byte-total": self.bytes,
            "record-send-total": self.records,
            "record-retry-total": self.retried_records,
            "record-queue-time-avg": self._queue_ms / max(1, self.records),
            "records-per-request-avg": sent / max(1, self.requests),
            "record-size-avg": self.bytes / max(1, sent),
            "batch-size-avg": self.bytes / max(1, self.batches),
            "batch-split-total": self.splits,
        }
