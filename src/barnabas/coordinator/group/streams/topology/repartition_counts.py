"""Decides the partition counts of repartition topics (Kafka: RepartitionTopics).

A repartition topic has as many partitions as the largest topic that the writing subtopology reads.
That may be a repartition topic as well. Kafka therefore passes over all subtopologies again and
again, until a pass decides nothing. A subtopology decides its topics in the first pass in which it
reads a topic with a known count; topics whose counts are still unknown then do not count. So the
order matters. Here the passes visit only the subtopologies that have something to decide, which
keeps the work linear.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from barnabas.coordinator.group.streams.topology.partition_counts import refuse_topology

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from barnabas.protocol.records.streams_group_topology import Subtopology

# Subtopologies, and source topics of one subtopology, that are handled in one step.
STEP = 16
_TOPICS_STEP = 256


def repartition_counts(
    subtopologies: Sequence[Subtopology], existing: Callable[[str], int]
) -> Generator[None, None, dict[str, int]]:
    """Return the counts of all repartition topics. Yields.

    Args:
        subtopologies: all subtopologies, in Kafka's order. Their source topics exist.
        existing: returns the number of partitions of an existing topic.

    Raises:
        RefusalError: a count depends on itself, or a repartition topic is read and never written.
    """
    counts = {
        topic.name: topic.partitions
        for each in subtopologies
        for topic in each.repartition_source_topics
        if topic.partitions
    }
    yield
    # Places of the subtopologies that read a topic.
    readers: dict[str, list[int]] = {}
    for index, each in enumerate(subtopologies):
        for topic in each.repartition_source_topics:
            readers.setdefault(topic.name, []).append(index)
    yield
    # Passes and indexes of the pending visits.
    visits = [(0, index) for index in range(len(subtopologies))]
    done: set[int] = set()
    visited = 0
    while visits:
        turn, index = heappop(visits)
        visited += 1
        if visited % STEP == 0:
            yield
        if index in done:
            continue
        count = yield from _count_of_inputs(subtopologies[index], counts, existing)
        if count == 0:
            continue
        done.add(index)
        for name in subtopologies[index].repartition_sink_topics:
            if name not in counts:
                counts[name] = count
                for reader in readers.get(name, ()):
                    if reader not in done:
                        heappush(visits, (turn if reader > index else turn + 1, reader))
    _check_complete(subtopologies, counts)
    return counts


def _count_of_inputs(
    subtopology: Subtopology, counts: dict[str, int], existing: Callable[[str], int]
) -> Generator[None, None, int]:
    """Return the largest known count of the topics that it reads; 0 if none is known. Yields."""
    count = 0
    for topic in subtopology.repartition_source_topics:
        count = max(count, counts.get(topic.name, 0))
    for position, name in enumerate(subtopology.source_topics, 1):
        count = max(count, existing(name))
        if position % _TOPICS_STEP == 0:
            yield
    return count


def _check_complete(subtopologies: Sequence[Subtopology], counts: dict[str, int]) -> None:
    for each in subtopologies:
        for name in each.repartition_sink_topics:
            if name not in counts:
                refuse_topology(
                    f"The number of partitions of repartition topic {name} depends on itself, or "
                    f"subtopology {each.subtopology_id}, which writes it, reads no topics."
                )
    for each in subtopologies:
        for topic in each.repartition_source_topics:
            if topic.name not in counts:
                refuse_topology(
                    f"No subtopology writes repartition topic {topic.name}, which subtopology "
                    f"{each.subtopology_id} reads."
                )
