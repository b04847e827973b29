"""What has moved from whom to whom while an assignment is being balanced.

A partition that would go from B to A, where another of the topic went from A to B before, need not
go: the other one goes back instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.group.assignors.java_order import JavaOrderedSet

if TYPE_CHECKING:
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["PartitionMovements"]


class PartitionMovements:
    """Movements of one assignment."""

    def __init__(self) -> None:
        # (from, to) by partition; one that went on from there has its first and its last member.
        self._of_partition: dict[TopicPartition, tuple[str, str]] = {}
        self._by_topic: dict[str, dict[tuple[str, str], JavaOrderedSet]] = {}

    def move(self, partition: TopicPartition, source: str, target: str) -> None:
        """Note a movement."""
        before = self._of_partition.pop(partition, None)
        if before is not None:
            assert before[1] == source, partition
            self._forget(partition, before)
            source = before[0]
            if source == target:
                # Back where it was.
                return
        self._of_partition[partition] = source, target
        pairs = self._by_topic.setdefault(partition.topic, {})
        pairs.setdefault((source, target), JavaOrderedSet()).add(partition)

    def instead_of(self, partition: TopicPartition, source: str, target: str) -> TopicPartition:
        """Which partition of the topic should go from `source` to `target` in place of this one."""
        if partition in self._of_partition:
            source = self._of_partition[partition][0]
        back = self._by_topic.get(partition.topic, {}).get((target, source))
        return partition if back is None else back.first()

    def _forget(self, partition: TopicPartition, pair: tuple[str, str]) -> None:
        pairs = self._by_topic[partition.topic]
        pairs[pair].remove(partition)
        if not pairs[pair]:
            del pairs[pair]
