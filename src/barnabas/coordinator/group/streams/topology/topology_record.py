"""The topology of a streams group as its record has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.records.streams_group_topology import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
    TopicInfo,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.protocol.messages import streams_group_heartbeat as heartbeat


def topology_value(topology: heartbeat.Topology) -> StreamsGroupTopologyValue:
    """Return the value of the record of a topology that a member has sent."""
    return StreamsGroupTopologyValue(
        epoch=topology.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=list(each.source_topics),
                source_topic_regex=list(each.source_topic_regex),
                state_changelog_topics=_topics(each.state_changelog_topics),
                repartition_sink_topics=list(each.repartition_sink_topics),
                repartition_source_topics=_topics(each.repartition_source_topics),
                copartition_groups=[
                    CopartitionGroup(
                        source_topics=list(group.source_topics),
                        source_topic_regex=list(group.source_topic_regex),
                        repartition_source_topics=list(group.repartition_source_topics),
                    )
                    for group in each.copartition_groups
                ],
            )
            for each in topology.subtopologies
        ],
    )


def is_same_topology(one: StreamsGroupTopologyValue, two: StreamsGroupTopologyValue) -> bool:
    """Whether two topologies are equal. The order of their subtopologies does not matter."""
    return one.epoch == two.epoch and _by_id(one) == _by_id(two)


def required_topics(value: StreamsGroupTopologyValue) -> list[str]:
    """Return the names of all topics that the topology reads or keeps its state in, each once."""
    return list(dict.fromkeys(_required(value)))


def _required(value: StreamsGroupTopologyValue) -> Iterator[str]:
    for each in value.subtopologies:
        yield from topics_of(each)


def topics_of(subtopology: Subtopology) -> Iterator[str]:
    """Yield the names of the topics that it reads or keeps its state in."""
    yield from inputs_of(subtopology)
    for topic in subtopology.state_changelog_topics:
        yield topic.name


def inputs_of(subtopology: Subtopology) -> Iterator[str]:
    """Yield the names of the topics that it reads."""
    yield from subtopology.source_topics
    for topic in subtopology.repartition_source_topics:
        yield topic.name


def topology_size(topology: StreamsGroupTopologyValue | heartbeat.Topology) -> int:
    """Return the number of subtopologies, topics, configs and members of copartition groups."""
    size = len(topology.subtopologies)
    for each in topology.subtopologies:
        size += len(each.source_topics) + len(each.repartition_sink_topics)
        for topic in (*each.repartition_source_topics, *each.state_changelog_topics):
            size += 1 + len(topic.topic_configs)
        for group in each.copartition_groups:
            size += 1 + len(group.source_topics) + len(group.repartition_source_topics)
    return size


def _topics(topics: list[heartbeat.TopicInfo]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[
                TopicConfig(key=config.key, value=config.value) for config in topic.topic_configs
            ],
        )
        for topic in topics
    ]


def _by_id(value: StreamsGroupTopologyValue) -> dict[str, Subtopology]:
    return {each.subtopology_id: each for each in value.subtopologies}
