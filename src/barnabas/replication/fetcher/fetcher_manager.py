"""The fetchers of a broker: one per leader and fetcher id (Kafka's ReplicaFetcherManager).

Each leader has one more fetcher than in Kafka, while it is needed. This *catch-up fetcher* fetches
the partitions whose replica here is not in the ISR. Otherwise, each acknowledged write (acks=all)
to another partition would wait until large responses of these partitions are transferred and
appended.

A partition whose replica enters or leaves the ISR moves to the other fetcher. It moves when no
fetch of it is in flight, so that the leader never has requests for it from two connections. Until
its new fetcher can include it in a request, its old one fetches it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.metrics.measurements import Meter
from barnabas.replication.fetcher.fetch_states import FetchState, InitialFetchState
from barnabas.replication.fetcher.leader_endpoint import FetcherKey, LeaderEndpoint, fetcher_id
from barnabas.replication.fetcher.replica_fetcher import FetcherDependencies, ReplicaFetcher

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from barnabas.replication.fetcher.leader_channels import LeaderChannels
    from barnabas.storage.topic_partition import TopicPartition


_log = logging.getLogger(__name__)


class _Move(NamedTuple):
    """A planned move of a partition."""

    source: FetcherKey
    target: FetcherKey


class FetcherManager:
    """Assigns each followed partition to a fetcher."""

    __slots__ = (
        "_channels",
        "_dependencies",
        "_fetchers",
        "_is_closed",
        "_meters",
        "_moves",
        "_per_leader",
    )

    def __init__(self, channels: LeaderChannels, dependencies: FetcherDependencies) -> None:
        self._channels = channels
        self._dependencies = dependencies
        # `num.replica.fetchers`. Also the fetcher id of the catch-up fetchers.
        self._per_leader = dependencies.settings.config.num_replica_fetchers
        self._fetchers: dict[FetcherKey, ReplicaFetcher] = {}
        # Meters of requests and of record bytes, by fetcher.
        self._meters: dict[FetcherKey, tuple[Meter, Meter]] = {}
        # Planned moves. Both fetchers exist, and the source fetches the partition.
        self._moves: dict[TopicPartition, _Move] = {}
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
            key = self._key(initial.leader_id, topic_partition, initial.is_in_isr)
            by_fetcher.setdefault(key, {})[topic_partition] = initial
        self._dependencies.failed.discard(partitions)
        for key, group in by_fetcher.items():
            self._fetcher(key).add(group)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching partitions."""
        partitions = list(partitions)
        for fetcher in self._fetchers.values():
            fetcher.remove(partitions)
        for topic_partition in partitions:
            self._moves.pop(topic_partition, None)
        self._dependencies.failed.discard(partitions)

    def update_isr(self, is_in_isr: Mapping[TopicPartition, bool]) -> None:
        """Plan to move the partitions whose replica has entered or left the ISR.

        Args:
            is_in_isr: whether the metadata has this replica in the ISR. Partitions that are not
                fetched are ignored.
        """
        for source, fetcher in list(self._fetchers.items()):
            for topic_partition, is_member in is_in_isr.items():
                state = fetcher.states.get(topic_partition)
                if state is None:
                    continue
                state.is_in_isr = is_member
                target = self._key(source.leader_id, topic_partition, is_member)
                if target == source:
                    self._moves.pop(topic_partition, None)
                else:
                    self._fetcher(target)
                    self._moves[topic_partition] = _Move(source, target)

    def resize(self, per_leader: int) -> None:
        """Apply a changed `num.replica.fetchers`: reassign all partitions to fetchers."""
        if per_leader == self._per_leader:
            return
        _log.info("Number of fetchers changed: fetchers_per_leader=%d", per_leader)
        self._per_leader = per_leader
        self._moves.clear()
        moved: dict[TopicPartition, InitialFetchState] = {}
        for key, fetcher in list(self._fetchers.items()):
            for topic_partition, state in fetcher.remove_all().items():
                moved[topic_partition] = _initial(key.leader_id, state)
            if key.fetcher_id > per_leader:
                self._close(key)
        self.add(moved)
        self.close_idle()

    def close_idle(self) -> None:
        """Close the fetchers that have no partitions."""
        for fetcher in list(self._fetchers.values()):
            self._maybe_close(fetcher)

    def close(self) -> None:
        """Close all fetchers permanently."""
        self._is_closed = True
        for key in list(self._fetchers):
            self._close(key)

    # Methods for fetchers.

    def before_request(self, fetcher: ReplicaFetcher) -> bool:
        """Move partitions out of a fetcher, see `FetcherOwner`."""
        if not self._moves:
            return False
        moved: dict[FetcherKey, dict[TopicPartition, FetchState]] = {}
        for topic_partition, move in list(self._moves.items()):
            if move.source != fetcher.key:
                continue
            state = fetcher.states.get(topic_partition)
            if state is None:
                # Fetching has failed.
                del self._moves[topic_partition]
            elif state.may_change_fetchers and self._fetchers[move.target].is_soon_idle:
                del self._moves[topic_partition]
                moved.setdefault(move.target, {})[topic_partition] = state
        for target, states in moved.items():
            fetcher.remove(states)
            self._fetchers[target].take_over(states)
        return self._is_target(fetcher.key)

    def is_catch_up(self, fetcher: ReplicaFetcher) -> bool:
        """Whether the replicas of the fetcher's partitions are not in the ISR."""
        return fetcher.key.fetcher_id == self._per_leader

    def on_unused(self, fetcher: ReplicaFetcher) -> None:
        """Close a catch-up fetcher that has no more partitions."""
        if self.is_catch_up(fetcher):
            self._maybe_close(fetcher)

    def _is_target(self, key: FetcherKey) -> bool:
        """Whether the fetcher will receive partitions of another one."""
        return any(
            move.target == key and not self._fetchers[move.source].is_dead
            for move in self._moves.values()
        )

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

    def _key(self, leader_id: int, followed: TopicPartition, is_in_isr: bool) -> FetcherKey:
        """Return the key of the fetcher that is to fetch a partition."""
        per_leader = self._per_leader
        return FetcherKey(leader_id, fetcher_id(followed, per_leader) if is_in_isr else per_leader)

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
        fetcher = self._fetchers[key] = ReplicaFetcher(key, leader, self._dependencies, self)
        self._meters[key] = (Meter(self._dependencies.clock), Meter(self._dependencies.clock))
        if carried:
            self.add(carried)
        return fetcher

    def _maybe_close(self, fetcher: ReplicaFetcher) -> None:
        """Close a fetcher that has no partitions, and will receive none."""
        if not len(fetcher) and not self._is_target(fetcher.key):
            self._close(fetcher.key)

    def _close(self, key: FetcherKey) -> None:
        self._fetchers.pop(key).close()
        del self._meters[key]
        for topic_partition in [each for each, move in self._moves.items() if key in move]:
            del self._moves[topic_partition]


def _initial(leader_id: int, state: FetchState) -> InitialFetchState:
    """Return the parameters to continue fetching from a state."""
    return InitialFetchState(
        state.topic_id,
        leader_id,
        state.current_leader_epoch,
        state.fetch_offset,
        state.is_in_isr,
    )
