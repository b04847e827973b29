"""Encoding and decoding of batches in the metadata log: metadata and control records (KIP-631).

Ten thousand records take 60 ms. So a controller encodes them in slices, before their offset is
known, and appends them afterwards (`MetadataBatchEncoder`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.codec import decode, encode_bytes
from barnabas.protocol.record_frame import decode_metadata_record, encode_metadata_record
from barnabas.protocol.records.metadata_log import KRaftVersionRecord, LeaderChangeMessage, Voter
from barnabas.protocol.records.nodes import VotersRecord
from barnabas.raft.listener import CommittedBatch, MetadataBatchTooLargeError
from barnabas.raft.voter_set import VoterSet
from barnabas.record.batch import (
    Buffer,
    ControlType,
    batches,
    check_crc,
    encode_control_key,
    parse_control_key,
)
from barnabas.record.builder import BatchBuilder
from barnabas.record.reader import read_batches, records_of
from barnabas.record.record import CorruptBatchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from barnabas.protocol.schema import Record
    from barnabas.raft.core.messages import ControlRecords, LeaderChange
    from barnabas.raft.voter_set import VoterHistory


# Kafka's maximum size of a batch of metadata records, bytes.
METADATA_BATCH_BYTES_MAX = 8 * 1024 * 1024


class MetadataBatchEncoder:
    """Collects encoded metadata records for one batch."""

    __slots__ = ("_builder", "timestamp_ms")

    def __init__(self, timestamp_ms: int) -> None:
        # Timestamp of all records, wall clock in ms.
        self.timestamp_ms = timestamp_ms
        self._builder = BatchBuilder()

    def add(self, record: Record, version: int) -> None:
        """Encode a record in a version, and add it.

        Raises:
            ProtocolError: the version cannot represent a value of the record.
        """
        self._builder.append(self.timestamp_ms, None, encode_metadata_record(record, version))

    def build(self, base_offset: int, epoch: int) -> bytearray:
        """Return the batch.

        Args:
            base_offset: offset of the first record.
            epoch: leader epoch of the quorum.

        Raises:
            MetadataBatchTooLargeError: the batch exceeds the maximum size.
        """
        builder = self._builder
        assert not builder.is_empty, "a batch needs a record"
        if builder.estimated_size > METADATA_BATCH_BYTES_MAX:
            raise MetadataBatchTooLargeError(
                f"{builder.record_count} metadata records take {builder.estimated_size} bytes;"
                f" one batch may have {METADATA_BATCH_BYTES_MAX}"
            )
        builder.base_offset, builder.leader_epoch = base_offset, epoch
        return builder.build()

    def __len__(self) -> int:
        return self._builder.record_count


_log = logging.getLogger(__name__)


def encode_metadata_batch(
    records: Iterable[tuple[Record, int]], base_offset: int, epoch: int, now_ms: int
) -> bytearray:
    """Encode metadata records as one batch. Each record comes with the version to write it in.

    Raises:
        MetadataBatchTooLargeError: the batch exceeds the maximum size.
    """
    encoder = MetadataBatchEncoder(now_ms)
    for record, version in records:
        encoder.add(record, version)
    return encoder.build(base_offset, epoch)


def encode_control_batch(
    control_type: ControlType, value: bytes, base_offset: int, epoch: int, now_ms: int
) -> bytearray:
    """Encode one control record as a batch."""
    builder = BatchBuilder(base_offset=base_offset, leader_epoch=epoch, control=True)
    builder.append(now_ms, encode_control_key(control_type), value)
    return builder.build()


def encode_control_records(records: ControlRecords, base_offset: int, now_ms: int) -> bytearray:
    """Encode the control records of a leader as one batch, in Kafka's order."""
    builder = BatchBuilder(base_offset=base_offset, leader_epoch=records.epoch, control=True)

    def append(control_type: ControlType, record: Record) -> None:
        builder.append(now_ms, encode_control_key(control_type), encode_bytes(record, 0))

    if records.leader_change is not None:
        append(ControlType.LEADER_CHANGE, _leader_change(records.leader_change))
    if records.kraft_version is not None:
        level = KRaftVersionRecord(version=0, kraft_version=records.kraft_version)
        append(ControlType.KRAFT_VERSION, level)
    if records.voters is not None:
        append(ControlType.KRAFT_VOTERS, records.voters.to_record())
    return builder.build()


def _leader_change(change: LeaderChange) -> LeaderChangeMessage:
    return LeaderChangeMessage(
        version=0,
        leader_id=change.leader_id,
        voters=[Voter(voter_id=voter) for voter in change.voters.ids],
        granting_voters=[Voter(voter_id=voter) for voter in change.granting_voters],
    )


class FetchedBatches(NamedTuple):
    """The part of a leader's response that may be appended."""

    # Size of the complete batches that continue the log, bytes.
    size: int
    # Views of the control batches among them, one per batch.
    control_batches: list[Buffer]


def check_fetched(buffer: memoryview, next_offset: int, epoch: int) -> FetchedBatches:
    """Determine how much of a leader's response continues the log.

    The first batch that is truncated, damaged, not contiguous, or of an epoch later than the
    leader's is rejected. All bytes after it are rejected too.
    """
    size = 0
    control_batches: list[Buffer] = []
    try:
        for position, header in batches(buffer):
            if (
                header.base_offset != next_offset
                or header.partition_leader_epoch > epoch
                or not check_crc(buffer, position, header)
            ):
                break
            next_offset = header.last_offset + 1
            size = position + header.size
            if header.is_control:
                control_batches.append(buffer[position:size])
    except CorruptBatchError as error:
        _log.warning("Leader's records cannot be read: from_byte=%d error=%s", size, error)
    return FetchedBatches(size, control_batches)


def replay_control_batches(buffer: Buffer, history: VoterHistory) -> int:
    """Apply the voters and kraft.version records of a log's bytes; returns the next offset."""
    next_offset = -1
    for position, header in batches(buffer):
        next_offset = header.last_offset + 1
        if header.is_control:
            for record in records_of(buffer, position, header):
                replay_control_record(record.key, record.value or b"", record.offset, history)
    return next_offset


def replay_control_record(
    key: Buffer | None, value: Buffer, offset: int, history: VoterHistory
) -> bool:
    """Apply a control record; returns whether it is about the voters or kraft.version."""
    control_type = parse_control_key(key)
    if control_type is ControlType.KRAFT_VERSION:
        history.add_kraft_version(offset, decode(KRaftVersionRecord, 0, value).kraft_version)
        return True
    if control_type is ControlType.KRAFT_VOTERS:
        history.add_voters(offset, VoterSet.from_record(decode(VotersRecord, 0, value)))
        return True
    return False


def decode_metadata_batches(buffer: Buffer) -> Iterator[CommittedBatch]:
    """Yield the complete batches in `buffer`; control batches come without their records.

    Raises:
        ProtocolError: a record is unknown or damaged.
        CorruptBatchError: the bytes are not valid batches.
    """
    for header, records in read_batches(buffer):
        decoded: Sequence[tuple[Record, int]] = ()
        if not header.is_control:
            decoded = [decode_metadata_record(record.value or b"") for record in records]
        yield CommittedBatch(
            header.base_offset,
            header.last_offset,
            header.partition_leader_epoch,
            header.max_timestamp,
            header.size,
            decoded,
        )
