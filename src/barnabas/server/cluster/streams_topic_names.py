"""The names of the topics in a topology of a streams group (KIP-1071)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.topic_names import INTERNAL_TOPICS, problem_of

if TYPE_CHECKING:
    from barnabas.protocol.messages.streams_group_heartbeat import Topology


def topology_topics(topology: Topology) -> list[str]:
    """Return the names of all topics, each once, in the order of the topology."""
    names: dict[str, None] = {}
    for subtopology in topology.subtopologies:
        for name in subtopology.source_topics:
            names[name] = None
        for name in subtopology.repartition_sink_topics:
            names[name] = None
        for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
            names[topic.name] = None
    return list(names)


def topology_problem(topology: Topology) -> str | None:
    """Return why a topology must not have its topics; None if it may."""
    names = topology_topics(topology)
    internal = [each for each in names if each in INTERNAL_TOPICS]
    if internal:
        named = ",".join(internal)
        return f"Use of Kafka internal topics {named} in a Kafka Streams topology is prohibited."
    invalid = [each for each in names if problem_of(each) is not None]
    if invalid:
        return f"Topic names {','.join(invalid)} are not valid topic names."
    return None
