"""Sticky assignments: even shares, few movements of partitions.

Claims: a member that missed one or more generations still claims partitions that were assigned to
others meanwhile. The claim of the newer generation wins. Two claims of the same generation are both
invalid.

Members with equal subscriptions (`EvenAssignment`): members keep their partitions, up to their
share. The other partitions are distributed in turn; if racks matter, members in the rack of a
replica go first. Shares differ by at most one partition.

Members with different subscriptions (`BalancedAssignment`): members keep their partitions. Each
other partition goes to the member with the fewest partitions. Then partitions move from members
with many to members with few, until no move improves the balance. If the result is not more even
than before, the moves are undone.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.java_collections import JavaTable, string_hash, topic_partition_hash

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.group.assignor import MemberSubscription, RackMatch, Topics


__all__ = ["BalancedAssignment", "Claim", "EvenAssignment", "settle_claims"]


class Claim(NamedTuple):
    """The partitions that one member claims."""

    partitions: Sequence[TopicPartition]
    # The generation in which the member owned the partitions; -1 if unknown.
    generation_id: int = -1


class Claims(NamedTuple):
    """The resolved claims."""

    # Valid claims by member, in the order in which Kafka processes the members.
    owned: dict[str, list[TopicPartition]]
    # Partitions that two members of one generation claim.
    disputed: set[TopicPartition]
    # Former owners of partitions that they claim in an older generation: for each partition the
    # member and generation of the newest such claim.
    former: dict[TopicPartition, tuple[str, int]]


def settle_claims(
    topics: Topics, members: Mapping[str, MemberSubscription], claims: Mapping[str, Claim]
) -> Claims:
    """Resolve which member owns which partition.

    Args:
        topics: The existing topics; claims for other topics are ignored.
        members: The subscriptions, by member id.
        claims: The claims, by member id.
    """
    owned: dict[str, list[TopicPartition]] = {}
    disputed: set[TopicPartition] = set()
    owner: dict[TopicPartition, str] = {}
    for name in JavaTable(string_hash, members):
        mine = owned[name] = []
        claim = claims[name]
        for tp in claim.partitions:
            if tp.topic not in topics:
                continue
            other = owner.get(tp)
            if other is None:
                mine.append(tp)
                owner[tp] = name
                continue
            # The generation in the other member's subscription, even if its user data contains
            # another one.
            theirs = members[other].generation_id
            if claim.generation_id < theirs:
                continue
            if claim.generation_id == theirs:
                disputed.add(tp)
            else:
                mine.append(tp)
            if tp in owned[other]:
                owned[other].remove(tp)
            owner[tp] = name
    return Claims(owned, disputed, _former(members, claims))


def _former(
    members: Mapping[str, MemberSubscription], claims: Mapping[str, Claim]
) -> dict[TopicPartition, tuple[str, int]]:
    newest = max((claim.generation_id for claim in claims.values()), default=-1)
    former: dict[TopicPartition, tuple[str, int]] = {}
    for name in JavaTable(string_hash, members):
        partitions, generation_id = claims[name]
        if generation_id < newest:
            for tp in partitions:
                if tp not in former or generation_id > former[tp][1]:
                    former[tp] = name, generation_id
    return former


class EvenAssignment:
    """The assignment of one group; call `run` once.

    Attributes:
        decided: The partitions, by member.
        moving: Partitions that move to another member, with their new owners. Under the cooperative
            protocol they are assigned only after their owners have given them up.
    """

    def __init__(self, topics: Topics, racks: RackMatch, claims: Claims) -> None:
        self._racks = racks
        self._claims = claims
        self._every = [
            TopicPartition(topic, each.number) for topic in sorted(topics) for each in topics[topic]
        ]
        # Every member gets `_share` partitions; this number of members gets one more.
        self._share, self._greater_shares = divmod(len(self._every), len(claims.owned))
        self._share_max = self._share + (self._greater_shares > 0)
        self.decided: dict[str, list[TopicPartition]] = {name: [] for name in claims.owned}
        self.moving: dict[TopicPartition, str] = {}
        # Partitions that their owners could not keep, with these owners.
        self._given_up: dict[TopicPartition, str] = {}
        # Members below the share, and members with exactly the share that may get one more.
        self._below: list[str] = []
        self._at_share: list[str] = []

    def run(self) -> None:
        """Compute the assignment."""
        for name in self._claims.owned:
            self._keep(name)
        kept = {tp for partitions in self.decided.values() for tp in partitions}
        left = self._racks.rarest_first([tp for tp in self._every if tp not in kept])
        self._below.sort()
        self._at_share.sort()
        if self._racks.of_member:
            left = self._assign_near(left)
        self._assign_in_turn(left)

    def _keep(self, name: str) -> None:
        """Let a member keep the partitions that it owns, up to its share."""
        owned: list[TopicPartition] = []
        for tp in sorted(self._claims.owned[name], key=lambda tp: (tp.partition, tp.topic)):
            if self._racks.is_apart(name, tp):
                self._given_up[tp] = name
            elif tp not in self._claims.disputed:
                owned.append(tp)
        if len(owned) < self._share:
            self._below.append(name)
            self.decided[name] = owned
            return
        if len(owned) >= self._share_max and self._greater_shares:
            self._take_greater_share()
            kept = self._share_max
        else:
            kept = self._share
            if self._greater_shares:
                self._at_share.append(name)
        self.decided[name] = owned[:kept]
        self._given_up.update(dict.fromkeys(owned[kept:], name))

    def _take_greater_share(self) -> None:
        self._greater_shares -= 1
        if not self._greater_shares:
            self._at_share.clear()

    def _assign_near(self, left: list[TopicPartition]) -> list[TopicPartition]:
        """Assign partitions to members in their replicas' racks, in turn; return the others."""
        turn = 0
        remaining: list[TopicPartition] = []
        for tp in left:
            index = self._racks.next_near(tp, self._below, turn)
            if index >= 0:
                name = self._below[index]
                if self._assign_to(tp, name) >= self._share:
                    del self._below[index]
                    if self._share < self._share_max and self._greater_shares:
                        self._at_share.append(name)
                else:
                    index += 1
                turn = index % len(self._below) if self._below else 0
                continue
            index = self._racks.next_near(tp, self._at_share, 0)
            if index < 0:
                remaining.append(tp)
                continue
            self._assign_to(tp, self._at_share.pop(index))
            self._take_greater_share()
        return remaining

    def _assign_in_turn(self, left: list[TopicPartition]) -> None:
        """Assign partitions to members below their share in turn, then one more to others."""
        turn = 0
        for tp in left:
            if not self._below:
                self._assign_to(tp, self._at_share.pop(0))
                continue
            turn %= len(self._below)
            name = self._below[turn]
            if self._assign_to(tp, name) == self._share:
                del self._below[turn]
                self._at_share.append(name)
            else:
                turn += 1

    def _assign_to(self, partition: TopicPartition, name: str) -> int:
        """Assign a partition to a member; return the member's number of partitions."""
        self.decided[name].append(partition)
        former = self._given_up.get(partition, name)
        if former != name or partition in self._claims.disputed:
            self.moving[partition] = name
        return len(self.decided[name])


class PartitionMovements:
    """The movements of one assignment."""

    def __init__(self) -> None:
        # (source, target) by partition; several movements of a partition count as one, from its
        # first to its last owner.
        self._of_partition: dict[TopicPartition, tuple[str, str]] = {}
        self._by_topic: dict[str, dict[tuple[str, str], JavaTable[TopicPartition]]] = {}

    def move(self, partition: TopicPartition, source: str, target: str) -> None:
        """Record a movement."""
        before = self._of_partition.pop(partition, None)
        if before is not None:
            assert before[1] == source, partition
            self._forget(partition, before)
            source = before[0]
            if source == target:
                # The partition is back at its first owner.
                return
        self._of_partition[partition] = source, target
        pairs = self._by_topic.setdefault(partition.topic, {})
        pairs.setdefault((source, target), JavaTable(topic_partition_hash)).add(partition)

    def partition_to_move(
        self, partition: TopicPartition, source: str, target: str
    ) -> TopicPartition:
        """Return the partition of the topic to move from `source` to `target` in its place."""
        if partition in self._of_partition:
            source = self._of_partition[partition][0]
        back = self._by_topic.get(partition.topic, {}).get((target, source))
        return partition if back is None else back.first()

    def _forget(self, partition: TopicPartition, pair: tuple[str, str]) -> None:
        pairs = self._by_topic[partition.topic]
        pairs[pair].remove(partition)
        if not pairs[pair]:
            del pairs[pair]


class BalancedAssignment:
    """The assignment of one group; call `run` once. `decided` contains the partitions by member."""

    def __init__(
        self,
        topics: Topics,
        members: Mapping[str, MemberSubscription],
        racks: RackMatch,
        claims: Claims,
    ) -> None:
        self._topics = topics
        self._racks = racks
        self._former = claims.former
        self._wanted = {
            name: {topic for topic in each.topics if topic in topics}
            for name, each in members.items()
        }
        self._readers: dict[str, list[str]] = {topic: [] for topic in topics}
        for name, wanted in self._wanted.items():
            for topic in wanted:
                self._readers[topic].append(name)
        # Topics with the fewest subscribers first, because they have the fewest possible owners.
        by_readers = sorted(topics, key=lambda topic: (len(self._readers[topic]), topic))
        self._every = [
            TopicPartition(topic, each.number) for topic in by_readers for each in topics[topic]
        ]
        self.decided: dict[str, dict[TopicPartition, None]] = {name: {} for name in members}
        self._owner: dict[TopicPartition, str] = {}
        # Members that take part in balancing: (number of partitions, member id), ascending.
        self._ranking: list[tuple[int, str]] = []
        self._movements = PartitionMovements()
        # Whether a member had to give up a partition that it owned.
        self._must_revoke = False
        self._keep(claims)

    def run(self) -> None:
        """Compute the assignment."""
        left = [tp for tp in self._every if tp not in self._owner]
        self._ranking = sorted((len(each), name) for name, each in self.decided.items())
        is_first_time = self._ranking[-1][0] == 0
        self._assign_left(left)
        self._balance(left, is_first_time=is_first_time)

    def _keep(self, claims: Claims) -> None:
        for name, owned in claims.owned.items():
            for tp in owned:
                if tp.topic not in self._wanted[name] or self._racks.is_apart(name, tp):
                    self._must_revoke = True
                else:
                    self.decided[name][tp] = None
                    self._owner[tp] = name

    def _assign_left(self, left: Sequence[TopicPartition]) -> None:
        """Assign each partition to the member with the fewest.

        Members in the rack of a replica go first, if racks matter.
        """
        if self._racks.of_member:
            left = [tp for tp in left if not self._assign_to_smallest(tp, near=True)]
        for tp in left:
            self._assign_to_smallest(tp, near=False)

    def _assign_to_smallest(self, partition: TopicPartition, *, near: bool) -> bool:
        for _, name in self._ranking:
            if partition.topic not in self._wanted[name]:
                continue
            if near and self._racks.is_apart(name, partition):
                continue
            self._remove_from_ranking(name)
            self.decided[name][partition] = None
            self._owner[partition] = name
            self._rank(name)
            return True
        return False

    def _balance(self, left: Sequence[TopicPartition], *, is_first_time: bool) -> None:
        movable = [tp for tp in self._every if len(self._readers[tp.topic]) > 1]
        fixed = [name for name in self.decided if not self._takes_part(name)]
        for name in fixed:
            self._remove_from_ranking(name)
        if not self._ranking:
            return
        before = {name: dict(self.decided[name]) for _, name in self._ranking}
        if not self._must_revoke:
            self._move_to_balance([tp for tp in left if len(self._readers[tp.topic]) > 1])
        if (
            self._move_to_balance(movable)
            and not is_first_time
            and self._imbalance(self.decided) >= self._imbalance(before)
        ):
            self.decided |= before

    def _takes_part(self, name: str) -> bool:
        """Return whether a member could receive or give away a partition."""
        has = self.decided[name]
        most = sum(len(self._topics[topic]) for topic in self._wanted[name])
        return len(has) < most or any(len(self._readers[tp.topic]) > 1 for tp in has)

    def _move_to_balance(self, movable: Sequence[TopicPartition]) -> bool:
        """Move partitions while a move improves the balance; return whether any was moved."""
        has_moved = False
        while True:
            again = False
            for tp in movable:
                if self._is_balanced():
                    break
                target = self._better_owner(tp)
                if target is not None:
                    again = has_moved = True
                    source = self._owner[tp]
                    self._move(self._movements.partition_to_move(tp, source, target), target)
            if not again:
                return has_moved

    def _better_owner(self, partition: TopicPartition) -> str | None:
        """Return a better owner: the former owner, or the member with the fewest partitions."""
        most = len(self.decided[self._owner[partition]]) - 1
        former = self._former.get(partition)
        if former is not None and self._has_room(former[0], partition, most):
            return former[0]
        for count, name in self._ranking:
            if count >= most:
                return None
            if partition.topic in self._wanted[name]:
                return name
        return None

    def _has_room(self, name: str, partition: TopicPartition, most: int) -> bool:
        """Return whether a member subscribes to the partition's topic and has less than `most`."""
        return partition.topic in self._wanted[name] and len(self.decided[name]) < most

    def _is_balanced(self) -> bool:
        """Return whether no member could take a partition from a member with two more."""
        if self._ranking[0][0] >= self._ranking[-1][0] - 1:
            return True
        # For each topic: the greatest partition count of the members that own partitions of it.
        most = dict.fromkeys(self._topics, 0)
        for count, name in self._ranking:
            for topic in {tp.topic for tp in self.decided[name]}:
                most[topic] = count
        return not any(
            most[topic] > count + 1 for count, name in self._ranking for topic in self._wanted[name]
        )

    def _imbalance(self, decided: Mapping[str, Mapping[TopicPartition, None]]) -> int:
        """Return the sum of the differences between all pairs of members that take part."""
        counts = sorted(len(decided[name]) for _, name in self._ranking)
        return sum(count * (2 * index - len(counts) + 1) for index, count in enumerate(counts))

    def _move(self, partition: TopicPartition, target: str) -> None:
        source = self._owner[partition]
        self._remove_from_ranking(source)
        self._remove_from_ranking(target)
        self._movements.move(partition, source, target)
        del self.decided[source][partition]
        self.decided[target][partition] = None
        self._owner[partition] = target
        self._rank(source)
        self._rank(target)

    def _rank(self, name: str) -> None:
        bisect.insort(self._ranking, (len(self.decided[name]), name))

    def _remove_from_ranking(self, name: str) -> None:
        index = bisect.bisect_left(self._ranking, (len(self.decided[name]), name))
        assert self._ranking[index][1] == name
        del self._ranking[index]
