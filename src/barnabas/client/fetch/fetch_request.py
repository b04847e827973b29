"""Build a Fetch request from the contents of a session request (KIP-227; topic ids: KIP-516)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.client.config import ClientConfig
    from barnabas.client.fetch.fetch_position import FetchPosition
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.protocol.fetch_session_handler import FetchSessionRequest

__all__ = ["FetchLimits", "build_fetch_request"]

# First version with fetch sessions.
_SESSIONS_FROM = 7
_RACK_FROM = 11


class FetchLimits(NamedTuple):
    """The fields that every fetch request of a client has."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    # 1 for read_committed, 0 for read_uncommitted.
    isolation_level: int
    # Rack of the client; brokers may then name a closer replica (KIP-392).
    rack: str

    @classmethod
    def of(cls, config: ClientConfig, rack: str = "") -> FetchLimits:
        """Return the limits that the configuration specifies."""
        isolation = 1 if config.isolation_level == "read_committed" else 0
        return cls(
            config.fetch_max_wait_ms,
            config.fetch_min_bytes,
            config.fetch_max_bytes,
            isolation,
            rack,
        )


def build_fetch_request(
    request: FetchSessionRequest[TopicPartition, FetchPosition], version: int, limits: FetchLimits
) -> FetchRequest:
    """Return the consumer's Fetch request for `request` at `version`."""
    topics: dict[tuple[str, bytes], FetchTopic] = {}
    for tp, position in request.to_send.items():
        topic = topics.get((tp.topic, position.topic_id))
        if topic is None:
            topic = FetchTopic(topic=tp.topic, topic_id=position.topic_id, partitions=[])
            topics[tp.topic, position.topic_id] = topic
        topic.partitions.append(
            FetchPartition(
                partition=tp.partition,
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.offset,
                partition_max_bytes=position.max_bytes,
            )
        )
    made = FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        isolation_level=limits.isolation_level,
        topics=list(topics.values()),
    )
    if version >= _SESSIONS_FROM:
        made.session_id = request.session_id
        made.session_epoch = request.session_epoch
        made.forgotten_topics_data = _forgotten(request.to_forget)
    if version >= _RACK_FROM:
        made.rack_id = limits.rack
    return made


def _forgotten(partitions: Mapping[TopicPartition, bytes]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, bytes], ForgottenTopic] = {}
    for tp, topic_id in partitions.items():
        topic = topics.get((tp.topic, topic_id))
        if topic is None:
            topic = ForgottenTopic(topic=tp.topic, topic_id=topic_id, partitions=[])
            topics[tp.topic, topic_id] = topic
        topic.partitions.append(tp.partition)
    return list(topics.values())
