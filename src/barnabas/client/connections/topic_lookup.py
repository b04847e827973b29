"""Looks up topics by name, with retries for topics that were created recently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.errors import (
    ClientError,
    UnknownPartitionError,
    UnknownTopicError,
    broker_error,
)
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.connections.metadata_cache import TopicInfo
    from barnabas.client.retries.retrying import OnDone

__all__ = ["TopicLookup"]

# About 1.5 s with the default backoff; by then all brokers know a new topic.
_UNKNOWN_ATTEMPTS = 5


class TopicLookup:
    """Refreshes metadata until it contains all `topics`, or an error ends the lookup.

    With `wait_for_leaders`, every partition must have a leader too. With `partition`, each topic
    must have a partition of that number, which may have been added recently.
    """

    def __init__(
        self,
        cluster: Cluster,
        topics: Iterable[str],
        timeout_ms: float,
        on_done: OnDone[dict[str, TopicInfo]],
        *,
        wait_for_leaders: bool = False,
        partition: int = 0,
    ) -> None:
        self._cluster = cluster
        self._topics = list(dict.fromkeys(topics))
        self._retry = cluster.retry_timer(timeout_ms)
        self._on_done = on_done
        self._wait_for_leaders = wait_for_leaders
        self._partition = partition

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
        # A caller that waits for leaders has created the topics: a slow broker learns of them
        # later.
        return (
            isinstance(error, UnknownTopicError)
            and not self._wait_for_leaders
            and self._retry.failures >= _UNKNOWN_ATTEMPTS - 1
        )

    def _missing(self) -> ClientError | None:
        metadata = self._cluster.metadata
        for name in self._topics:
            code = metadata.errors.get(name, 0)
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return UnknownTopicError(name, metadata.similar(name))
            if code:
                return broker_error(code, name)
            topic = metadata.topics.get(name)
            if topic is None:
                return UnknownTopicError(name, metadata.similar(name))
            if self._partition >= len(topic.partitions):
                return UnknownPartitionError(name, self._partition, len(topic.partitions))
            if self._wait_for_leaders and len(topic.available) < len(topic.partitions):
                return broker_error(ErrorCode.LEADER_NOT_AVAILABLE, name)
        return None
