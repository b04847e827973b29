"""The topology of a streams group: its checks and its record.

Kafka answers some mistakes of a topology with an unknown server error, since its code fails on
them. Here they are all invalid topologies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.group_base import NAMES_LENGTH_MAX, RefusalError
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.record_frame import encode_coordinator_value
from barnabas.protocol.records.streams_groups import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
    TopicInfo,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from barnabas.protocol.messages import streams_groups


def topology_value(topology: streams_groups.Topology) -> StreamsGroupTopologyValue:
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


def topology_size(topology: StreamsGroupTopologyValue | streams_groups.Topology) -> int:
    """Return the number of subtopologies, topics, configs and members of copartition groups."""
    size = len(topology.subtopologies)
    for each in topology.subtopologies:
        size += len(each.source_topics) + len(each.repartition_sink_topics)
        for topic in (*each.repartition_source_topics, *each.state_changelog_topics):
            size += 1 + len(topic.topic_configs)
        for group in each.copartition_groups:
            size += 1 + len(group.source_topics) + len(group.repartition_source_topics)
    return size


def _topics(topics: list[streams_groups.TopicInfo]) -> list[TopicInfo]:
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


# Limit on the subtopologies, topics, configs and members of copartition groups of a topology. It
# bounds the work for a topology. The largest known applications have a few hundred.
TOPOLOGY_SIZE_MAX = 10_000


def check_topology(topology: streams_groups.Topology) -> None:
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


def _names(topology: streams_groups.Topology) -> Iterator[str]:
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


def _check_topics(subtopology: streams_groups.Subtopology) -> None:
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


def _check_topic(topic: streams_groups.TopicInfo) -> None:
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


# Estimated memory of a topic or a config of a topology, in bytes.
_ENTRY_BYTES = 200


class StreamsTopology:
    """One topology. It does not change."""

    __slots__ = ("_encoded", "byte_size", "epoch", "required_topics", "subtopology_of", "value")

    def __init__(self, value: StreamsGroupTopologyValue) -> None:
        self.value = value
        # The value as its record has it, once it has been compared.
        self._encoded: bytes | None = None
        self.epoch = value.epoch
        # Topics whose changes concern the group: sources, repartition sources and changelogs.
        self.required_topics = frozenset(required_topics(value))
        # Subtopology id by source topic or repartition source topic.
        self.subtopology_of: dict[str, str] = {}
        self.byte_size = 0
        for subtopology in value.subtopologies:
            internal = subtopology.repartition_source_topics
            for name in (*subtopology.source_topics, *(topic.name for topic in internal)):
                self.subtopology_of[name] = subtopology.subtopology_id
            entries = len(subtopology.source_topics) + len(subtopology.repartition_sink_topics)
            for topic in (*internal, *subtopology.state_changelog_topics):
                entries += 1 + len(topic.topic_configs)
            for group in subtopology.copartition_groups:
                entries += len(group.source_topics) + len(group.repartition_source_topics)
            self.byte_size += (1 + entries) * _ENTRY_BYTES

    def is_same(self, value: StreamsGroupTopologyValue) -> bool:
        """Whether the other topology has the same epoch and subtopologies."""
        if self.epoch != value.epoch:
            return False
        # Encoding takes less time than comparing all fields.
        if self._encoded is None:
            self._encoded = encode_coordinator_value(self.value, 0)
        is_equal = self._encoded == encode_coordinator_value(value, 0)
        return is_equal or _by_id(self.value) == _by_id(value)
