"""Configures a topology for the existing topics (Kafka: InternalTopicManager, RepartitionTopics).

It decides the partition counts of all internal topics, and says which of them must be created.

A repartition topic has as many partitions as the largest topic that the writing subtopology reads.
That may be a repartition topic as well. Kafka therefore passes over all subtopologies again and
again, until a pass decides nothing. A subtopology decides its topics in the first pass in which it
reads a topic with a known count; topics whose counts are still unknown then do not count. So the
order matters. Here the passes visit only the subtopologies that have something to decide, which
keeps the work linear.
"""

from __future__ import annotations

from enum import IntEnum
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NoReturn

import msgspec

from barnabas.coordinator.group.group_base import RefusalError
from barnabas.coordinator.group.streams.task_assignors import SubtopologyInput
from barnabas.coordinator.group.streams.topology import (
    check_copartition_indexes,
    inputs_of,
    topics_of,
    topology_size,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.java_collections import (
    JavaTable,
    member_order,
    string_hash,
    string_order,
)
from barnabas.waiting.steps import run_to_end

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
    from typing import TypeAlias

    from barnabas.protocol.messages.streams_groups import Topology
    from barnabas.protocol.records.streams_groups import (
        CopartitionGroup,
        StreamsGroupTopologyValue,
        Subtopology,
        TopicInfo,
    )

    Configuring: TypeAlias = "Generator[None, None, ConfiguredTopology]"
    _Subtopologies: TypeAlias = "Mapping[str, ConfiguredSubtopology]"


class StreamsStatus(IntEnum):
    """Why a member of a streams group has no tasks, or what it should do."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


class ConfiguredInternalTopic(msgspec.Struct, frozen=True):
    """A repartition or changelog topic, as it must be created."""

    name: str
    partitions: int
    # None for the default of the brokers.
    replication_factor: int | None
    configs: Mapping[str, str]


class ConfiguredSubtopology(msgspec.Struct, frozen=True):
    """A part of the topology whose tasks are assigned together."""

    # Number of tasks: the largest number of partitions of the topics that it reads.
    tasks: int
    source_topics: frozenset[str]
    repartition_source_topics: Mapping[str, ConfiguredInternalTopic]
    repartition_sink_topics: frozenset[str]
    changelog_topics: Mapping[str, ConfiguredInternalTopic]

    @property
    def is_stateful(self) -> bool:
        """Whether it has state stores with changelog topics."""
        return bool(self.changelog_topics)


class TopicProblem(msgspec.Struct, frozen=True):
    """Why no tasks can be assigned (Kafka: TopicConfigurationException)."""

    status: StreamsStatus
    detail: str


class ConfiguredTopology(msgspec.Struct, frozen=True):
    """The result of the configuration of a topology for the current topics."""

    epoch: int
    # Hash of the topics for which the topology was configured.
    metadata_hash: int
    # Subtopologies by id, in the order of their ids. None if the partitions cannot be decided.
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    # Internal topics that do not exist yet, by name.
    to_create: Mapping[str, ConfiguredInternalTopic]
    # None if tasks can be assigned. Invariant: not None if `subtopologies` is None.
    problem: TopicProblem | None

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be assigned."""
        return self.problem is None

    def subtopology_inputs(self) -> dict[str, SubtopologyInput]:
        """Return the subtopologies as a task assignor sees them."""
        return {
            subtopology_id: SubtopologyInput(each.tasks, each.is_stateful)
            for subtopology_id, each in (self.subtopologies or {}).items()
        }


class TopicProblemError(Exception):
    """The topics do not fit the topology."""

    def __init__(self, status: StreamsStatus, detail: str) -> None:
        super().__init__(detail)
        self.problem = TopicProblem(status, detail)


class PartitionCounts:
    """Partition counts by topic name."""

    __slots__ = ("_existing", "decided")

    def __init__(self, existing: Callable[[str], int]) -> None:
        # Returns the number of partitions of a topic, 0 if the topic does not exist.
        self._existing = existing
        # The counts of internal topics, which may exist or not.
        self.decided: dict[str, int] = {}

    def of(self, name: str) -> int:
        """Return the count of an existing topic, or else the decided one."""
        found = self._existing(name) or self.decided.get(name, 0)
        if found < 1:
            refuse_topology(f"The number of partitions of topic {name} is not known.")
        return found

    def existing(self, name: str) -> int:
        """Return the count of an existing topic; 0 if it does not exist."""
        return self._existing(name)


def refuse_topology(message: str) -> NoReturn:
    """Raise RefusalError for an invalid topology."""
    raise RefusalError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


# Subtopologies, and source topics of one subtopology, that are handled in one step.
ROUNDS_STEP = 16
TOPICS_STEP = 256


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
        if visited % ROUNDS_STEP == 0:
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
        if position % TOPICS_STEP == 0:
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


# A topology of this size takes about a millisecond.
_AT_ONCE_MAX = 300
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
            if position % TOPICS_STEP == TOPICS_STEP - 1:
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
        if position % TOPICS_STEP == TOPICS_STEP - 1:
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
        if position % TOPICS_STEP == TOPICS_STEP - 1:
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
        if position % TOPICS_STEP == TOPICS_STEP - 1:
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
                if position % TOPICS_STEP == TOPICS_STEP - 1:
                    yield
        yield
    return [name for name in table if name in missing]


def _summary(names: Collection[str]) -> str:
    """Return the first names, and the number of the others."""
    listed = ", ".join(list(names)[:_NAMED_MAX])
    others = len(names) - _NAMED_MAX
    return f"{listed} and {others} more" if others > 0 else listed
