"""Movements of partitions between members while an assignment is being balanced.

Suppose a partition moves from B to A after another partition of the topic moved from A to B. Then
the first partition stays, and the other one returns instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.java_collections import JavaTable, topic_partition_hash

if TYPE_CHECKING:
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["PartitionMovements"]


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
