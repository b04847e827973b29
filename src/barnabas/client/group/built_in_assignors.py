"""The assignors with names in `partition.assignment.strategy`.

Range, which is Kafka's default: for each topic, consecutive partitions go to consecutive members.
Topics with the same members and the same number of partitions get the same assignment, so that one
member gets all partitions with the same number. With racks (KIP-881), members first get partitions
that have a replica in their rack, as long as shares stay equally even.

Round robin: all partitions go in turn to all members that subscribe to them.

Sticky (KIP-54, KIP-341): even shares, and members keep their partitions. It uses the eager
protocol, under which members own nothing during a rebalance. So members send their previous
partitions, and the generation, in the user data of the subscription (versions 0 and 1).

Cooperative sticky (KIP-429): members keep their partitions during a rebalance. A partition that
moves is first assigned to no member. After its owner has given it up, the group rebalances again.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING

from barnabas.client.group.assignor import (
    Assignment,
    Assignor,
    RackMatch,
    RebalanceProtocol,
    in_member_order,
    partition_racks,
    racks_matter,
)
from barnabas.client.group.sticky_assignment import (
    BalancedAssignment,
    Claim,
    EvenAssignment,
    settle_claims,
)
from barnabas.client.topic_partition import TopicPartition, numbers_by_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from barnabas.client.group.assignor import AssignablePartition, MemberSubscription, Topics
    from barnabas.client.group.membership import GroupGeneration


__all__ = ["StickyAssignor", "read_sticky_user_data", "sticky_user_data"]


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


_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")
_GENERATION = struct.Struct(">i")


def sticky_user_data(claim: Claim) -> bytes:
    """Serialize topics with their partitions, followed by the generation."""
    topics = numbers_by_topic(claim.partitions)
    chunks = [_INT32.pack(len(topics))]
    for topic, numbers in topics.items():
        name = topic.encode()
        chunks += [_INT16.pack(len(name)), name, _INT32.pack(len(numbers))]
        chunks += [_INT32.pack(number) for number in numbers]
    return b"".join([*chunks, _INT32.pack(claim.generation_id)])


def read_sticky_user_data(data: bytes | None) -> Claim:
    """Parse a member's user data; like Kafka, treat malformed bytes as an empty claim."""
    if not data:
        return Claim(())
    try:
        fields = _Fields(data)
        partitions = list(fields.partitions())
        return Claim(partitions, fields.generation_id())
    except (struct.error, UnicodeDecodeError):
        return Claim(())


class _Fields:
    """Reads the fields one after another."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def partitions(self) -> Iterator[TopicPartition]:
        for _ in range(self._next(_INT32)):
            size = self._next(_INT16)
            topic = self._data[self._position : self._position + size].decode()
            self._position += size
            for _ in range(self._next(_INT32)):
                yield TopicPartition(topic, self._next(_INT32))

    def generation_id(self) -> int:
        """Return the generation; -1 in version 0, which does not contain it."""
        rest = len(self._data) - self._position
        return self._next(_INT32) if rest >= _INT32.size else -1

    def _next(self, kind: struct.Struct) -> int:
        value: int = kind.unpack_from(self._data, self._position)[0]
        self._position += kind.size
        return value


class StickyAssignor(Assignor):
    """The sticky assignor; stores the last assignment of its member."""

    name = "sticky"

    def __init__(self) -> None:
        # The last assignment of this member; None before the first.
        self._assigned: Claim | None = None

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """Return the last assignment and its generation, serialized."""
        del topics
        return None if self._assigned is None else sticky_user_data(self._assigned)

    def on_assignment(self, assignment: Assignment, generation: GroupGeneration) -> None:
        """Store the assignment."""
        self._assigned = Claim(tuple(assignment.partitions), generation.generation_id)

    def claim_of(self, subscription: MemberSubscription) -> Claim:
        """Return the partitions that a member claims to have had."""
        return read_sticky_user_data(subscription.user_data)

    def assign(
        self, topics: Topics, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Assignment]:
        """Assign partitions for the whole group."""
        decided, _ = self.decide(topics, members)
        return {name: Assignment(partitions) for name, partitions in decided.items()}

    def decide(
        self, topics: Topics, members: Mapping[str, MemberSubscription]
    ) -> tuple[dict[str, list[TopicPartition]], dict[TopicPartition, str] | None]:
        """Return the partitions by member, and the new owners of moving partitions if known."""
        wanted = {topic for each in members.values() for topic in each.topics}
        there = {topic: topics[topic] for topic in topics if topic in wanted and topics[topic]}
        claims = {name: self.claim_of(each) for name, each in members.items()}
        settled = settle_claims(there, members, claims)
        racks = RackMatch(there, members)
        if len({frozenset(each.topics) for each in members.values()}) == 1:
            even = EvenAssignment(there, racks, settled)
            even.run()
            return even.decided, even.moving
        balanced = BalancedAssignment(there, members, racks, settled)
        balanced.run()
        return {name: list(each) for name, each in balanced.decided.items()}, None


class CooperativeStickyAssignor(StickyAssignor):
    """Like `StickyAssignor`, but members report owned partitions in the subscription."""

    name = "cooperative-sticky"
    protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self) -> None:
        super().__init__()
        self._generation_id = -1

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """Return the generation, for leaders that do not read it from the subscription."""
        del topics
        return _GENERATION.pack(self._generation_id)

    def on_assignment(self, assignment: Assignment, generation: GroupGeneration) -> None:
        """Store the generation."""
        del assignment
        self._generation_id = generation.generation_id

    def claim_of(self, subscription: MemberSubscription) -> Claim:
        """Return the partitions that a member claims to own."""
        generation_id = subscription.generation_id
        data = subscription.user_data
        if generation_id < 0 and data is not None and len(data) >= _GENERATION.size:
            generation_id = _GENERATION.unpack_from(data)[0]
        return Claim(subscription.owned_partitions, generation_id)

    def assign(
        self, topics: Topics, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Assignment]:
        """Assign for the whole group; omit partitions that their owners must give up first."""
        decided, moving = self.decide(topics, members)
        if moving is None:
            moving = _moving_partitions(members, decided)
        return {
            name: Assignment([tp for tp in partitions if moving.get(tp) != name])
            for name, partitions in decided.items()
        }


def _moving_partitions(
    members: Mapping[str, MemberSubscription], decided: Mapping[str, list[TopicPartition]]
) -> dict[TopicPartition, str]:
    """Return the partitions that move from one member to another, with their new owners."""
    given_up = {
        tp
        for name, member in members.items()
        for tp in set(member.owned_partitions).difference(decided[name])
    }
    return {
        tp: name
        for name, partitions in decided.items()
        for tp in set(partitions).difference(members[name].owned_partitions)
        if tp in given_up
    }
