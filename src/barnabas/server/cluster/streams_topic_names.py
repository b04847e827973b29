"""The names of the topics in a topology of a streams group (KIP-1071)."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from barnabas.controller.topic_names import INTERNAL_TOPICS, problem_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.protocol.messages.streams_groups import Topology


def topology_topics(topology: Topology) -> Generator[None, None, list[str]]:
    """Return the names of all topics, each once, in the order of the topology."""
    names: dict[str, None] = {}
    for subtopology in topology.subtopologies:
        made = chain(subtopology.repartition_source_topics, subtopology.state_changelog_topics)
        for name in chain(
            subtopology.source_topics,
            subtopology.repartition_sink_topics,
            (topic.name for topic in made),
        ):
            names[name] = None
            yield
    return list(names)


def topology_problem(topology: Topology) -> Generator[None, None, str | None]:
    """Return why a topology must not have its topics; None if it may."""
    names = yield from topology_topics(topology)
    internal: list[str] = []
    invalid: list[str] = []
    for name in names:
        if name in INTERNAL_TOPICS:
            internal.append(name)
        elif problem_of(name) is not None:
            invalid.append(name)
        yield
    if internal:
        return f"A topology must not use internal topics: {', '.join(internal)}"
    if invalid:
        return f"The topology has invalid topic names: {', '.join(invalid)}"
    return None
