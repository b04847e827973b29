"""A batch of records for one partition (KIP-98).

The C writer of `aiokafka.record` encodes each record when it is appended. Compression happens when
the batch is closed; producer id, sequence and CRC are written when it is first sent. The writer's
own header is not used, because its CRC takes five times as long as ours.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from barnabas.client.user_code import LogUserErrors
from barnabas.record.batch import HEADER_SIZE, LOG_OVERHEAD, set_crc
from barnabas.record.compiled import CompiledReader
from barnabas.record.compression import NONE, compress

if TYPE_CHECKING:
    from barnabas.client.errors import ClientError
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["DeliveryCallback", "ProducerBatch", "RecordMetadata"]

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
