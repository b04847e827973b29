"""One record with its batch and its transaction, as no consumer receives them.

A consumer skips control records and aborted transactions. This module reads the batches themselves,
so that every offset of a partition can be explained. All functions block: run them in a thread.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.errors import ClientError, CorruptRecordsError
from barnabas.client.fetch.record_set import ConsumerRecord, examine_batches, iter_span_records
from barnabas.client.topic_partition import TopicPartition
from barnabas.record.batch import COMPRESSION_MASK, parse_control_key
from barnabas.record.compression import NAMES
from barnabas.record.record import CorruptBatchError

if TYPE_CHECKING:
    from barnabas.client.facade import Client
    from barnabas.client.fetch.record_set import ExaminedBatch, RecordSet

_MS_PER_S = 1000.0
# Record sets that are read until one has the record.
_SETS_MAX = 100


class Fate(enum.StrEnum):
    """What became of the transaction of a record."""

    # The record is not in a transaction.
    NONE = "none"
    COMMITTED = "committed"
    ABORTED = "aborted"
    # The transaction has not ended, or an older one has not, so that the fate is not known yet.
    OPEN = "open"
    # The record is a marker itself, which ends a transaction.
    MARKER = "marker"


class Batch(NamedTuple):
    """The batch of a record."""

    first_offset: int
    last_offset: int
    # -1 for formats before v2.
    record_count: int
    # Bytes, as stored.
    size: int
    # Version of the format: 0, 1 or 2.
    magic: int
    compression: str
    leader_epoch: int
    is_transactional: bool
    is_control: bool
    # -1 without an idempotent or transactional producer.
    producer_id: int
    producer_epoch: int
    first_sequence: int


class Reading(NamedTuple):
    """What was found at an offset, or behind it."""

    # The first offset of the partition, and the high watermark.
    start: int
    end: int
    last_stable: int
    # The first record at or after the offset; None if there is none.
    record: ConsumerRecord | None = None
    batch: Batch | None = None
    # "COMMIT" or "ABORT", or the name of another control record; "" for other records.
    marker: str = ""


def read_record(client: Client, tp: TopicPartition, offset: int, seconds: float) -> Reading:
    """Return the first record at or after an offset, whatever its transaction.

    Args:
        client: A client with isolation.level=read_uncommitted.
        tp: The partition.
        offset: The offset.
        seconds: How long to wait for the record.

    Raises:
        ClientError: The partition cannot be read.
    """
    reading = Reading(
        client.list_offsets({tp: "earliest"})[tp].offset,
        client.list_offsets({tp: "latest"}, isolation_level="read_uncommitted")[tp].offset,
        client.list_offsets({tp: "latest"}, isolation_level="read_committed")[tp].offset,
    )
    if not reading.start <= offset < reading.end:
        return reading
    with client.stream({tp: (offset, reading.end)}) as stream:
        # A set may end before its batch, or have gaps only.
        for _ in range(_SETS_MAX):
            found = stream.poll(seconds * _MS_PER_S)
            if found is None:
                break
            for batch in examine_batches(found):
                record = _record_at(found, batch, offset)
                if record is not None:
                    facts = _facts(batch)
                    marker = _marker(record) if facts.is_control else ""
                    return reading._replace(record=record, batch=facts, marker=marker)
    return reading


def _record_at(found: RecordSet, batch: ExaminedBatch, offset: int) -> ConsumerRecord | None:
    """Return the first record of a batch at or after an offset."""
    if batch.header is not None and batch.header.next_offset <= offset:
        return None
    try:
        for each in iter_span_records(found.data, batch.span):
            if each.offset >= offset:
                return ConsumerRecord(
                    found.topic,
                    found.partition,
                    each.offset,
                    each.timestamp,
                    each.timestamp_type,
                    each.key,
                    each.value,
                    each.headers,
                )
    except CorruptBatchError as error:
        tp, span = TopicPartition(found.topic, found.partition), batch.span
        raise CorruptRecordsError(tp, span.base_offset, str(error), span.next_offset) from None
    return None


def _facts(batch: ExaminedBatch) -> Batch:
    span, header = batch.span, batch.header
    code = span.attributes & COMPRESSION_MASK
    return Batch(
        first_offset=span.base_offset,
        last_offset=span.next_offset - 1,
        record_count=span.record_count,
        size=span.end - span.start,
        magic=span.magic,
        compression=NAMES[code] if code < len(NAMES) else f"unknown ({code})",
        leader_epoch=span.leader_epoch,
        is_transactional=header is not None and header.is_transactional,
        is_control=header is not None and header.is_control,
        producer_id=-1 if header is None else header.producer_id,
        producer_epoch=-1 if header is None else header.producer_epoch,
        first_sequence=-1 if header is None else header.base_sequence,
    )


def _marker(record: ConsumerRecord) -> str:
    try:
        found = parse_control_key(record.key)
    except CorruptBatchError:
        found = None
    return "unknown control record" if found is None else found.name


def fate_of(client: Client, tp: TopicPartition, reading: Reading, seconds: float) -> Fate:
    """Return what became of the transaction of a record.

    Args:
        client: A client with isolation.level=read_committed.
        tp: The partition.
        reading: The record and its batch.
        seconds: How long to wait for the batch.

    Raises:
        ClientError: The partition cannot be read.
    """
    record, batch = reading.record, reading.batch
    if record is None or batch is None or not batch.is_transactional:
        return Fate.NONE
    if batch.is_control:
        return Fate.MARKER
    if record.offset >= reading.last_stable:
        return Fate.OPEN
    with client.stream({tp: (record.offset, record.offset + 1)}) as stream:
        found = stream.poll(seconds * _MS_PER_S)
    for each in examine_batches(found) if found is not None else ():
        if each.span.base_offset == batch.first_offset:
            return Fate.ABORTED if each.is_aborted else Fate.COMMITTED
    return Fate.OPEN


def transactional_id_of(client: Client, producer_id: int) -> str:
    """Return the transactional id that has a producer id now.

    Returns:
        "" if no id has it any more, or the user may not see transactional ids.
    """
    try:
        found = client.admin.list_transactions([producer_id])
    except ClientError:
        return ""
    return next((each.transactional_id for each in found if each.producer_id == producer_id), "")
