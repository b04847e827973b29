"""Gives copartitioned topics equal partition counts (Kafka: CopartitionedTopicsEnforcer)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.streams.topology.partition_counts import TopicProblemError
from barnabas.coordinator.group.streams.topology.streams_status import StreamsStatus
from barnabas.coordinator.group.streams.topology.topology_check import check_copartition_indexes
from barnabas.protocol.java_collections import (
    JavaTable,
    string_hash,
    string_order,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from barnabas.coordinator.group.streams.topology.partition_counts import PartitionCounts
    from barnabas.protocol.records.streams_group_topology import CopartitionGroup, Subtopology


def enforce_copartitioning(
    subtopologies: Sequence[Subtopology], counts: PartitionCounts
) -> Generator[None, None, None]:
    """Change the decided counts of the repartition topics of all copartition groups. Yields.

    Raises:
        TopicProblemError: topics of a group have different counts that cannot be changed.
        RefusalError: a group has an index without a topic.
    """
    enforcer = _Enforcer(subtopologies, counts)
    for each in subtopologies:
        for group in each.copartition_groups:
            enforcer.enforce(_names(each, group))
        yield


def _names(subtopology: Subtopology, group: CopartitionGroup) -> list[str]:
    """Return the names of the topics of a group, each once."""
    sources, repartitions = subtopology.source_topics, subtopology.repartition_source_topics
    where = f"of subtopology {subtopology.subtopology_id}"
    check_copartition_indexes(sources, group.source_topics, where)
    check_copartition_indexes(repartitions, group.repartition_source_topics, where)
    names = [sources[index] for index in group.source_topics]
    names += [repartitions[index].name for index in group.repartition_source_topics]
    return list(dict.fromkeys(names))


class _Enforcer:
    """Handles one group after the other."""

    __slots__ = ("_counts", "_fixed", "_fixed_counts", "_flexible")

    def __init__(self, subtopologies: Sequence[Subtopology], counts: PartitionCounts) -> None:
        topics = [topic for each in subtopologies for topic in each.repartition_source_topics]
        self._counts = counts
        # Repartition topics with a count of the application, and without one.
        self._fixed = {topic.name for topic in topics if topic.partitions}
        self._flexible = {topic.name for topic in topics if not topic.partitions}
        self._fixed_counts = {counts.of(name) for name in self._fixed}

    def enforce(self, names: Sequence[str]) -> None:
        """Give the repartition topics of a group the count of the group."""
        if not names:
            return
        repartitions: dict[str, int] = {}
        sources: dict[str, int] = {}
        for name in names:
            is_repartition = name in self._fixed or name in self._flexible
            (repartitions if is_repartition else sources)[name] = self._counts.of(name)
        count = self._count_of_group(repartitions, sources)
        differing = [
            name for name, own in repartitions.items() if name in self._fixed and own != count
        ]
        if differing:
            # Kafka reports the first one of its map.
            name = next(iter(JavaTable(string_hash, JavaTable(string_hash, differing))))
            detail = (
                f"Repartition topic {name} has {repartitions[name]} partitions, but the source "
                f"topics that it is copartitioned with have {count}."
            )
            raise TopicProblemError(StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS, detail)
        for name in repartitions:
            self._counts.decided[name] = count

    def _count_of_group(self, repartitions: Mapping[str, int], sources: Mapping[str, int]) -> int:
        """Return the number of partitions that all topics of a group should have.

        As in Kafka, a group without source topics follows the fixed topics of all groups.
        """
        if sources:
            if len(set(sources.values())) > 1:
                _report_different(sources)
            return next(iter(sources.values()))
        if len(self._fixed_counts) > 1:
            _report_different(repartitions)
        return max(self._fixed_counts or repartitions.values())


def _report_different(counts: Mapping[str, int]) -> None:
    listed = ", ".join(f"{name}={counts[name]}" for name in sorted(counts, key=string_order))
    detail = f"These topics must have the same number of partitions, but they have not: {listed}."
    raise TopicProblemError(StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS, detail)
