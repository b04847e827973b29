"""Events of segments in the record batches of `__remote_log_metadata`, read in steps.

A client with the right to write can put any record there, and a disk can damage a batch. Apache
Kafka's reader ends at the first record that it cannot decode. Here such records are skipped and
counted, in the same way by all brokers.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.primitives import read_unsigned_varint
from barnabas.protocol.record_frame import decode_remote_log_record, read_metadata_frame
from barnabas.protocol.records.remote_log import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
)
from barnabas.record.batch import batches, check_crc
from barnabas.record.compression import NONE, decompressed_bytes_max
from barnabas.record.reader import decoded_records, records_payload
from barnabas.record.record import CorruptBatchError
from barnabas.waiting.steps import OffLoop

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from barnabas.record.batch import BatchHeader
    from barnabas.record.record import Record
    from barnabas.replication.remote.interfaces import SegmentRecord

    # Yields after about 2 ms of work.
    Replaying = Generator[OffLoop | None, Any, None]

_log = logging.getLogger(__name__)

# A record above this size is no event of a segment: it would have 2,000 leader epochs. It takes
# 10 ms to decode and apply.
EVENT_BYTES_MAX = 32 << 10
# Work of a step, in bytes of events. An event has 100 bytes, and costs 20 us if it is replayed and
# 5 us if its partition is not on this broker. Each record counts at least `_RECORD_COST`.
_STEP_COST = 16 << 10
_RECORD_COST = 100
# Number of skipped records that are logged individually. All others are only counted.
_LOGGED_MAX = 10

_SEGMENT_TYPES = frozenset({0, 1})
# Records that Kafka defines, and that do not change the segments: deletions of partitions, which
# neither Kafka nor Barnabas writes, and snapshots.
_OTHER_TYPES = frozenset({2, 3})
_UUID_BYTES = 16


class PartitionKey(NamedTuple):
    """A user partition in an event."""

    topic_id: bytes
    partition: int


class EventSink(Protocol):
    """The receiver of the events of one metadata partition."""

    # The next offset to read. Events at lower offsets are not passed. Only this reader moves it.
    next_offset: int

    @property
    def is_ended(self) -> bool:
        """Whether the event at `next_offset` must not be passed."""
        ...

    def wants(self, key: PartitionKey) -> bool:
        """Return whether the receiver needs the events of a partition."""
        ...

    def on_event(self, key: PartitionKey, event: SegmentRecord, value: bytes) -> None:
        """Receive an event, decoded and as bytes."""
        ...


class SkippedRecords:
    """Counts and logs the records that are no events."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        # Only increases. A damaged batch counts as one.
        self.count = 0

    def add(self, partition: int, offset: int, problem: object) -> None:
        """Count a record, and log it if only few were skipped so far."""
        self.count += 1
        if self.count <= _LOGGED_MAX:
            _log.warning(
                "Skipped a record of __remote_log_metadata that is no event of a segment: "
                "partition=%d offset=%d problem=%s",
                partition,
                offset,
                problem,
            )


def replay(partition: int, content: bytes, sink: EventSink, skipped: SkippedRecords) -> Replaying:
    """Pass the events of record batches to a receiver, and move its next offset behind them.

    Args:
        partition: the metadata partition.
        content: batches, of which the last one may be truncated.
        sink: the receiver. Its next offset is in the batches, or after them.
        skipped: counts the other records.

    Raises:
        CorruptBatchError: the borders of the batches are damaged.
    """
    for position, header in batches(content):
        if header.next_offset <= sink.next_offset:
            continue
        if sink.is_ended:
            return
        try:
            if not check_crc(content, position, header):
                raise CorruptBatchError("the CRC of the batch is wrong")
            # As in Kafka, events take effect whether their transaction is committed or aborted.
            if not header.is_control:
                yield from _replay_batch(partition, content, (position, header), sink, skipped)
        except CorruptBatchError as error:
            skipped.add(partition, header.base_offset, error)
        if sink.is_ended:
            return
        sink.next_offset = max(sink.next_offset, header.next_offset)
        yield None


def _replay_batch(
    partition: int,
    content: bytes,
    batch: tuple[int, BatchHeader],
    sink: EventSink,
    skipped: SkippedRecords,
) -> Replaying:
    position, header = batch
    if header.compression == NONE:
        payload = records_payload(content, position, header)
    else:
        bytes_max = decompressed_bytes_max(header.compression, header.size)
        work = partial(records_payload, content, position, header)
        payload = yield OffLoop(work, bytes_max, len)
    cost = 0
    last_offset = header.base_offset - 1
    for record in decoded_records(payload, header):
        if not last_offset < record.offset <= header.last_offset:
            # The log checks the offsets of batches, not those of their records.
            raise CorruptBatchError(f"record offset {record.offset} after {last_offset}")
        last_offset = record.offset
        if record.offset >= sink.next_offset:
            if sink.is_ended:
                return
            _pass_on(partition, record, sink, skipped)
            sink.next_offset = record.offset + 1
        cost += _RECORD_COST + len(record.value or b"")
        if cost >= _STEP_COST:
            cost = 0
            yield None


def _pass_on(partition: int, record: Record, sink: EventSink, skipped: SkippedRecords) -> None:
    value = record.value
    try:
        if value is None:
            raise ProtocolError("the value is null")
        if len(value) > EVENT_BYTES_MAX:
            raise ProtocolError(f"the value has {len(value)} bytes")
        key = partition_of_event(value)
        if key is None or not sink.wants(key):
            return
        event = decode_remote_log_record(value)
        assert isinstance(
            event, RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataUpdateRecord
        )
        sink.on_event(key, event, value)
    except ProtocolError as error:
        skipped.add(partition, record.offset, error)
    except AssertionError:
        raise
    except Exception as error:  # noqa: BLE001 - any content may cause it: skip this record only
        _log.exception(
            "Unexpected error in an event: partition=%d offset=%d", partition, record.offset
        )
        skipped.add(partition, record.offset, error)


def partition_of_event(value: bytes) -> PartitionKey | None:
    """Return the user partition of an event, without decoding the event.

    A broker reads the events of all partitions, and needs those of its own. To decode an event
    takes 10 times as long as to find its partition.

    Returns:
        None for a record of Kafka that changes no segment.

    Raises:
        ProtocolError: the record has another type, or is too short.
    """
    record_type, version, position = read_metadata_frame(value)
    if record_type in _OTHER_TYPES:
        return None
    if record_type not in _SEGMENT_TYPES or version != 0:
        raise ProtocolError(f"record type {record_type} version {version} is unknown")
    # A name (its length plus 1, and the bytes), a topic id and a number begin both types.
    length, position = read_unsigned_varint(value, position)
    id_at = position + length - 1
    end = id_at + _UUID_BYTES + 4
    if length == 0 or end > len(value):
        raise ProtocolError("the event is too short")
    partition = int.from_bytes(value[end - 4 : end], signed=True)
    return PartitionKey(value[id_at : end - 4], partition)
