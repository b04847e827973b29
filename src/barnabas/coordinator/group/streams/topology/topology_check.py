"""Checks of the topology that a member of a streams group has sent.

Kafka answers some of these mistakes with an unknown server error, since its code fails on them.
Here they are all invalid topologies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.refusal import RefusalError
from barnabas.coordinator.group.request_limits import NAMES_LENGTH_MAX
from barnabas.coordinator.group.streams.topology.topology_record import topology_size
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from barnabas.protocol.messages.streams_group_heartbeat import (
        Subtopology,
        TopicInfo,
        Topology,
    )

# Limit on the subtopologies, topics, configs and members of copartition groups of a topology. It
# bounds the work for a topology. The largest known applications have a few hundred.
TOPOLOGY_SIZE_MAX = 10_000


def check_topology(topology: Topology) -> None:
    """Check a topology.

    Raises:
        RefusalError: INVALID_REQUEST if the topology reads topics by regular expressions, which
            streams groups do not support; STREAMS_INVALID_TOPOLOGY if it is not valid.
    """
    for each in topology.subtopologies:
        if each.source_topic_regex:
            message = "Regular expressions for source topics are not supported; name the topics."
            raise RefusalError(ErrorCode.INVALID_REQUEST, message)
    for each in topology.subtopologies:
        for topic in each.state_changelog_topics:
            if topic.partitions != 0:
                _refuse(
                    f"Changelog topic {topic.name} has a partition count of {topic.partitions}; "
                    "it must be undefined (0)."
                )
    if topology.epoch < 0:
        _refuse(f"Topology epoch {topology.epoch} is negative.")
    size = topology_size(topology)
    if size > TOPOLOGY_SIZE_MAX:
        _refuse(
            f"The topology has {size} subtopologies, topics, configs and members of copartition "
            f"groups; at most {TOPOLOGY_SIZE_MAX} are allowed."
        )
    length = sum(map(len, _names(topology)))
    if length > NAMES_LENGTH_MAX:
        _refuse(
            f"The names in the topology have {length} characters; at most {NAMES_LENGTH_MAX} are "
            "allowed."
        )
    _check_unique("subtopology", [each.subtopology_id for each in topology.subtopologies])
    for each in topology.subtopologies:
        _check_topics(each)


def _names(topology: Topology) -> Iterator[str]:
    """Yield the names of subtopologies and topics, and the configs of topics."""
    for each in topology.subtopologies:
        yield each.subtopology_id
        yield from each.source_topics
        yield from each.repartition_sink_topics
        for topic in (*each.repartition_source_topics, *each.state_changelog_topics):
            yield topic.name
            for config in topic.topic_configs:
                yield config.key
                yield config.value


def _check_topics(subtopology: Subtopology) -> None:
    where = f"of subtopology {subtopology.subtopology_id}"
    for kind, topics in (
        ("repartition source topic", subtopology.repartition_source_topics),
        ("changelog topic", subtopology.state_changelog_topics),
    ):
        if topics:
            _check_unique(f"{kind} {where}", [topic.name for topic in topics])
        for topic in topics:
            _check_topic(topic)
    for group in subtopology.copartition_groups:
        check_copartition_indexes(subtopology.source_topics, group.source_topics, where)
        check_copartition_indexes(
            subtopology.repartition_source_topics, group.repartition_source_topics, where
        )


def _check_topic(topic: TopicInfo) -> None:
    if topic.partitions < 0:
        _refuse(f"Topic {topic.name} has a negative partition count of {topic.partitions}.")
    _check_unique(f"config of topic {topic.name}", [each.key for each in topic.topic_configs])


def check_copartition_indexes(topics: Sequence[object], indexes: Iterable[int], where: str) -> None:
    """Check the indexes of topics in a copartition group. Raises RefusalError."""
    for index in indexes:
        if not 0 <= index < len(topics):
            _refuse(f"A copartition group {where} has index {index} of {len(topics)} topics.")


def _check_unique(what: str, names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        seen: set[str] = set()
        for name in names:
            if name in seen:
                _refuse(f"The {what} {name} occurs twice.")
            seen.add(name)


def _refuse(message: str) -> None:
    raise RefusalError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
