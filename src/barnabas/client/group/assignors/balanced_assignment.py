"""Sticky assignment for members with different subscriptions: even shares, few movements.

Members keep their partitions. Each other partition goes to the member with the fewest partitions.
Then partitions move from members with many to members with few, until no move improves the balance.
If the result is not more even than before, the moves are undone.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

from barnabas.client.group.assignors.partition_movements import PartitionMovements
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.group.assignors.assignor import MemberSubscription, Topics
    from barnabas.client.group.assignors.claims import Claims
    from barnabas.client.group.assignors.rack_match import RackMatch

__all__ = ["BalancedAssignment"]


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
