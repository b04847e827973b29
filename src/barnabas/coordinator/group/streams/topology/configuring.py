"""Configures a topology for the existing topics (Kafka: InternalTopicManager).

It decides the partition counts of all internal topics, and says which of them must be created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.streams.topology.configured_topology import (
    ConfiguredInternalTopic,
    ConfiguredSubtopology,
    ConfiguredTopology,
    TopicProblem,
)
from barnabas.coordinator.group.streams.topology.copartitioning import enforce_copartitioning
from barnabas.coordinator.group.streams.topology.partition_counts import (
    PartitionCounts,
    TopicProblemError,
    refuse_topology,
)
from barnabas.coordinator.group.streams.topology.repartition_counts import repartition_counts
from barnabas.coordinator.group.streams.topology.streams_status import StreamsStatus
from barnabas.coordinator.group.streams.topology.topology_record import (
    inputs_of,
    topics_of,
    topology_size,
)
from barnabas.protocol.java_collections import (
    JavaTable,
    member_order,
    string_hash,
    string_order,
)
from barnabas.waiting.steps import run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Mapping
    from typing import TypeAlias

    from barnabas.protocol.messages.streams_group_heartbeat import Topology
    from barnabas.protocol.records.streams_group_topology import (
        StreamsGroupTopologyValue,
        Subtopology,
        TopicInfo,
    )

    Configuring: TypeAlias = "Generator[None, None, ConfiguredTopology]"
    _Subtopologies: TypeAlias = "Mapping[str, ConfiguredSubtopology]"

# A topology of this size takes about a millisecond.
_AT_ONCE_MAX = 300
# Topics of one step.
STEP = 256
# Topics that a message names.
_NAMED_MAX = 3


def is_large(topology: StreamsGroupTopologyValue | Topology) -> bool:
    """Whether the topology should be configured in slices."""
    return topology_size(topology) > _AT_ONCE_MAX


def configure_topology(
    value: StreamsGroupTopologyValue, partition_count: Callable[[str], int], metadata_hash: int
) -> ConfiguredTopology:
    """Configure a topology.

    Args:
        value: the topology. `check_topology` has accepted it.
        partition_count: returns the number of partitions of a topic, 0 if it does not exist.
        metadata_hash: the hash of the topics, for the result.

    Returns:
        The configured topology. Its `problem` says which topics are missing or do not fit.

    Raises:
        RefusalError: STREAMS_INVALID_TOPOLOGY if the counts cannot be decided for any topics.
    """
    return run_to_end(configuring_topology(value, partition_count, metadata_hash))


def configuring_topology(
    value: StreamsGroupTopologyValue, partition_count: Callable[[str], int], metadata_hash: int
) -> Configuring:
    """Do the same as `configure_topology` in steps. Yields after each step."""
    try:
        return (yield from _configure(value, partition_count, metadata_hash))
    except TopicProblemError as error:
        return ConfiguredTopology(value.epoch, metadata_hash, None, {}, error.problem)


def _configure(
    value: StreamsGroupTopologyValue, partition_count: Callable[[str], int], metadata_hash: int
) -> Configuring:
    yield from _check_sources(value, partition_count)
    by_id = {each.subtopology_id: each for each in value.subtopologies}
    # The order of Kafka's map.
    ordered = [by_id[each] for each in JavaTable(string_hash, by_id)]
    counts = PartitionCounts(partition_count)
    counts.decided.update((yield from repartition_counts(ordered, partition_count)))
    yield from enforce_copartitioning(ordered, counts)
    changelogs: dict[str, int] = {}
    for each in ordered:
        count = yield from _input_count(each, counts)
        if count == 0:
            refuse_topology(f"Subtopology {each.subtopology_id} reads no topics.")
        changelogs.update((topic.name, count) for topic in each.state_changelog_topics)
        yield
    counts.decided.update(changelogs)
    subtopologies: dict[str, ConfiguredSubtopology] = {}
    for subtopology_id in sorted(by_id, key=string_order):
        subtopologies[subtopology_id] = yield from _configured(by_id[subtopology_id], counts)
        yield
    internal: dict[str, ConfiguredInternalTopic] = {}
    for configured in subtopologies.values():
        for topics in (configured.repartition_source_topics, configured.changelog_topics):
            internal.update(topics)
        yield
    to_create = yield from _missing(ordered, internal, partition_count)
    problem = None
    if to_create:
        names = yield from _missing_in_order(subtopologies, to_create)
        detail = f"These internal topics are missing: {_summary(names)}."
        problem = TopicProblem(StreamsStatus.MISSING_INTERNAL_TOPICS, detail)
    return ConfiguredTopology(value.epoch, metadata_hash, subtopologies, to_create, problem)


def _check_sources(
    value: StreamsGroupTopologyValue, partition_count: Callable[[str], int]
) -> Generator[None, None, None]:
    """Check that the source topics exist. Yields. Raises TopicProblemError."""
    missing: set[str] = set()
    for each in value.subtopologies:
        for position, name in enumerate(each.source_topics):
            if not partition_count(name):
                missing.add(name)
            if position % STEP == STEP - 1:
                yield
        yield
    if missing:
        detail = f"These source topics are missing: {_summary(sorted(missing, key=string_order))}."
        raise TopicProblemError(StreamsStatus.MISSING_SOURCE_TOPICS, detail)


def _input_count(subtopology: Subtopology, counts: PartitionCounts) -> Generator[None, None, int]:
    """Return the largest number of partitions of a topic that the subtopology reads. Yields."""
    largest = 0
    for position, name in enumerate(inputs_of(subtopology)):
        largest = max(largest, counts.of(name))
        if position % STEP == STEP - 1:
            yield
    return largest


def _configured(
    subtopology: Subtopology, counts: PartitionCounts
) -> Generator[None, None, ConfiguredSubtopology]:
    return ConfiguredSubtopology(
        (yield from _input_count(subtopology, counts)),
        frozenset(subtopology.source_topics),
        (yield from _internal(subtopology.repartition_source_topics, counts)),
        frozenset(subtopology.repartition_sink_topics),
        (yield from _internal(subtopology.state_changelog_topics, counts)),
    )


def _internal(
    topics: Iterable[TopicInfo], counts: PartitionCounts
) -> Generator[None, None, dict[str, ConfiguredInternalTopic]]:
    found: dict[str, ConfiguredInternalTopic] = {}
    for position, topic in enumerate(topics):
        found[topic.name] = ConfiguredInternalTopic(
            topic.name,
            topic.partitions or counts.decided[topic.name],
            topic.replication_factor or None,
            {config.key: config.value for config in topic.topic_configs},
        )
        if position % STEP == STEP - 1:
            yield
    return found


def _missing(
    ordered: Iterable[Subtopology],
    internal: Mapping[str, ConfiguredInternalTopic],
    partition_count: Callable[[str], int],
) -> Generator[None, None, dict[str, ConfiguredInternalTopic]]:
    """Return the internal topics that do not exist. Yields.

    Raises:
        TopicProblemError: an internal topic exists with another number of partitions than the
            decided one.
    """
    missing: dict[str, ConfiguredInternalTopic] = {}
    differing: set[str] = set()
    for position, (name, topic) in enumerate(internal.items()):
        count = partition_count(name)
        if not count:
            missing[name] = topic
        elif count != topic.partitions:
            differing.add(name)
        if position % STEP == STEP - 1:
            yield
    if not differing:
        return missing
    # Kafka reports the first one of its set.
    required = JavaTable(string_hash, (name for each in ordered for name in topics_of(each)))
    name = next(each for each in required if each in differing)
    detail = (
        f"Internal topic {name} has {partition_count(name)} partitions, but the topology needs "
        f"{internal[name].partitions}."
    )
    raise TopicProblemError(StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS, detail)


def _missing_in_order(
    subtopologies: _Subtopologies, missing: Collection[str]
) -> Generator[None, None, list[str]]:
    """Return the names of missing topics in the order in which Kafka names them."""
    table: JavaTable[str] = JavaTable(string_hash)
    for each in subtopologies.values():
        for topics in (each.repartition_source_topics, each.changelog_topics):
            for position, name in enumerate((yield from member_order(topics))):
                table.add(name)
                if position % STEP == STEP - 1:
                    yield
        yield
    return [name for name in table if name in missing]


def _summary(names: Collection[str]) -> str:
    """Return the first names, and the number of the others."""
    listed = ", ".join(list(names)[:_NAMED_MAX])
    others = len(names) - _NAMED_MAX
    return f"{listed} and {others} more" if others > 0 else listed
