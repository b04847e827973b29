"""The `simple` assignor of share groups (KIP-932): each partition has several members.

It makes the decisions of Kafka's SimpleAssignor. Each partition gets enough members that every
member has partitions, and all members have about the same number. Partitions keep their members as
far as possible. If members have different subscriptions, the topics are assigned one by one.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Generic, TypeVar

from barnabas.coordinator.group.targets import STEP
from barnabas.coordinator.group.topics import NOTHING, Target
from barnabas.protocol.java_collections import (
    JavaTable,
    member_order,
    number_hash,
    partition_order,
    room_for,
    topic_id_hash,
    topic_id_partition_hash,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from barnabas.coordinator.group.targets import Assigning, AssignorInput


P = TypeVar("P")


def assign_simply(given: AssignorInput) -> Assigning:
    """Return the target assignment of each member. Yields."""
    order = yield from member_order(given.members)
    if not given.is_homogeneous:
        return (yield from _assign_by_topic(given, order))
    if not order or not given.members[order[0]].subscribed_topic_ids:
        return dict.fromkeys(order, NOTHING)
    return (yield from _assign_together(given, order))


def _assign_together(given: AssignorInput, order: list[str]) -> Assigning:
    """Assign the partitions of all topics to members with equal subscriptions."""
    topics = sorted(given.members[order[0]].subscribed_topic_ids)
    partitions = [(topic_id, each) for topic_id in topics for each in _assignable(given, topic_id)]
    sharing = _Sharing(partitions, range(len(order)), topic_id_partition_hash)
    for index, member_id in enumerate(order):
        target = given.members[member_id].target
        for topic_id in JavaTable(topic_id_hash, sorted(target)):
            if topic_id in given.members[member_id].subscribed_topic_ids:
                known = [(topic_id, each) for each in partition_order(target[topic_id])]
                yield from sharing.keep(index, known)
            elif sharing.fills_step():
                yield
    yield from sharing.balance()
    targets: dict[str, Target] = {}
    for index, member_id in enumerate(order):
        found: dict[bytes, list[int]] = {}
        for topic_id, partition in sharing.partitions_of(index):
            found.setdefault(topic_id, []).append(partition)
        targets[member_id] = {each: frozenset(listed) for each, listed in found.items()}
        if sharing.fills_step(1 + sum(map(len, found.values()))):
            yield
    return targets


def _assign_by_topic(given: AssignorInput, order: list[str]) -> Assigning:
    """Assign the partitions of each topic to its subscribers.

    As in Kafka, members keep partitions of topics that no longer have subscribers.
    """
    subscribers: dict[bytes, list[int]] = {}
    owners: dict[bytes, list[int]] = {}
    for index, member_id in enumerate(order):
        for topic_id in given.members[member_id].subscribed_topic_ids:
            subscribers.setdefault(topic_id, []).append(index)
        for topic_id in given.members[member_id].target:
            owners.setdefault(topic_id, []).append(index)
        if index % STEP == STEP - 1:
            yield
    found: list[dict[bytes, frozenset[int]]] = [
        dict(given.members[member_id].target) for member_id in order
    ]
    if not subscribers:
        return dict.fromkeys(order, NOTHING)
    for topic_id, members in subscribers.items():
        sharing = _Sharing(_assignable(given, topic_id), members, number_hash)
        for index in owners.get(topic_id, ()):
            yield from sharing.keep(index, partition_order(found[index].pop(topic_id)))
        yield from sharing.balance()
        for index in sorted({*members, *owners.get(topic_id, ())}):
            partitions = sharing.partitions_of(index)
            if partitions:
                found[index][topic_id] = frozenset(partitions)
            if sharing.fills_step(1 + len(partitions)):
                yield
        yield
    return dict(zip(order, found, strict=True))


def _assignable(given: AssignorInput, topic_id: bytes) -> list[int]:
    every = range(given.partition_counts[topic_id])
    if given.assignable is None:
        return list(every)
    return [each for each in every if each in given.assignable.get(topic_id, frozenset())]


class _Sharing(Generic[P]):
    """Shares partitions among members, which are numbered in Kafka's order."""

    __slots__ = (
        "_by_member",
        "_by_partition",
        "_hash",
        "_items",
        "_partitions",
        "_quotas",
        "_sharing",
    )

    def __init__(
        self, partitions: Sequence[P], members: Sequence[int], hash_of: Callable[[P], int]
    ) -> None:
        """Compute the quotas.

        Args:
            partitions: the partitions that may be assigned.
            members: indexes of the subscribed members, ascending. There is at least one.
            hash_of: Java's hash of a partition.
        """
        self._partitions = partitions
        self._hash = hash_of
        # The number of members that each partition should have.
        self._sharing = ceil(len(members) / len(partitions)) if partitions else 0
        # The number of partitions that each subscribed member should have.
        share = self._sharing * len(partitions) / len(members)
        self._quotas: dict[int, int] = {
            member: ceil(share * (position + 1)) - ceil(share * position)
            for position, member in enumerate(members)
        }
        # Members and partitions that the current step has handled.
        self._items = 0
        self._by_partition: dict[P, JavaTable[int]] = {}
        self._by_member: dict[int, JavaTable[P]] = {}

    def fills_step(self, items: int = 1) -> bool:
        """Count items of work, and return whether the caller must yield."""
        self._items += items
        if self._items < STEP:
            return False
        self._items = 0
        return True

    def keep(self, member: int, partitions: Iterable[P]) -> Generator[None, None, None]:
        """Add current partitions of a member, in the order of Kafka's set. Yields."""
        own = self._by_member.setdefault(member, JavaTable(self._hash))
        for partition in partitions:
            own.add(partition)
            self._by_partition.setdefault(partition, JavaTable(number_hash)).add(member)
            if self.fills_step():
                yield

    def partitions_of(self, member: int) -> list[P]:
        """Return the partitions of a member."""
        return list(self._by_member.get(member, ()))

    def balance(self) -> Generator[None, None, None]:
        """Revoke the surplus partitions, and assign the missing ones. Yields."""
        for member, own in self._by_member.items():
            surplus = len(own) - self._quotas.get(member, 0)
            for partition in list(own)[:surplus] if surplus > 0 else ():
                self._revoke(member, partition)
                if self.fills_step():
                    yield
            if self.fills_step():
                yield
        for partition, members in self._by_partition.items():
            surplus = len(members) - self._sharing
            for member in list(members)[:surplus] if surplus > 0 else ():
                self._revoke(member, partition)
                if self.fills_step():
                    yield
            if self.fills_step():
                yield
        yield from self._assign_missing()

    def _revoke(self, member: int, partition: P) -> None:
        self._by_member[member].remove(partition)
        self._by_partition[partition].remove(member)

    def _assign_missing(self) -> Generator[None, None, None]:
        """Give partitions with too few members to members with too few partitions.

        The members take turns. When a whole round finds no member without the partition, the
        partition gets no more members; neither do the partitions after it, as in Kafka.
        """
        waiting = [member for member in sorted(self._quotas) if self._room(member) > 0]
        # Index of the next member, and whether the current round has assigned anything.
        index, has_assigned = 0, False
        table = yield from self._table()
        for partition in table:
            members = self._by_partition.setdefault(partition, JavaTable(number_hash))
            while len(members) < self._sharing and waiting:
                if index >= len(waiting):
                    if not has_assigned:
                        break
                    index, has_assigned = 0, False
                member = waiting[index]
                index += 1
                if self.fills_step():
                    yield
                if member in members:
                    continue
                members.add(member)
                self._by_member.setdefault(member, JavaTable(self._hash)).add(partition)
                has_assigned = True
                if self._room(member) <= 0:
                    index -= 1
                    del waiting[index]
            if not waiting:
                return
            if self.fills_step():
                yield

    def _room(self, member: int) -> int:
        return self._quotas[member] - len(self._by_member.get(member, ()))

    def _table(self) -> Generator[None, None, JavaTable[P]]:
        """Return all partitions in the order of Kafka's map. Yields."""
        capacity = room_for(len(self._partitions))
        table: JavaTable[P] = JavaTable(self._hash, capacity=capacity, is_computed=True)
        for partition in [*self._by_partition, *self._partitions]:
            table.add(partition)
            if self.fills_step():
                yield
        return table
