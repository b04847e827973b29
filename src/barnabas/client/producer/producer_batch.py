"""A batch of records on its way to one partition (KIP-98).

Records are encoded as they come, by the C writer of `aiokafka.record`; compression, producer id and
sequence come when the batch is closed and sent, since they are known only then.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from barnabas.client.shielded import Shielded
from barnabas.record.batch import HEADER_SIZE, LOG_OVERHEAD, set_crc
from barnabas.record.compiled import CompiledReader
from barnabas.record.compression import NONE, compress

if TYPE_CHECKING:
    from barnabas.client.errors import ClientError
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["DeliveryCallback", "ProducerBatch", "RecordMetadata"]

_LENGTH = Struct(">i")
_LENGTH_POSITION = 8
_ATTRIBUTES = Struct(">h")
_ATTRIBUTES_POSITION = 21
# In the lower byte of the attributes.
_TRANSACTIONAL = 0x10
# Producer id, epoch and base sequence.
_PRODUCER = Struct(">qhi")
_PRODUCER_POSITION = 43


# The bytes of a batch that nobody sends any more.
_SPENT = bytearray()


@lru_cache(maxsize=1)
def _builder_class() -> Any:
    """The writer's class; making a reader first keeps aiokafka's own client from being loaded."""
    CompiledReader()
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    return DefaultRecordBatchBuilder


class RecordMetadata(NamedTuple):
    """Where a record lies in the log."""

    topic: str
    partition: int
    # -1 with acks=0, and for a duplicate whose offset the broker no longer knows.
    offset: int
    # Milliseconds; the broker's if the topic has log append time.
    timestamp: int


class DeliveryCallback(Protocol):
    """Told about one record: where it is, or why it is not there."""

    def __call__(self, metadata: RecordMetadata | None, error: ClientError | None, /) -> object: ...


class ProducerBatch:
    """Records of one partition, encoded; first open, then closed, then in flight until acked."""

    __slots__ = (
        "_builder",
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
        "halves",
        "is_settled",
        "is_told",
        "last_error",
        "number",
        "producer_epoch",
        "producer_id",
        "reserved_bytes",
        "tp",
    )

    def __init__(self, tp: TopicPartition, number: int, max_bytes: int, created_ms: float) -> None:
        self.tp = tp
        # Counts the batches of the partition: the order they have to keep.
        self.number = number
        self.created_ms = created_ms
        self._builder = _builder_class()(2, NONE, 0, -1, -1, -1, max_bytes)
        # append(relative offset, timestamp, key, value, headers) -> None if it does not fit.
        self.append = self._builder.append
        # Records so far; whoever appends counts.
        self.count = 0
        # (relative offset, timestamp, callback) of the records whose senders want to be told.
        self.callbacks: list[tuple[int, int, DeliveryCallback]] = []
        # Bytes of buffer.memory held by this batch.
        self.reserved_bytes = max_bytes
        # Encoded whole; None while the batch is open.
        self.data: bytearray | None = None
        self.attempts = 0
        self.last_error: ClientError | None = None
        # Set when first sent by an idempotent producer; -1 before and without idempotence.
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = -1
        # Delivered or given up: then the four below say how.
        self.is_settled = False
        self.base_offset = -1
        # Of all its records if the topic has log append time, else -1.
        self.append_time = -1
        self.error: ClientError | None = None
        # Whether somebody was told of the error, or has asked.
        self.is_told = False
        # What it became when the broker found it too large: its fate is theirs.
        self.halves: list[ProducerBatch] = []

    @property
    def size(self) -> int:
        """Bytes so far; of the encoded batch once it is closed."""
        return len(self.data) if self.data is not None else int(self._builder.size())

    def close(self, compression: int, level: int | None) -> None:
        """Encode: from now on nothing is appended."""
        assert self.data is None, "closed twice"
        plain: bytearray = self._builder.build()
        if compression == NONE:
            self.data = plain
            return
        with memoryview(plain) as view:
            payload = compress(compression, view[HEADER_SIZE:], level)
            data = bytearray(view[:HEADER_SIZE])
        data += payload
        _LENGTH.pack_into(data, _LENGTH_POSITION, len(data) - LOG_OVERHEAD)
        _ATTRIBUTES.pack_into(data, _ATTRIBUTES_POSITION, compression)
        set_crc(data, 0, len(data))
        self.data = data

    def set_producer(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        *,
        is_transactional: bool = False,
    ) -> None:
        """Write the idempotent producer's id and this batch's sequence into the closed batch."""
        assert self.data is not None, "still open"
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        _PRODUCER.pack_into(
            self.data, _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence
        )
        if is_transactional:
            self.data[_ATTRIBUTES_POSITION + 1] |= _TRANSACTIONAL
        set_crc(self.data, 0, len(self.data))

    def complete(self, base_offset: int, log_append_time: int) -> None:
        """It is in the log; `tell` tells the senders."""
        self.base_offset = base_offset
        self.append_time = log_append_time
        self._settle()

    def fail(self, error: ClientError) -> None:
        """It is not, or may not be, in the log; `tell` tells the senders."""
        self.error = error
        self.is_told = self.is_told or bool(self.callbacks)
        self._settle()

    def _settle(self) -> None:
        """Let go of the bytes: deliveries that the user keeps hold the batch."""
        self.is_settled = True
        self.data = _SPENT
        self._builder = self.append = None

    def tell(self) -> None:
        """Tell the senders that want to be told what became of the settled batch.

        What a callback raises is logged: other senders, and other batches, still have to be told.
        """
        callbacks, self.callbacks = self.callbacks, []
        for index, timestamp, callback in callbacks:
            with Shielded(callback, "delivery callback"):
                if self.error is None:
                    callback(self.metadata(index, timestamp), None)
                else:
                    callback(None, self.error)

    def metadata(self, index: int, timestamp: int) -> RecordMetadata:
        """Where a record of the delivered batch lies."""
        topic, partition = self.tp
        offset = self.base_offset + index if self.base_offset >= 0 else -1
        time = timestamp if self.append_time < 0 else self.append_time
        return RecordMetadata(topic, partition, offset, time)
