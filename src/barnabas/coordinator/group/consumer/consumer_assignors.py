"""The server-side assignors of consumer groups: `range` and `uniform` (KIP-848).

They take the decisions of Kafka's RangeAssignor and UniformAssignor. `range` assigns consecutive
partitions of each topic, in the order of the members. Static members come first, sorted by instance
id; then the others, sorted by member id. Topics with as many partitions and the same members are
divided in the same way, so that one member gets equal keys of such topics.

`uniform` balances first, then moves as little as possible. It has two algorithms:

- Members with equal subscriptions (UniformHomogeneousAssignmentBuilder). Each member keeps its
  partitions up to its quota. The partitions that are left go to the members below their quotas.
- Other groups (UniformHeterogeneousAssignmentBuilder). Members keep their valid partitions, the
  other partitions go to the subscribers with the fewest partitions, and then the topics are leveled
  one by one until nothing moves.

To level a topic, its members are sorted by their number of partitions. A range at the front holds
those with the fewest; it grows to the right as its members gain partitions. A range at the back
holds those with the most; it grows to the left as its members give partitions away. Each range
takes its members in turn, so that the work for a partition does not depend on the number of
members.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.targets import STEP
from barnabas.coordinator.group.topics import NOTHING, Target
from barnabas.protocol.java_collections import (
    JavaTable,
    copied,
    member_order,
    partition_order,
    string_order,
    topic_id_hash,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

    from barnabas.coordinator.group.targets import Assigning, AssignorInput


def assign_ranges(given: AssignorInput) -> Assigning:
    """Return the target assignment of each member. Yields."""
    order = sorted(
        given.members,
        key=lambda member_id: _sort_key(member_id, given.members[member_id].instance_id),
    )
    found: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in order}
    yield
    subscribers: dict[bytes, list[str]] = {}
    done = 0
    for member_id in order:
        topic_ids = given.members[member_id].subscribed_topic_ids
        for topic_id in topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
        done += 1 + len(topic_ids)
        if done >= STEP:
            done = 0
            yield
    for topic_id, members in subscribers.items():
        quota, extra = divmod(given.partition_counts[topic_id], len(members))
        first = 0
        for position, member_id in enumerate(members):
            end = first + quota + (1 if position < extra else 0)
            if end > first:
                found[member_id][topic_id] = frozenset(range(first, end))
            first = end
            if position % STEP == STEP - 1:
                yield
    targets: dict[str, Target] = dict(found)
    return targets


def _sort_key(member_id: str, instance_id: str | None) -> tuple[bool, bytes]:
    return (instance_id is None, string_order(member_id if instance_id is None else instance_id))


def valid_targets(
    given: AssignorInput, order: Sequence[str]
) -> Generator[None, None, tuple[list[Target], dict[bytes, set[int]]]]:
    """Return the targets of the members without topics that they do not subscribe to. Yields.

    Partitions that do not exist and second owners of a partition are left out too. Records of a
    group have neither, but a damaged or foreign log may.

    Args:
        given: the group.
        order: the members.

    Returns:
        The targets in the order of the members, and all partitions in them by topic.
    """
    found: list[Target] = []
    taken: dict[bytes, set[int]] = {topic_id: set() for topic_id in given.partition_counts}
    counts = given.partition_counts
    done = 0
    for member_id in order:
        member = given.members[member_id]
        kept: Target = member.target
        for topic_id, partitions in member.target.items():
            valid = partitions
            if topic_id not in member.subscribed_topic_ids:
                valid = frozenset()
            elif max(partitions) >= counts[topic_id] or not taken[topic_id].isdisjoint(partitions):
                others, count = taken[topic_id], counts[topic_id]
                valid = frozenset(
                    each for each in partitions if each < count and each not in others
                )
            if valid:
                taken[topic_id] |= valid
            if valid is not partitions:
                kept = {each: own for each, own in kept.items() if each != topic_id}
                if valid:
                    kept[topic_id] = valid
        found.append(kept)
        done += 1 + len(kept)
        if done >= STEP:
            done = 0
            yield
    return found, taken


class LoadRanges:
    """Both ranges over the subscribers of one topic (Kafka: MemberAssignmentBalancer).

    It counts the movements that its results imply. The caller changes `loads` meanwhile, and no
    member outside both ranges.
    """

    __slots__ = (
        "_least_end",
        "_least_next",
        "_loads",
        "_members",
        "_most_end",
        "_most_next",
        "_most_start",
        "least",
        "most",
    )

    def __init__(self, loads: list[int], members: Sequence[int]) -> None:
        """Sort the members.

        Args:
            loads: the number of partitions of each member of the group, by its index.
            members: indexes of the topic's subscribers, ascending. There is at least one.
        """
        self._loads = loads
        self._members = sorted(members, key=loads.__getitem__)
        # The range of members with the fewest partitions ends here (exclusive).
        self._least_end = 0
        self._least_next = 0
        # The range of members with the most partitions: start, end (exclusive).
        self._most_start = self._most_end = len(members)
        self._most_next = len(members) - 1
        # Number of partitions of the members of each range before the current round.
        self.least = loads[self._members[0]] - 1
        self.most = loads[self._members[-1]] + 1

    @property
    def imbalance(self) -> int:
        """The difference between the largest and the smallest number of partitions at first."""
        return self._loads[self._members[-1]] - self._loads[self._members[0]]

    @property
    def is_level(self) -> bool:
        """Whether a further movement between the ranges would improve nothing."""
        return self.most - self.least <= 1

    def next_least(self) -> int:
        """Return the member that gets the next partition."""
        if self._least_next >= self._least_end:
            self.least += 1
            while self._least_end < len(self._members) and (
                self._loads[self._members[self._least_end]] == self.least
            ):
                self._least_end += 1
            self._least_next = 0
        found = self._members[self._least_next]
        self._least_next += 1
        return found

    def next_most(self) -> int | None:
        """Return the member that gives the next partition away; None if there is none left."""
        if self._most_next < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                # All members of the range were excluded.
                self.most = self._loads[self._members[self._most_start - 1]]
            else:
                self.most -= 1
            while self._most_start > 0 and (
                self._loads[self._members[self._most_start - 1]] == self.most
            ):
                self._most_start -= 1
            self._most_next = self._most_end - 1
        if self._most_next < 0:
            return None
        found = self._members[self._most_next]
        self._most_next -= 1
        return found

    def exclude_most(self) -> None:
        """Exclude the last result of `next_most`: the member has nothing to give away."""
        members, place, last = self._members, self._most_next + 1, self._most_end - 1
        members[place], members[last] = members[last], members[place]
        self._most_end = last


_TopicIdPartition = tuple[bytes, int]


class _Quotas(msgspec.Struct):
    """The number of partitions of each member."""

    # Each member gets this number, and `extra` members get one more.
    minimum: int
    extra: int

    def room(self, owned: int, members_left: int) -> int:
        """Return how many partitions a member may still get; negative if it has too many.

        Members that already have one more than the minimum get the extra partitions first. Other
        members get one only if there are not enough members left.

        Args:
            owned: the number of valid partitions of the member.
            members_left: the number of members whose quota is not decided, with this one.
        """
        if not self.extra:
            return self.minimum - owned
        room = self.minimum + 1 - owned
        if room > 0 and members_left > self.extra:
            return room - 1
        self.extra -= 1
        return room


def assign_equal(given: AssignorInput) -> Assigning:
    """Return the target assignment of each member; there is at least one. Yields."""
    order = yield from member_order(given.members)
    topic_ids = given.members[order[0]].subscribed_topic_ids
    if not topic_ids:
        return dict.fromkeys(order, NOTHING)
    topics = list(JavaTable(topic_id_hash, sorted(topic_ids), copied(len(topic_ids))))
    owned, taken = yield from valid_targets(given, order)
    total = sum(given.partition_counts[topic_id] for topic_id in topics)
    quotas = _Quotas(*divmod(total, len(order)))
    targets: dict[str, Target] = {}
    revoked: list[_TopicIdPartition] = []
    below_quota: list[tuple[str, int]] = []
    for position, member_id in enumerate(order):
        target = owned[position]
        room = quotas.room(sum(map(len, target.values())), len(order) - position)
        if room < 0:
            target = _keep(target, -room, revoked)
        elif room > 0:
            below_quota.append((member_id, room))
        targets[member_id] = target
        if position % STEP == STEP - 1:
            yield
    left = _without_owner(given, topics, taken)
    yield from _assign_missing(targets, below_quota, left, iter(revoked))
    return targets


def _keep(target: Target, surplus: int, revoked: list[_TopicIdPartition]) -> Target:
    """Return a target without its last `surplus` partitions. Add these to `revoked`."""
    quota = sum(map(len, target.values())) - surplus
    kept: dict[bytes, frozenset[int]] = {}
    for topic_id in JavaTable(topic_id_hash, sorted(target)):
        partitions = target[topic_id]
        if len(partitions) > quota:
            ordered = partition_order(partitions)
            revoked += [(topic_id, partition) for partition in ordered[quota:]]
            partitions = frozenset(ordered[:quota])
        quota -= len(partitions)
        if partitions:
            kept[topic_id] = partitions
    return kept


def _without_owner(
    given: AssignorInput, topics: list[bytes], taken: dict[bytes, set[int]]
) -> Iterator[_TopicIdPartition]:
    """Yield the partitions that have no owner."""
    for topic_id in topics:
        others = taken[topic_id]
        for partition in range(given.partition_counts[topic_id]):
            if partition not in others:
                yield topic_id, partition


def _assign_missing(
    targets: dict[str, Target],
    below_quota: list[tuple[str, int]],
    left: Iterator[_TopicIdPartition],
    revoked: Iterator[_TopicIdPartition],
) -> Generator[None, None, None]:
    """Assign each member the missing number of partitions. Yields."""
    assigned = 0
    for member_id, room in below_quota:
        gained: dict[bytes, list[int]] = {}
        for _ in range(room):
            topic_id, partition = next(left, None) or next(revoked)
            gained.setdefault(topic_id, []).append(partition)
            assigned += 1
            if assigned % STEP == 0:
                yield
        target = dict(targets[member_id])
        for topic_id, partitions in gained.items():
            target[topic_id] = target.get(topic_id, frozenset()).union(partitions)
        targets[member_id] = target
    assert next(left, None) is None, f"members={len(targets)} below_quota={len(below_quota)}"
    assert next(revoked, None) is None, f"members={len(targets)} below_quota={len(below_quota)}"


# Kafka's limit. Topics with partly common subscribers may need many rounds.
_ROUNDS_MAX = 16
_FREE = -1
_UUID = struct.Struct(">qq")


def assign_different(given: AssignorInput) -> Assigning:
    """Return the target assignment of each member; there is at least one. Yields."""
    order = yield from member_order(given.members)
    return (yield from _Leveling(given, order).assign())


class _Leveling:
    """Levels the numbers of partitions of the members, which are numbered in Kafka's order."""

    __slots__ = ("_counts", "_given", "_loads", "_order", "_owners", "_subscribers", "_targets")

    def __init__(self, given: AssignorInput, order: list[str]) -> None:
        self._given = given
        self._order = order
        self._counts = given.partition_counts
        # Indexes of the subscribed members by topic id, ascending.
        self._subscribers: dict[bytes, list[int]] = {}
        # Index of the owner of each partition, or _FREE, by topic id.
        self._owners: dict[bytes, list[int]] = {}
        # Number of partitions of each member.
        self._loads: list[int] = [0] * len(order)
        # The valid part of each member's current target.
        self._targets: list[Target] = []

    def assign(self) -> Assigning:
        """Keep the valid assignments, assign the other partitions, and level the load. Yields."""
        yield from self._subscribe()
        yield from self._keep()
        topics = sorted(self._subscribers, key=self._weight)
        yield
        for topic_id in topics:
            yield from self._assign_free(topic_id)
        shared = [each for each in topics if len(self._subscribers[each]) > 1]
        yield from self._level_all(shared)
        return (yield from self._result())

    def _subscribe(self) -> Generator[None, None, None]:
        done = 0
        for index, member_id in enumerate(self._order):
            topic_ids = self._given.members[member_id].subscribed_topic_ids
            for topic_id in topic_ids:
                self._subscribers.setdefault(topic_id, []).append(index)
            done += 1 + len(topic_ids)
            if done >= STEP:
                done = 0
                yield

    def _weight(self, topic_id: bytes) -> tuple[float, int, tuple[int, ...]]:
        """Return the sort key of a topic: those with the most partitions per subscriber first.

        Java compares the halves of topic ids as signed numbers.
        """
        subscribers = len(self._subscribers[topic_id])
        return (-self._counts[topic_id] / subscribers, subscribers, _UUID.unpack(topic_id))

    def _keep(self) -> Generator[None, None, None]:
        """Keep the partitions of the current target that are still valid."""
        self._owners = {each: [_FREE] * self._counts[each] for each in self._subscribers}
        self._targets, _ = yield from valid_targets(self._given, self._order)
        done = 0
        for index, target in enumerate(self._targets):
            for topic_id, partitions in target.items():
                owners = self._owners[topic_id]
                self._loads[index] += len(partitions)
                for partition in partitions:
                    owners[partition] = index
            done += 1 + self._loads[index]
            if done >= STEP:
                done = 0
                yield

    def _assign_free(self, topic_id: bytes) -> Generator[None, None, None]:
        """Assign the partitions without an owner to the subscribers with the fewest partitions."""
        owners = self._owners[topic_id]
        free = [partition for partition, owner in enumerate(owners) if owner == _FREE]
        if not free:
            return
        ranges = LoadRanges(self._loads, self._subscribers[topic_id])
        yield
        for position, partition in enumerate(free):
            owners[partition] = member = ranges.next_least()
            self._loads[member] += 1
            if position % STEP == STEP - 1:
                yield

    def _level_all(self, topics: list[bytes]) -> Generator[None, None, None]:
        """Level topic by topic, until a whole round has moved nothing."""
        last_moved: bytes | None = None
        for _ in range(_ROUNDS_MAX):
            for topic_id in topics:
                if topic_id == last_moved:
                    return
                moved = yield from self._level(topic_id)
                if moved or last_moved is None:
                    last_moved = topic_id

    def _level(self, topic_id: bytes) -> Generator[None, None, bool]:
        """Move partitions of one topic to members with fewer. Return whether it has moved any."""
        ranges = LoadRanges(self._loads, self._subscribers[topic_id])
        yield
        if ranges.imbalance <= 1:
            return False
        owners = self._owners[topic_id]
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            owned.setdefault(owner, []).append(partition)
        moved = 0
        while not ranges.is_level:
            giver = ranges.next_most()
            while giver is not None and not owned.get(giver):
                ranges.exclude_most()
                giver = ranges.next_most()
            if giver is None:
                break
            partition = owned[giver].pop()
            taker = ranges.next_least()
            if ranges.is_level:
                break
            owners[partition] = taker
            self._loads[giver] -= 1
            self._loads[taker] += 1
            moved += 1
            if moved % STEP == 0:
                yield
        return moved > 0

    def _result(self) -> Assigning:
        """Return the target of each member. Members whose partitions stay keep their object."""
        found: list[dict[bytes, list[int]]] = [{} for _ in self._order]
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                found[owner].setdefault(topic_id, []).append(partition)
                if partition % STEP == STEP - 1:
                    yield
        targets: dict[str, Target] = {}
        done = 0
        for index, member_id in enumerate(self._order):
            own = found[index]
            target: Target = {each: frozenset(listed) for each, listed in own.items()} or NOTHING
            before = self._targets[index]
            targets[member_id] = before if before == target else target
            done += 1 + len(target)
            if done >= STEP:
                done = 0
                yield
        return targets


def assign_uniformly(given: AssignorInput) -> Assigning:
    """Return the target assignment of each member. Yields."""
    if not given.members:
        return {}
    if given.is_homogeneous:
        return (yield from assign_equal(given))
    return (yield from assign_different(given))
