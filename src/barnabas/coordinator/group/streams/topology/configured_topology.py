"""A topology with the number of partitions of all its topics (Kafka: ConfiguredTopology)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.streams.assignors.task_input import SubtopologyInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.coordinator.group.streams.topology.streams_status import StreamsStatus


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
