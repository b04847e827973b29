"""Names for the topic ids of an assignment (KIP-848), from metadata or by a request by id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.errors import ClientError

__all__ = ["PartitionsById", "TopicNames"]

# Partition numbers by topic id.
PartitionsById = dict[bytes, frozenset[int]]


class TopicNames:
    """Maps topic ids to names; requests metadata of unknown ids, with retry backoff."""

    def __init__(self, cluster: Cluster, on_response: Callable[[], None]) -> None:
        self._cluster = cluster
        self._on_response = on_response
        # Known names. A deleted topic is missing in the metadata, but its partitions are still
        # revoked by name. Limited to the topics of the current assignment and target.
        self._names: dict[bytes, str] = {}
        # Ids of the target without a known name; requested until they are known or dropped.
        self._wanted: set[bytes] = set()
        # Delays the next request after a response that left ids unknown.
        self._retry = cluster.retry_timer()
        # Whether a request is in flight; there is at most one.
        self._is_in_flight = False
        # Whether `stop` was called; this is final.
        self._stopped = False

    @property
    def is_first_request(self) -> bool:
        """Whether unknown ids are being requested for the first time, so that waiting is useful."""
        return bool(self._wanted) and self._retry.failures == 0

    def resolve(self, target: Mapping[bytes, frozenset[int]]) -> PartitionsById:
        """Return the part of `target` whose topics have names; request the names of the others."""
        known = self._cluster.metadata.names
        self._names |= {topic_id: known[topic_id] for topic_id in target if topic_id in known}
        self._wanted = {topic_id for topic_id in target if topic_id not in self._names}
        if self._wanted and not self._retry.is_scheduled:
            self._request()
        return {topic_id: target[topic_id] for topic_id in target if topic_id in self._names}

    def named(self, partitions: Mapping[bytes, frozenset[int]]) -> list[TopicPartition]:
        """Return the partitions with topic names, in order; all ids must have been resolved."""
        return sorted(
            TopicPartition(self._names[topic_id], number)
            for topic_id, numbers in partitions.items()
            for number in numbers
        )

    def keep_only(self, *used: Mapping[bytes, frozenset[int]]) -> None:
        """Discard the names of topics that occur in none of the given mappings."""
        kept = set().union(*used)
        self._names = {topic_id: name for topic_id, name in self._names.items() if topic_id in kept}

    def stop(self) -> None:
        """Stop requesting names."""
        self._stopped = True
        self._wanted = set()
        self._retry.cancel()

    def _request(self) -> None:
        # Topics may have become known, or may have been dropped, during the backoff.
        if self._is_in_flight or self._stopped or not self._wanted:
            return
        self._is_in_flight = True
        self._cluster.refresh_by_id(sorted(self._wanted), self._on_refreshed)

    def _on_refreshed(self, _none: None, _error: ClientError | None) -> None:
        self._is_in_flight = False
        if self._stopped:
            return
        known = self._cluster.metadata.names
        self._wanted = {topic_id for topic_id in self._wanted if topic_id not in known}
        if self._wanted:
            self._retry.retry(self._request)
        else:
            self._retry.reset()
        self._on_response()
