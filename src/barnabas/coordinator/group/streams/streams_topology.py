"""The topology of a streams group, with facts from its record (Kafka: StreamsTopology)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.streams.topology.topology_record import required_topics
from barnabas.protocol.record_frame import encode_coordinator_value

if TYPE_CHECKING:
    from barnabas.protocol.records.streams_group_topology import (
        StreamsGroupTopologyValue,
        Subtopology,
    )

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


def _by_id(value: StreamsGroupTopologyValue) -> dict[str, Subtopology]:
    return {each.subtopology_id: each for each in value.subtopologies}
