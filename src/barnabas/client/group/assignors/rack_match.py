"""Which members and which replicas share a rack (KIP-881)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from barnabas.client.group.assignors.assignor import Subscription, Topics

__all__ = ["RackMatch", "partition_racks", "racks_matter"]


def partition_racks(topics: Topics) -> dict[TopicPartition, frozenset[str]]:
    """Racks of each partition's replicas."""
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
    """Whether it makes a difference who gets what.

    It makes none when no member is in a rack with replicas, or when every partition has a replica
    in every rack.
    """
    every = frozenset().union(*of_partitions.values()) if of_partitions else frozenset()
    if every.isdisjoint(member_racks):
        return False
    return any(racks != every for racks in of_partitions.values())


class RackMatch:
    """Racks of a whole group, for the sticky assignors; empty where they do not matter."""

    __slots__ = ("_members_near", "of_member", "of_partition")

    def __init__(self, topics: Topics, members: Mapping[str, Subscription]) -> None:
        by_name = {name: each.rack_id for name, each in members.items() if each.rack_id}
        of_partition = partition_racks(topics) if by_name else {}
        matter = racks_matter(set(by_name.values()), of_partition)
        self.of_member: dict[str, str] = by_name if matter else {}
        self.of_partition = of_partition if matter else {}
        counts: dict[str, int] = {}
        for rack in self.of_member.values():
            counts[rack] = counts.get(rack, 0) + 1
        # How many members are in racks of each partition's replicas.
        self._members_near = {
            tp: sum(counts.get(rack, 0) for rack in racks)
            for tp, racks in self.of_partition.items()
        }

    def is_apart(self, member: str, partition: TopicPartition) -> bool:
        """Whether the member is in a rack, and in none of the partition's."""
        rack = self.of_member.get(member)
        return rack is not None and rack not in self.of_partition.get(partition, frozenset())

    def rarest_first(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Those first that the fewest members are near to; otherwise in the order given."""
        return sorted(partitions, key=lambda tp: self._members_near.get(tp, 0))

    def next_near(self, partition: TopicPartition, members: Sequence[str], start: int) -> int:
        """Place of the first member near to the partition, round from `start`; -1 for none."""
        racks = self.of_partition.get(partition)
        if racks:
            for step in range(len(members)):
                index = (start + step) % len(members)
                if self.of_member.get(members[index]) in racks:
                    return index
        return -1
