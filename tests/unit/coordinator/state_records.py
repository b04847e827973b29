"""Writes valid and invalid records into a state partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.record_frame import encode_coordinator_key, encode_coordinator_value
from barnabas.protocol.records.classic_groups import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from barnabas.record.batch import ControlType, encode_control_key, encode_end_marker
from barnabas.record.builder import BatchBuilder
from barnabas.storage.results import AppendOrigin
from unit.coordinator.coordinator_world import STATE

if TYPE_CHECKING:
    from unit.coordinator.coordinator_world import CoordinatorWorld

PRODUCER = 7


def append(world: CoordinatorWorld, builder: BatchBuilder) -> None:
    """Append the batch to the state partition."""
    world.replicas.manager.append_records(
        100, -1, {STATE: memoryview(builder.build())}, AppendOrigin.COORDINATOR, lambda _: None
    )


def append_record(world: CoordinatorWorld, key: bytes, value: bytes | None) -> None:
    """Append one record."""
    builder = BatchBuilder()
    builder.append(1, key, value)
    append(world, builder)


def member(member_id: str, **fields) -> MemberMetadata:
    """A member as a coordinator writes it."""
    given = {
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "rebalance_timeout": 20_000,
        "session_timeout": 10_000,
        "subscription": b"",
        "assignment": b"",
    }
    return MemberMetadata(member_id=member_id, **(given | fields))


def append_group(world: CoordinatorWorld, *members: MemberMetadata, **fields) -> None:
    """Append the record of the group `g`."""
    given = {
        "protocol_type": "consumer",
        "generation": 3,
        "protocol": "range",
        "leader": members[0].member_id if members else None,
        "members": list(members),
    }
    value = GroupMetadataValue(**(given | fields))
    append_record(
        world,
        encode_coordinator_key(GroupMetadataKey(group="g")),
        encode_coordinator_value(value, 3),
    )


def offset_record(offset: int, partition: int = 0, group: str = "g") -> tuple[bytes, bytes]:
    """Key and value of a committed offset of topic `flights`."""
    key = OffsetCommitKey(group=group, topic="flights", partition=partition)
    value = OffsetCommitValue(offset=offset, metadata="m", commit_timestamp=1)
    return encode_coordinator_key(key), encode_coordinator_value(value, 3)


def append_transactional(
    world: CoordinatorWorld, offset: int, *, producer_id: int = PRODUCER, sequence: int = 0
) -> None:
    """Append an offset that a producer commits within its transaction."""
    builder = BatchBuilder(
        producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True
    )
    builder.append(1, *offset_record(offset))
    append(world, builder)


def append_marker(
    world: CoordinatorWorld, control_type: ControlType, producer_id: int = PRODUCER
) -> None:
    """Append the marker that ends a producer's transaction."""
    builder = BatchBuilder(
        producer_id=producer_id, producer_epoch=0, transactional=True, control=True
    )
    builder.append(1, encode_control_key(control_type), encode_end_marker(0))
    append(world, builder)
