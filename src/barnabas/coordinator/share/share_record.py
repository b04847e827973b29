"""Records of `__share_group_state`: snapshots, updates and tombstones (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.coordinator.share.share_partition_state import (
    SharePartitionKey,
    SharePartitionState,
    SharePartitionUpdate,
    StateBatch,
)
from barnabas.protocol.record_frame import (
    decode_coordinator_key,
    decode_coordinator_value,
    read_prefix,
)
from barnabas.protocol.records.coordinator_logs import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch as LoggedBatch,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol

    from barnabas.protocol.schema import Record

    class _Batch(Protocol):
        first_offset: int
        last_offset: int
        delivery_state: int
        delivery_count: int


B = TypeVar("B")

SNAPSHOT_TYPE = 0
UPDATE_TYPE = 1


def snapshot_record(key: SharePartitionKey, state: SharePartitionState) -> CoordinatorRecord:
    """Return the record with the whole state of a share partition."""
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=state.create_timestamp_ms,
        write_timestamp=state.write_timestamp_ms,
        state_batches=batches_as(LoggedBatch, state.state_batches),
    )
    return CoordinatorRecord.of(_key(ShareSnapshotKey, key), value)


def update_record(key: SharePartitionKey, update: SharePartitionUpdate) -> CoordinatorRecord:
    """Return the record with a change of the state of a share partition."""
    value = ShareUpdateValue(
        snapshot_epoch=update.snapshot_epoch,
        leader_epoch=update.leader_epoch,
        start_offset=update.start_offset,
        delivery_complete_count=update.delivery_complete_count,
        state_batches=batches_as(LoggedBatch, update.state_batches),
    )
    return CoordinatorRecord.of(_key(ShareUpdateKey, key), value)


def tombstone_record(key: SharePartitionKey) -> CoordinatorRecord:
    """Return the record that deletes the state of a share partition."""
    return CoordinatorRecord.of(_key(ShareSnapshotKey, key), None)


def _key(kind: Callable[..., Record], key: SharePartitionKey) -> Record:
    group_id, topic_id, partition = key
    return kind(group_id=group_id, topic_id=topic_id, partition=partition)


def batches_as(kind: Callable[..., B], batches: list[StateBatch]) -> list[B]:
    """Return state batches in the class of a response or record."""
    return [
        kind(
            first_offset=each.first_offset,
            last_offset=each.last_offset,
            delivery_state=each.delivery_state,
            delivery_count=each.delivery_count,
        )
        for each in batches
    ]


def read_key(key: bytes) -> tuple[int, SharePartitionKey | None]:
    """Return the record type and the share partition of a record's key.

    The share partition is None if the type is unknown.

    Raises:
        ProtocolError: the key is unreadable.
    """
    record_type = read_prefix(key)
    if record_type not in (SNAPSHOT_TYPE, UPDATE_TYPE):
        return record_type, None
    # The keys of both types have the same fields.
    found = decode_coordinator_key(ShareSnapshotKey, key)
    return record_type, SharePartitionKey(found.group_id, found.topic_id, found.partition)


def read_snapshot(content: bytes) -> SharePartitionState:
    """Return the state in a snapshot's value. Raises ProtocolError."""
    value = decode_coordinator_value(ShareSnapshotValue, content)
    return SharePartitionState(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        state_batches=state_batches(value.state_batches),
        create_timestamp_ms=value.create_timestamp,
        write_timestamp_ms=value.write_timestamp,
    )


def read_update(content: bytes) -> SharePartitionUpdate:
    """Return the change in an update's value. Raises ProtocolError."""
    value = decode_coordinator_value(ShareUpdateValue, content)
    return SharePartitionUpdate(
        snapshot_epoch=value.snapshot_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        state_batches=state_batches(value.state_batches),
    )


def state_batches(batches: Iterable[_Batch]) -> list[StateBatch]:
    """Return the state batches of a request or record."""
    return [
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in batches
    ]
