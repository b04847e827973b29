"""The fetchers of a broker: one per leader and fetcher id (Kafka's ReplicaFetcherManager)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.metrics.meter import Meter
from barnabas.protocol.java_strings import string_hash
from barnabas.replication.fetcher.fetch_state import FetchState, InitialFetchState
from barnabas.replication.fetcher.leader_endpoint import LeaderEndpoint
from barnabas.replication.fetcher.replica_fetcher import FetcherDependencies, ReplicaFetcher

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from barnabas.replication.fetcher.leader_channels import LeaderChannels
    from barnabas.storage.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

_HASH_MASK = 0xFFFF_FFFF
_HASH_SIGN = 0x8000_0000


class FetcherKey(NamedTuple):
    """The leader and the number of a fetcher."""

    leader_id: int
    fetcher_id: int


def fetcher_id(topic_partition: TopicPartition, fetchers: int) -> int:
    """Return the fetcher id of a partition, by Kafka's formula with Java's string hash."""
    hashed = (31 * string_hash(topic_partition.topic) + topic_partition.partition) & _HASH_MASK
    if hashed & _HASH_SIGN:
        # The absolute value. As in Kafka, it is 0 for the smallest integer.
        hashed = (-hashed) & _HASH_MASK
        hashed = 0 if hashed == _HASH_SIGN else hashed
    return hashed % fetchers


class FetcherManager:
    """Assigns each followed partition to a fetcher."""

    __slots__ = ("_channels", "_dependencies", "_fetchers", "_is_closed", "_meters", "_per_leader")

    def __init__(self, channels: LeaderChannels, dependencies: FetcherDependencies) -> None:
        self._channels = channels
        self._dependencies = dependencies
        # `num.replica.fetchers`
        self._per_leader = dependencies.settings.config.num_replica_fetchers
        self._fetchers: dict[FetcherKey, ReplicaFetcher] = {}
        # Meters of requests and of record bytes, by fetcher.
        self._meters: dict[FetcherKey, tuple[Meter, Meter]] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._fetchers)

    def fetchers(self) -> Iterator[tuple[FetcherKey, ReplicaFetcher]]:
        """Return all fetchers with their keys."""
        return iter(self._fetchers.items())

    def add(self, partitions: Mapping[TopicPartition, InitialFetchState]) -> None:
        """Start to fetch partitions. Failed partitions are tried again."""
        if self._is_closed:
            return
        by_fetcher: dict[FetcherKey, dict[TopicPartition, InitialFetchState]] = {}
        for topic_partition, initial in partitions.items():
            key = FetcherKey(initial.leader_id, fetcher_id(topic_partition, self._per_leader))
            by_fetcher.setdefault(key, {})[topic_partition] = initial
        self._dependencies.failed.discard(partitions)
        for key, group in by_fetcher.items():
            self._fetcher(key).add(group)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching partitions."""
        partitions = list(partitions)
        for fetcher in self._fetchers.values():
            fetcher.remove(partitions)
        self._dependencies.failed.discard(partitions)

    def resize(self, per_leader: int) -> None:
        """Apply a changed `num.replica.fetchers`: reassign all partitions to fetchers."""
        if per_leader == self._per_leader:
            return
        _log.info("Number of fetchers changed: fetchers_per_leader=%d", per_leader)
        self._per_leader = per_leader
        moved: dict[TopicPartition, InitialFetchState] = {}
        for key, fetcher in list(self._fetchers.items()):
            for topic_partition, state in fetcher.remove_all().items():
                moved[topic_partition] = _initial(key.leader_id, state)
            if key.fetcher_id >= per_leader:
                self._close(key)
        self.add(moved)

    def close_idle(self) -> None:
        """Close the fetchers that have no partitions."""
        for key in [key for key, fetcher in self._fetchers.items() if not len(fetcher)]:
            self._close(key)

    def close(self) -> None:
        """Close all fetchers permanently."""
        self._is_closed = True
        for key in list(self._fetchers):
            self._close(key)

    # Values for metrics.

    @property
    def failed(self) -> list[TopicPartition]:
        """Partitions that are not fetched until their leader changes."""
        return list(self._dependencies.failed)

    @property
    def dead_count(self) -> int:
        """Number of fetchers that an unexpected error has stopped."""
        return sum(fetcher.is_dead for fetcher in self._fetchers.values())

    @property
    def max_lag(self) -> int:
        """The largest lag of all partitions."""
        return max(
            (lag for fetcher in self._fetchers.values() for _, lag in fetcher.lags()), default=0
        )

    @property
    def min_fetch_rate(self) -> float:
        """The smallest request rate of all fetchers, in requests per second over one minute."""
        rates = [requests.rates()[0] for requests, _ in self.meters().values()]
        return min(rates, default=0.0)

    def meters(self) -> dict[FetcherKey, tuple[Meter, Meter]]:
        """Return the meters of requests and of record bytes, by fetcher."""
        for key, fetcher in self._fetchers.items():
            requests, received = self._meters[key]
            requests.count, received.count = fetcher.requests, fetcher.bytes_fetched
        return self._meters

    def _fetcher(self, key: FetcherKey) -> ReplicaFetcher:
        fetcher = self._fetchers.get(key)
        if fetcher is not None and not fetcher.is_dead:
            return fetcher
        carried: dict[TopicPartition, InitialFetchState] = {}
        if fetcher is not None:
            carried = {
                each: _initial(key.leader_id, state) for each, state in fetcher.remove_all().items()
            }
            self._close(key)
        settings = self._dependencies.settings
        client_id = f"broker-{settings.node_id}-fetcher-{key.fetcher_id}"
        channel = self._channels.open(key.leader_id, client_id)
        leader = LeaderEndpoint(key.leader_id, channel, settings)
        name = f"ReplicaFetcherThread-{key.fetcher_id}-{key.leader_id}"
        fetcher = self._fetchers[key] = ReplicaFetcher(name, leader, self._dependencies)
        self._meters[key] = (Meter(self._dependencies.clock), Meter(self._dependencies.clock))
        if carried:
            fetcher.add(carried)
        return fetcher

    def _close(self, key: FetcherKey) -> None:
        self._fetchers.pop(key).close()
        del self._meters[key]


def _initial(leader_id: int, state: FetchState) -> InitialFetchState:
    """Return the parameters to continue fetching from a state."""
    return InitialFetchState(
        state.topic_id, leader_id, state.current_leader_epoch, state.fetch_offset
    )
