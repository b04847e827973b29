"""The range assignor, which is Kafka's default, and the round robin assignor.

Range: for each topic, consecutive partitions go to consecutive members. Topics with the same
members and the same number of partitions get the same assignment, so that one member gets all
partitions with the same number. With racks (KIP-881), members first get partitions that have a
replica in their rack, as long as shares stay equally even.

Round robin: all partitions go in turn to all members that subscribe to them.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from barnabas.client.group.assignors.assignor import (
    Assignment,
    Assignor,
    in_member_order,
    partition_racks,
    racks_matter,
)
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barnabas.client.group.assignors.assignor import (
        AssignablePartition,
        MemberSubscription,
        Topics,
    )

__all__ = []


class RangeAssignor(Assignor):
    """Shares of a topic differ by at most one; the first members get the greater shares."""

    name = "range"

    def assign(
        self, topics: Topics, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Assignment]:
        """Assign partitions for the whole group."""
        decided: dict[str, list[TopicPartition]] = {name: [] for name in members}
        wanted = {name: frozenset(each.topics) for name, each in members.items()}
        shares = [
            _TopicShares(topic, partitions, readers, members)
            for topic, partitions in topics.items()
            if (readers := [name for name, each in wanted.items() if topic in each])
        ]
        if any(each.racks_matter for each in shares):
            for copartitioned in _copartitioned(shares):
                if len(copartitioned) > 1:
                    _assign_copartitioned(copartitioned, decided)
                elif copartitioned[0].racks_matter:
                    copartitioned[0].assign_ranges(decided, copartitioned[0].is_near)
        for each in shares:
            each.assign_ranges(decided, lambda _name, _number: True)
        return {name: Assignment(sorted(partitions)) for name, partitions in decided.items()}


class _TopicShares:
    """The unassigned partitions of one topic, and how many more each subscriber may get."""

    def __init__(
        self,
        topic: str,
        partitions: Sequence[AssignablePartition],
        readers: list[str],
        members: Mapping[str, MemberSubscription],
    ) -> None:
        self.topic = topic
        self.readers = in_member_order(readers, members)
        self.count = len(partitions)
        self.member_racks = {name: members[name].rack_id or None for name in self.readers}
        racks = partition_racks({topic: partitions})
        self._racks = {tp.partition: found for tp, found in racks.items()}
        known = {rack for rack in self.member_racks.values() if rack is not None}
        self.racks_matter = racks_matter(known, racks)
        self._left = [each.number for each in partitions]
        self._share, self._greater_shares = divmod(self.count, len(self.readers))
        self._assigned = dict.fromkeys(self.readers, 0)

    def is_near(self, name: str, number: int) -> bool:
        """Return whether a member has no rack, or shares its rack with a replica."""
        rack = self.member_racks[name]
        return rack is None or rack in self._racks.get(number, ())

    def room(self, name: str) -> int:
        """Return how many more partitions a member may get."""
        return max(0, self._share + (self._greater_shares > 0) - self._assigned[name])

    def assign_ranges(
        self, decided: dict[str, list[TopicPartition]], may: Callable[[str, int], bool]
    ) -> None:
        """Give each member in turn the first partitions that `may` allows, up to its share."""
        for name in self.readers:
            if not self._left:
                return
            numbers = [number for number in self._left if may(name, number)][: self.room(name)]
            if numbers:
                self.assign(name, numbers, decided)

    def assign(
        self, name: str, numbers: Sequence[int], decided: dict[str, list[TopicPartition]]
    ) -> None:
        """Give these partitions to a member."""
        decided[name] += [TopicPartition(self.topic, number) for number in numbers]
        self._assigned[name] += len(numbers)
        if self._assigned[name] > self._share:
            self._greater_shares -= 1
        given = set(numbers)
        self._left = [number for number in self._left if number not in given]


def _copartitioned(shares: Sequence[_TopicShares]) -> list[list[_TopicShares]]:
    """Group the topics that get the same assignment."""
    found: dict[object, list[_TopicShares]] = {}
    for each in shares:
        key = (each.count, tuple(each.member_racks.items()))
        found.setdefault(key, []).append(each)
    return list(found.values())


def _assign_copartitioned(
    shares: Sequence[_TopicShares], decided: dict[str, list[TopicPartition]]
) -> None:
    """Give all partitions with the same number to one member that is near to all of them."""
    readers = list(shares[0].readers)
    for number in range(shares[0].count):
        for name in readers:
            if all(each.is_near(name, number) and each.room(name) for each in shares):
                for each in shares:
                    each.assign(name, [number], decided)
                if not any(each.room(name) for each in shares):
                    readers.remove(name)
                break


class RoundRobinAssignor(Assignor):
    """Shares are even if all members have the same subscription."""

    name = "roundrobin"

    def assign(
        self, topics: Topics, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Assignment]:
        """Assign partitions for the whole group."""
        decided: dict[str, list[TopicPartition]] = {name: [] for name in members}
        wanted = {name: frozenset(each.topics) for name, each in members.items()}
        circle = itertools.cycle(in_member_order(members, members))
        for topic in sorted(topics):
            if any(topic in each for each in wanted.values()):
                for partition in topics[topic]:
                    name = next(name for name in circle if topic in wanted[name])
                    decided[name].append(TopicPartition(topic, partition.number))
        return {name: Assignment(partitions) for name, partitions in decided.items()}
