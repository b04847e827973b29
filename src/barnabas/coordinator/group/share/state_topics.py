"""The topics of a share group by the state of their share partitions at the share coordinators.

Kafka: ShareGroup.ShareGroupStatePartitionMetadataInfo. A partition is assigned to members after its
state is initialized.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec


class StateTopic(msgspec.Struct, frozen=True):
    """Partitions of one topic."""

    name: str
    partitions: frozenset[int]
    # Time (wall clock in ms) at which their record was replayed.
    timestamp: int


# Partitions by topic id.
StateTopicsById = Mapping[bytes, StateTopic]

_NO_TOPICS: StateTopicsById = MappingProxyType({})


class StateTopics(msgspec.Struct, frozen=True):
    """The topics of a group whose partitions have state, or whose state is created or deleted."""

    # Topics whose initialization was requested.
    initializing: StateTopicsById = _NO_TOPICS
    # Topics whose partitions may be assigned.
    initialized: StateTopicsById = _NO_TOPICS
    # Ids of topics whose state is being deleted.
    deleting: frozenset[bytes] = frozenset()

    def topic_ids(self) -> set[bytes]:
        """Return the ids of all topics that are initialized or initializing."""
        return self.initializing.keys() | self.initialized.keys()

    def without(self, topic_ids: frozenset[bytes]) -> StateTopics:
        """Return the topics without `topic_ids`, which no longer exist."""
        return StateTopics(
            _without(self.initializing, topic_ids),
            _without(self.initialized, topic_ids),
            self.deleting - topic_ids,
        )


NO_STATE_TOPICS = StateTopics()


def merge(first: StateTopicsById, second: StateTopicsById) -> dict[bytes, StateTopic]:
    """Return the topics of both with all of their partitions. Name and time are the second's."""
    merged = dict(first)
    for topic_id, topic in second.items():
        known = first.get(topic_id)
        partitions = topic.partitions if known is None else topic.partitions | known.partitions
        merged[topic_id] = StateTopic(topic.name, partitions, topic.timestamp)
    return merged


def subtract(
    topics: StateTopicsById, partitions: Mapping[bytes, frozenset[int]]
) -> dict[bytes, StateTopic]:
    """Return the topics without some partitions. Topics without partitions are left out."""
    found: dict[bytes, StateTopic] = {}
    for topic_id, topic in topics.items():
        if topic_id not in partitions:
            found[topic_id] = topic
            continue
        kept = topic.partitions - partitions[topic_id]
        if kept:
            found[topic_id] = StateTopic(topic.name, kept, topic.timestamp)
    return found


def _without(topics: StateTopicsById, topic_ids: frozenset[bytes]) -> StateTopicsById:
    return {each: topic for each, topic in topics.items() if each not in topic_ids}
