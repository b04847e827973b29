"""Names for the topic ids of an assignment (KIP-848), from metadata or by a request by id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.errors import ClientError
    from barnabas.runtime.timer import Cancellable

__all__ = ["PartitionsById", "TopicNames"]

# Partition numbers by topic id.
PartitionsById = dict[bytes, frozenset[int]]


class TopicNames:
    """Maps topic ids to names; requests metadata of unknown ids, with retry backoff."""

    def __init__(self, cluster: Cluster, on_answered: Callable[[], None]) -> None:
        self._cluster = cluster
        self._tell = on_answered
        # Known names. A deleted topic is missing in the metadata, but its partitions are still
        # revoked by name. Limited to the topics of the current assignment and target.
        self._names: dict[bytes, str] = {}
        # Ids of the target without a known name; requested until they are known or dropped.
        self._wanted: set[bytes] = set()
        # Number of consecutive responses after which ids were still unknown.
        self._attempts = 0
        # Timer of the retry backoff; None without one.
        self._timer: Cancellable | None = None
        # Whether a request is in flight.
        self._asking = False
        self._stopped = False

    @property
    def is_first_asking(self) -> bool:
        """Whether unknown ids are being requested for the first time, so that waiting is useful."""
        return bool(self._wanted) and self._attempts == 0

    def resolve(self, target: Mapping[bytes, frozenset[int]]) -> PartitionsById:
        """Return the part of `target` whose topics have names; request the names of the others."""
        known = self._cluster.metadata.names
        self._names |= {topic_id: known[topic_id] for topic_id in target if topic_id in known}
        self._wanted = {topic_id for topic_id in target if topic_id not in self._names}
        if self._wanted and self._timer is None:
            self._ask()
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
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ask(self) -> None:
        if self._asking or self._stopped:
            return
        self._asking = True
        self._cluster.refresh_by_id(sorted(self._wanted), self._on_answered)

    def _on_answered(self, _none: None, _error: ClientError | None) -> None:
        self._asking = False
        if self._stopped:
            return
        known = self._cluster.metadata.names
        self._wanted = {topic_id for topic_id in self._wanted if topic_id not in known}
        self._attempts = self._attempts + 1 if self._wanted else 0
        if self._wanted:
            delay_ms = self._cluster.retry_backoff.delay_ms(self._attempts)
            self._timer = self._cluster.runtime.timer.call_later(delay_ms, self._on_due)
        self._tell()

    def _on_due(self) -> None:
        self._timer = None
        if self._wanted:
            self._ask()
