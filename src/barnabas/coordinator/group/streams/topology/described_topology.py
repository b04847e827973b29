"""Topologies in StreamsGroupDescribe responses, in Kafka's order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.java_collections import (
    JavaTable,
    string_hash,
    string_order,
)
from barnabas.protocol.messages.streams_group_describe import (
    KeyValue,
    Subtopology,
    TopicInfo,
    Topology,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.coordinator.group.streams.topology.configured_topology import (
        ConfiguredInternalTopic,
        ConfiguredTopology,
    )
    from barnabas.protocol.records import streams_group_topology as records


def described(configured: ConfiguredTopology) -> Topology:
    """Return the description of a configured topology."""
    return Topology(
        epoch=configured.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=subtopology_id,
                source_topics=_sorted(each.source_topics),
                repartition_sink_topics=_sorted(each.repartition_sink_topics),
                state_changelog_topics=_internal(each.changelog_topics.values()),
                repartition_source_topics=_internal(each.repartition_source_topics.values()),
            )
            for subtopology_id, each in (configured.subtopologies or {}).items()
        ],
    )


def described_value(value: records.StreamsGroupTopologyValue) -> Topology:
    """Return the description of a topology that is not configured."""
    return Topology(
        epoch=value.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=_sorted(each.source_topics),
                repartition_sink_topics=_sorted(each.repartition_sink_topics),
                state_changelog_topics=_declared(each.state_changelog_topics),
                repartition_source_topics=_declared(each.repartition_source_topics),
            )
            for each in sorted(value.subtopologies, key=_id_order)
        ],
    )


def _id_order(subtopology: records.Subtopology) -> bytes:
    return string_order(subtopology.subtopology_id)


def _name_order(topic: TopicInfo) -> bytes:
    return string_order(topic.name)


def _sorted(names: Iterable[str]) -> list[str]:
    return sorted(names, key=string_order)


def _internal(topics: Iterable[ConfiguredInternalTopic]) -> list[TopicInfo]:
    found = [
        TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor or 0,
            topic_configs=[
                KeyValue(key=key, value=topic.configs[key])
                for key in JavaTable(string_hash, topic.configs)
            ],
        )
        for topic in topics
    ]
    return sorted(found, key=_name_order)


def _declared(topics: Iterable[records.TopicInfo]) -> list[TopicInfo]:
    found = [
        TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[
                KeyValue(key=config.key, value=config.value) for config in topic.topic_configs
            ],
        )
        for topic in topics
    ]
    return sorted(found, key=_name_order)
