"""Consumer, share and streams groups: what they share. Only replay changes them."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from barnabas.coordinator.group.group_base import Group, GroupMember
from barnabas.coordinator.group.topics import Target, target_of
from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from enum import IntEnum

    from barnabas.coordinator.group.group_base import GroupMemory


# Epoch of a member, a target assignment or a topology without a record.
NO_EPOCH = -1
# Epoch of a group without records. The first member raises it.
FIRST_EPOCH = 1
# Above the epoch of every group.
_NOT_COMPARED = 0x7FFF_FFFF

M = TypeVar("M", bound=GroupMember)
T = TypeVar("T")


class ReplayedGroup(Group, Generic[M, T]):
    """Members (`M`), epochs and target assignment (a `T` for each member) of a group."""

    __slots__ = (
        "assignment_epoch",
        "assignment_timestamp",
        "compared_epoch",
        "group_epoch",
        "members",
        "metadata_hash",
        "static_members",
        "targets",
    )

    def __init__(self, group_id: str, memory: GroupMemory) -> None:
        super().__init__(group_id, memory)
        # Increases when members, topics or other inputs of the target assignment change.
        self.group_epoch = FIRST_EPOCH
        # Hash of the group's topics at the last change of the group epoch.
        self.metadata_hash = 0
        # The group epoch for which `targets` was computed, and when (wall clock in ms, or 0).
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp = 0
        self.members: dict[str, M] = {}
        # Member id by instance id. Empty in share groups.
        self.static_members: dict[str, str] = {}
        # Target assignment by member id.
        self.targets: dict[str, T] = {}
        # Group epoch for which the topics were last compared with the stored hash. While the group
        # epoch is lower, the next heartbeat compares them: after a change of the topics, or if the
        # record of the epoch was not written. Kafka also compares them every 25 days.
        self.compared_epoch = _NOT_COMPARED

    @property
    def has_members(self) -> bool:
        """Whether the group has members."""
        return bool(self.members)

    def static_member(self, instance_id: str | None) -> M | None:
        """Return the static member of an instance, or None."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    @abstractmethod
    def remove(self, member_id: str) -> None:
        """Remove a member. Another record removes its target assignment."""

    def needs_topic(self, topic: str) -> bool:
        """Whether the target assignment depends on the topic."""
        return self.is_subscribed_to(topic)

    def set_targets(self, epoch: int, timestamp: int, targets: Mapping[str, T]) -> None:
        """Apply the targets that a new assignment has changed, as the replay of its records does.

        Args:
            epoch: the group epoch of the assignment.
            timestamp: when it was computed, wall clock in ms.
            targets: targets of members by id.
        """
        assert epoch > self.assignment_epoch, (
            f"group={self.group_id} epoch={epoch} assignment_epoch={self.assignment_epoch}"
        )
        assert targets.keys() <= self.members.keys(), f"group={self.group_id} epoch={epoch}"
        self.targets.update(targets)
        self.assignment_epoch = epoch
        self.assignment_timestamp = timestamp

    # Validity of the hash of the topics.

    def request_refresh(self) -> None:
        """Compare the topics with the stored hash at the next heartbeat."""
        self.compared_epoch = _NOT_COMPARED

    @property
    def needs_refresh(self) -> bool:
        """Whether the topics must be compared with the stored hash."""
        return self.group_epoch < self.compared_epoch


def advanced(member: M, state: IntEnum, epoch: int, assigned: object, pending: object) -> M:
    """Return a member after a step towards its target; `member` itself if nothing changes.

    Args:
        member: the member.
        state: its next state.
        epoch: its next epoch.
        assigned: the partitions or tasks that the client may use.
        pending: the partitions or tasks that the client must give up.
    """
    after = replace(
        member,
        state=state,
        member_epoch=epoch,
        previous_member_epoch=member.member_epoch,
        assigned=assigned,
        pending_revocation=pending,
    )
    return member if after == member else after


def change_counts(counts: dict[str, int], names: Iterable[str], change: int) -> None:
    """Add `change` to the count of each name. Names with a count of 0 are removed."""
    for name in names:
        count = counts.get(name, 0) + change
        if count > 0:
            counts[name] = count
        else:
            counts.pop(name, None)


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


# Replays of record types that the kinds have under different names.


class _MemberKey(Protocol):
    member_id: str


class _Epoch(Protocol):
    epoch: int
    metadata_hash: int


class _Partitions(Protocol):
    topic_id: bytes
    partitions: list[int]


class _Target(Protocol):
    @property
    def topic_partitions(self) -> Iterable[_Partitions]: ...


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


def put_target(group: ReplayedGroup[Any, Target], key: _MemberKey, record: _Target) -> None:
    """Apply the partitions of a member's target assignment."""
    group.targets[key.member_id] = target_of(
        {each.topic_id: each.partitions for each in record.topic_partitions}
    )


def remove_target(group: ReplayedGroup[Any, Any], key: _MemberKey) -> None:
    """Apply the tombstone of a member's target assignment."""
    group.targets.pop(key.member_id, None)


def remove_member(group: ReplayedGroup[Any, Any], key: _MemberKey) -> None:
    """Apply the tombstone of a member's identity and subscription."""
    group.remove(key.member_id)


def remove_current(group: Any, key: _MemberKey, nothing: object) -> None:
    """Apply the tombstone of a member's epoch, and of the partitions or tasks that it has.

    Args:
        group: a consumer or streams group.
        key: names the member.
        nothing: replaces the partitions or tasks.
    """
    known = group.members.get(key.member_id)
    if known is not None:
        epochs = {"member_epoch": NO_EPOCH, "previous_member_epoch": NO_EPOCH}
        group.put(replace(known, **epochs, assigned=nothing, pending_revocation=nothing))


def tombstones_without_members(
    keys: Iterable[type[Any]], group: ReplayedGroup[Any, Any]
) -> list[CoordinatorRecord]:
    """Return the records that remove a group without members, in Kafka's order.

    Args:
        keys: the keys of the records.
        group: the group.
    """
    assert not group.members, f"group={group.group_id} members={len(group.members)}"
    return CoordinatorRecord.tombstones(keys, group_id=group.group_id)


B = TypeVar("B", bound=ReplayedGroup[Any, Any])
# The classes of the key and of the value of a record type.
_Types = tuple[type[Any], type[Any]]


class KindRecords(msgspec.Struct, frozen=True):
    """The record types that each kind of groups has under names of its own."""

    epoch: _Types
    member: _Types
    target_epoch: _Types
    target: _Types
    current: _Types
    # The class of a topic in the target assignment; None if it consists of tasks.
    target_topic: type[Any] | None = None

    def epoch_record(self, group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
        """Return the record of the group epoch and the hash of the subscribed topics."""
        key, value = self.epoch
        content = value(epoch=epoch, metadata_hash=metadata_hash)
        return CoordinatorRecord.of(key(group_id=group_id), content)

    def target_epoch_record(self, group_id: str, epoch: int, timestamp: int) -> CoordinatorRecord:
        """Return the record of the epoch of the target assignment, and when it was computed."""
        key, value = self.target_epoch
        content = value(assignment_epoch=epoch, assignment_timestamp=timestamp)
        return CoordinatorRecord.of(key(group_id=group_id), content)

    def target_record(self, group_id: str, member_id: str, target: Target) -> CoordinatorRecord:
        """Return the record of a member's target assignment of partitions."""
        key, value = self.target
        assert self.target_topic is not None, f"{key.__name__} has tasks"
        topics = [
            self.target_topic(topic_id=topic_id, partitions=sorted(indexes))
            for topic_id, indexes in sorted(target.items())
        ]
        content = value(topic_partitions=topics)
        return CoordinatorRecord.of(key(group_id=group_id, member_id=member_id), content)

    def member_tombstones(self, group_id: str, member_id: str) -> list[CoordinatorRecord]:
        """Return the records that remove a member, in the order that replay expects."""
        keys = [key for key, _ in (self.current, self.target, self.member)]
        return CoordinatorRecord.tombstones(keys, group_id=group_id, member_id=member_id)

    def replays(
        self,
        put_member: Callable[[B, Any, Any], None],
        put_current: Callable[[B, Any, Any], None],
        remove_current: Callable[[B, Any], None],
        put_epoch: Callable[[B, Any, Any], None] = put_epoch,
        put_target: Callable[[B, Any, Any], None] = put_target,
    ) -> tuple[RecordReplay[B, Any, Any], ...]:
        """Return the replays of these record types."""
        return (
            RecordReplay(*self.epoch, put_epoch),
            RecordReplay(*self.member, put_member, remove_member),
            RecordReplay(*self.target_epoch, put_target_epoch, remove_target_epoch),
            RecordReplay(*self.target, put_target, remove_target),
            RecordReplay(*self.current, put_current, remove_current),
        )
