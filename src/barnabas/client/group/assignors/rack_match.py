"""Which members share a rack with a replica of which partition (KIP-881)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from barnabas.client.group.assignors.assignor import MemberSubscription, Topics

__all__ = ["RackMatch", "partition_racks", "racks_matter"]


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
