"""The replay of one record type of consumer, share or streams groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from barnabas.coordinator.group.replayed_group import NO_EPOCH

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.group.replayed_group import ReplayedGroup

G = TypeVar("G")
K = TypeVar("K")
V = TypeVar("V")


class RecordReplay(msgspec.Struct, Generic[G, K, V], frozen=True):
    """The key and value of the records, and how they change a group."""

    key: type[K]
    value: type[V]
    # Applies a record. Raises ProtocolError before it changes the group.
    put: Callable[[G, K, V], None]
    # Applies a tombstone. None: the tombstone removes the group.
    remove: Callable[[G, K], None] | None = None


# Record types that differ in their names only.


class _MemberKey(Protocol):
    member_id: str


class _Epoch(Protocol):
    epoch: int
    metadata_hash: int


class _TargetEpoch(Protocol):
    assignment_epoch: int
    assignment_timestamp: int


def put_epoch(group: ReplayedGroup[Any, Any], _key: object, record: _Epoch) -> None:
    """Apply the group epoch and the hash of the topics."""
    group.group_epoch = record.epoch
    group.metadata_hash = record.metadata_hash


def put_target_epoch(group: ReplayedGroup[Any, Any], _key: object, record: _TargetEpoch) -> None:
    """Apply the epoch of the target assignment, and when the assignment was computed."""
    group.assignment_epoch = record.assignment_epoch
    group.assignment_timestamp = record.assignment_timestamp


def remove_target_epoch(group: ReplayedGroup[Any, Any], _key: object) -> None:
    """Apply the tombstone of the epoch of the target assignment."""
    group.assignment_epoch, group.assignment_timestamp = NO_EPOCH, 0


def remove_target(group: ReplayedGroup[Any, Any], key: _MemberKey) -> None:
    """Apply the tombstone of a member's target assignment."""
    group.targets.pop(key.member_id, None)


def remove_member(group: ReplayedGroup[Any, Any], key: _MemberKey) -> None:
    """Apply the tombstone of a member's identity and subscription."""
    group.remove(key.member_id)
