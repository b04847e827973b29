"""Batches of the metadata log: records in Kafka's frames, and control records (KIP-631)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.codec import encode_bytes
from barnabas.protocol.record_frame import decode_metadata_record, encode_metadata_record
from barnabas.protocol.records.leader_change_message import LeaderChangeMessage, Voter
from barnabas.raft.errors import MetadataBatchTooLargeError
from barnabas.raft.listener import CommittedBatch
from barnabas.record.builder import BatchBuilder
from barnabas.record.control import ControlType, encode_control_key
from barnabas.record.reader import read_batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from barnabas.protocol.schema import Record
    from barnabas.raft.effects import LeaderChange
    from barnabas.record.batch import Buffer

# Kafka's largest batch of metadata records.
METADATA_BATCH_BYTES_MAX = 8 * 1024 * 1024


def encode_metadata_batch(
    records: Iterable[tuple[Record, int]], base_offset: int, epoch: int, now_ms: int
) -> bytearray:
    """One batch of metadata records, each given with the version to write it in.

    Raises:
        MetadataBatchTooLargeError: it would be larger than a batch may be.
    """
    builder = BatchBuilder(base_offset=base_offset, leader_epoch=epoch)
    for record, version in records:
        builder.append(now_ms, None, encode_metadata_record(record, version))
    assert not builder.is_empty, "a batch needs a record"
    if builder.estimated_size > METADATA_BATCH_BYTES_MAX:
        raise MetadataBatchTooLargeError(
            f"{builder.record_count} metadata records take {builder.estimated_size} bytes;"
            f" one batch may have {METADATA_BATCH_BYTES_MAX}"
        )
    return builder.build()


def encode_control_batch(
    control_type: ControlType, value: bytes, base_offset: int, epoch: int, now_ms: int
) -> bytearray:
    """One batch with one control record."""
    builder = BatchBuilder(base_offset=base_offset, leader_epoch=epoch, control=True)
    builder.append(now_ms, encode_control_key(control_type), value)
    return builder.build()


def encode_leader_change(change: LeaderChange, base_offset: int, now_ms: int) -> bytearray:
    """The batch that a leader begins its epoch with, as kraft.version 0 has it."""
    message = LeaderChangeMessage(
        version=0,
        leader_id=change.leader_id,
        voters=[Voter(voter_id=voter) for voter in change.voters],
        granting_voters=[Voter(voter_id=voter) for voter in change.granting_voters],
    )
    return encode_control_batch(
        ControlType.LEADER_CHANGE, encode_bytes(message, 0), base_offset, change.epoch, now_ms
    )


def decode_metadata_batches(buffer: Buffer) -> Iterator[CommittedBatch]:
    """The whole batches in `buffer`; control batches without their records.

    Raises:
        ProtocolError: a record that we do not know, or a damaged one.
        CorruptBatchError: bytes that are no batches.
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
