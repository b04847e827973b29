"""The round robin assignor: all partitions in turn to all members that subscribe to them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from barnabas.client.group.assignors.assignor import Assignment, Assignor
from barnabas.client.group.assignors.member_order import in_member_order
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.client.group.assignors.assignor import MemberSubscription, Topics

__all__ = ["RoundRobinAssignor"]


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
