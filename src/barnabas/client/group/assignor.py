"""The interface of assignors, their value types, and what they share: racks and the order of
members.

This is Kafka's ConsumerPartitionAssignor. A user's assignor extends `Assignor`. Only `name` and
`assign` have no defaults:

    class EverythingToOne(Assignor):
        name = "everything-to-one"

        def assign(self, topics, members):
            first = min(members)
            partitions = [TopicPartition(t, p.number) for t in topics for p in topics[t]]
            return {each: Assignment(partitions if each == first else ()) for each in members}

Every member of the group gets it as `partition_assignment_strategy=[EverythingToOne]`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from barnabas.client.group.membership import GroupGeneration


__all__ = [
    "AssignablePartition",
    "Assignment",
    "Assignor",
    "AssignorError",
    "MemberSubscription",
    "RackMatch",
    "RebalanceProtocol",
    "Topics",
    "in_member_order",
    "partition_racks",
    "racks_matter",
]


class AssignorError(Exception):
    """An assignor violated a rule of its rebalance protocol."""


class RebalanceProtocol(enum.IntEnum):
    """The handling of members' partitions during a rebalance (KIP-429)."""

    # Members give up all partitions before they join.
    EAGER = 0
    # Members keep their partitions and give up only those that move. A greater value means that
    # members keep more.
    COOPERATIVE = 1


class AssignablePartition(NamedTuple):
    """A partition that can be assigned."""

    number: int
    # Racks of the brokers that host the replicas, in replica order; None for a broker without a
    # rack.
    racks: tuple[str | None, ...] = ()


# All existing topics that a member subscribes to, with their partitions in ascending order.
Topics: TypeAlias = Mapping[str, Sequence[AssignablePartition]]


class MemberSubscription(NamedTuple):
    """The subscription of one member, from its JoinGroup."""

    topics: Sequence[str]
    owned_partitions: Sequence[TopicPartition] = ()
    user_data: bytes | None = None
    # The generation in which the member owned `owned_partitions`; -1 if unknown.
    generation_id: int = -1
    rack_id: str | None = None
    # Id of a static member (KIP-345).
    instance_id: str | None = None


class Assignment(NamedTuple):
    """The partitions of one member."""

    partitions: Sequence[TopicPartition]
    user_data: bytes | None = None


class Assignor(Protocol):
    """An assignment strategy. An object serves one consumer and may keep state."""

    # Name by which the members agree on the assignor; every member must support it.
    name: str
    # Supported protocols. A group uses the greatest one that all assignors of its members support.
    protocols: Sequence[RebalanceProtocol] = (RebalanceProtocol.EAGER,)

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """Return bytes for the leader, sent with a subscription to `topics`; None for none."""
        del topics
        return None

    def assign(
        self, topics: Topics, members: Mapping[str, MemberSubscription]
    ) -> Mapping[str, Assignment]:
        """Assign partitions for the whole group; runs on the member that leads it.

        Args:
            topics: The partitions that can be assigned, by topic.
            members: The subscriptions, by member id.

        Returns:
            An assignment for every member.
        """
        ...

    def on_assignment(self, assignment: Assignment, generation: GroupGeneration) -> None:
        """Handle the assignment that this member received."""
        del assignment, generation


def partition_racks(topics: Topics) -> dict[TopicPartition, frozenset[str]]:
    """Return the racks of each partition's replicas."""
    return {
        TopicPartition(topic, each.number): frozenset(
            rack for rack in each.racks if rack is not None
        )
        for topic, partitions in topics.items()
        for each in partitions
    }


def racks_matter(
    member_racks: Collection[str], of_partitions: Mapping[TopicPartition, frozenset[str]]
) -> bool:
    """Return whether racks can influence the assignment.

    They cannot if no member's rack has replicas, or if every partition has replicas in the same
    racks.
    """
    every = frozenset().union(*of_partitions.values()) if of_partitions else frozenset()
    if every.isdisjoint(member_racks):
        return False
    return any(racks != every for racks in of_partitions.values())


class RackMatch:
    """Racks of a whole group, for the sticky assignors; empty if racks do not matter."""

    __slots__ = ("_members_near", "of_member", "of_partition")

    def __init__(self, topics: Topics, members: Mapping[str, MemberSubscription]) -> None:
        by_name = {name: each.rack_id for name, each in members.items() if each.rack_id}
        of_partition = partition_racks(topics) if by_name else {}
        matter = racks_matter(set(by_name.values()), of_partition)
        self.of_member: dict[str, str] = by_name if matter else {}
        self.of_partition = of_partition if matter else {}
        counts: dict[str, int] = {}
        for rack in self.of_member.values():
            counts[rack] = counts.get(rack, 0) + 1
        # For each partition: the number of members in the racks of its replicas.
        self._members_near = {
            tp: sum(counts.get(rack, 0) for rack in racks)
            for tp, racks in self.of_partition.items()
        }

    def is_apart(self, member: str, partition: TopicPartition) -> bool:
        """Return whether the member has a rack that contains no replica of the partition."""
        rack = self.of_member.get(member)
        return rack is not None and rack not in self.of_partition.get(partition, frozenset())

    def rarest_first(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Sort partitions by the number of members in their racks; equal ones keep their order."""
        return sorted(partitions, key=lambda tp: self._members_near.get(tp, 0))

    def next_near(self, partition: TopicPartition, members: Sequence[str], start: int) -> int:
        """Return the index of the next member in a rack of the partition; -1 if there is none.

        The search begins at index `start` and wraps around.
        """
        racks = self.of_partition.get(partition)
        if racks:
            for step in range(len(members)):
                index = (start + step) % len(members)
                if self.of_member.get(members[index]) in racks:
                    return index
        return -1


def in_member_order(names: Iterable[str], members: Mapping[str, MemberSubscription]) -> list[str]:
    """Return the member ids in this order."""

    def place(name: str) -> tuple[bool, str]:
        instance_id = members[name].instance_id
        return instance_id is None, name if instance_id is None else instance_id

    return sorted(names, key=place)
