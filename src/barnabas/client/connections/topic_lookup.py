"""Looks up topics, with retries: by name, also topics that were created recently, or all topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.connections.metadata_cache import ZERO_ID
from barnabas.client.errors import (
    ClientError,
    UnknownPartitionError,
    UnknownTopicError,
    broker_error,
)
from barnabas.client.retries import RetryingCall
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.connections.metadata_cache import TopicInfo
    from barnabas.client.retries import OnDone

__all__ = ["Sought", "TopicLookup", "look_up_all_topics"]

# About 1.5 s with the default backoff; by then all brokers know a new topic.
_UNKNOWN_ATTEMPTS = 5


class Sought(NamedTuple):
    """The properties that a lookup expects of its topics."""

    # Ids of the topics by name if the caller has created them; an old broker reports zeros. Each
    # topic must have this id, and a leader for each partition. A broker that lags behind may still
    # describe a deleted topic of the same name, and accept records for it.
    created_ids: Mapping[str, bytes] | None = None
    # Each topic must have a partition of this number, which may have been added recently.
    partition: int = 0
    # Whether a topic may have been created recently, so that some brokers do not know it yet.
    may_be_new: bool = True


_ANY = Sought()


def look_up_all_topics(
    cluster: Cluster, timeout_ms: float, on_done: OnDone[dict[str, TopicInfo]]
) -> None:
    """Refresh the metadata of all topics, with retries, and pass the topics on by name."""

    def attempt(done: OnDone[dict[str, TopicInfo]]) -> None:
        def on_refreshed(_none: None, error: ClientError | None) -> None:
            done(dict(cluster.metadata.topics) if error is None else None, error)

        cluster.refresh(None, on_refreshed)

    RetryingCall(cluster.retry_timer(timeout_ms), "list of topics", attempt, on_done).start()


class TopicLookup:
    """Refreshes metadata until it contains all `topics`, or an error ends the lookup."""

    def __init__(
        self,
        cluster: Cluster,
        topics: Iterable[str],
        timeout_ms: float,
        on_done: OnDone[dict[str, TopicInfo]],
        sought: Sought = _ANY,
    ) -> None:
        self._cluster = cluster
        self._topics = list(dict.fromkeys(topics))
        self._retry = cluster.retry_timer(timeout_ms)
        self._on_done = on_done
        self._sought = sought

    def start(self) -> None:
        """Start the next attempt."""
        self._cluster.refresh(self._topics, self._on_refreshed)

    def _on_refreshed(self, _none: None, error: ClientError | None) -> None:
        if error is None:
            error = self._missing()
            if error is None:
                known = self._cluster.metadata.topics
                self._on_done({name: known[name] for name in self._topics}, None)
                return
        if not error.retriable or self._is_final(error) or not self._retry.retry(self.start):
            self._on_done(None, error)

    def _is_final(self, error: ClientError) -> bool:
        """Return whether the topic is still unknown after enough attempts."""
        if not isinstance(error, UnknownTopicError) or self._sought.created_ids is not None:
            # A slow broker learns of created topics later.
            return False
        return not self._sought.may_be_new or self._retry.failures >= _UNKNOWN_ATTEMPTS - 1

    def _missing(self) -> ClientError | None:
        metadata = self._cluster.metadata
        for name in self._topics:
            code = metadata.errors.get(name, 0)
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return UnknownTopicError(name, metadata.similar(name))
            if code:
                return broker_error(code, name)
            topic = metadata.topics.get(name)
            if topic is None or self._is_deleted(topic):
                return UnknownTopicError(name, metadata.similar(name))
            if self._sought.partition >= len(topic.partitions):
                return UnknownPartitionError(name, self._sought.partition, len(topic.partitions))
            if self._sought.created_ids is not None and len(topic.available) < len(
                topic.partitions
            ):
                return broker_error(ErrorCode.LEADER_NOT_AVAILABLE, name)
        return None

    def _is_deleted(self, topic: TopicInfo) -> bool:
        """Return whether this is a topic that was deleted before the caller created its own."""
        created = (self._sought.created_ids or {}).get(topic.name, ZERO_ID)
        return created not in (ZERO_ID, topic.topic_id)
