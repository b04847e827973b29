"""The range assignor: topic by topic, neighbouring partitions to neighbouring members.

Kafka's default, with rack awareness (KIP-881).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.group.assignors.assignor import Assignment, Assignor, Subscription, Topics
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["RangeAssignor"]


class RangeAssignor(Assignor):
    """Members of a topic in order of names; the first get one more if it does not go up."""

    name = "range"

    def assign(
        self, topics: Topics, members: Mapping[str, Subscription]
    ) -> Mapping[str, Assignment]:
        """Decide for the whole group."""
        decided: dict[str, list[TopicPartition]] = {name: [] for name in members}
        for topic, partitions in topics.items():
            named = {name: each for name, each in members.items() if topic in each.topics}
            readers = sorted(
                named,
                key=lambda name: (named[name].instance_id is None, named[name].instance_id or name),
            )
            if not readers:
                continue
            share, rest = divmod(len(partitions), len(readers))
            start = 0
            for index, name in enumerate(readers):
                end = start + share + (index < rest)
                decided[name] += [TopicPartition(topic, p.number) for p in partitions[start:end]]
                start = end
        return {name: Assignment(partitions) for name, partitions in decided.items()}
