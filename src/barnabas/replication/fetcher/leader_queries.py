"""The queries that a fetcher sends before a fetch, one at a time.

They find where the log of a follower diverges from the log of its leader, and where the follower
continues if the leader does not have its fetch offset. `FollowerTruncation`, `OutOfRange` and
`TieredPartitions` know what to ask and what follows from the responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.replication.fetcher.follower_truncation import FollowerTruncation, OutOfRange
from barnabas.replication.partition.offset_lookup import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from barnabas.network.network_error import NetworkError
    from barnabas.replication.fetcher.fetch_states import FetchStates
    from barnabas.replication.fetcher.leader_endpoint import (
        EpochQuery,
        LeaderEndpoint,
        ListedOffset,
    )
    from barnabas.replication.fetcher.local_replicas import LocalReplicas
    from barnabas.replication.fetcher.tiered_partitions import (
        TieredPartitions,
        TierQuery,
        TierSettings,
    )
    from barnabas.replication.partition.results import EpochEndOffset
    from barnabas.storage.topic_partition import TopicPartition


class QueryCallbacks(NamedTuple):
    """What the fetcher does for its queries."""

    # Registers a query that is sent now, with its handler and argument. Returns the callback for
    # the response.
    expect: Callable[[Callable[[Any, Any, NetworkError | None], None], object], Callable[..., None]]
    # Handles the failure of a whole request with these partitions.
    on_failed: Callable[[Iterable[TopicPartition], NetworkError], None]
    # Runs a function later than its query, and then sends the next request.
    resume: Callable[[Callable[[], None]], None]


class LeaderQueries:
    """The queries of one fetcher."""

    __slots__ = ("_callbacks", "_leader", "_out_of_range", "_tiered", "truncation")

    def __init__(
        self,
        states: FetchStates,
        leader: LeaderEndpoint,
        local: LocalReplicas,
        tier: TierSettings | None,
        callbacks: QueryCallbacks,
    ) -> None:
        """Create the queries.

        Args:
            states: the partitions of the fetcher.
            leader: where the queries go.
            local: the replicas of this broker.
            tier: the remote tier; None without one.
            callbacks: what the fetcher does.
        """
        self._leader = leader
        self._callbacks = callbacks
        self._out_of_range = OutOfRange(states, local, tier)
        self.truncation = FollowerTruncation(states, local)
        # None without a remote tier.
        self._tiered: TieredPartitions | None = None
        if tier is not None:
            # Imported only on brokers with a remote tier.
            from barnabas.replication.fetcher.tiered_partitions import TieredPartitions

            self._tiered = TieredPartitions(states, local, tier, callbacks.resume)

    def send_next(self) -> bool:
        """Truncate logs, and send a query if a partition needs it. Return whether one was sent."""
        self.truncation.truncate_without_epoch()
        epochs = self.truncation.queries()
        if epochs:
            on_response = self._callbacks.expect(self._on_epoch_ends, epochs)
            self._leader.epoch_ends(epochs, on_response)
            return True
        ends = self._out_of_range.queries()
        if ends:
            on_response = self._callbacks.expect(self._on_ends, ends)
            self._leader.offsets(ends, LATEST, on_response)
            return True
        query = None if self._tiered is None else self._tiered.query()
        if query is not None:
            on_response = self._callbacks.expect(self._on_tier_offsets, query)
            self._leader.offsets(query.partitions, query.timestamp, on_response)
        return query is not None

    def _on_epoch_ends(
        self,
        requested: dict[TopicPartition, EpochQuery],
        ends: dict[TopicPartition, EpochEndOffset] | None,
        error: NetworkError | None,
    ) -> None:
        if ends is None:
            assert error is not None
            self._callbacks.on_failed(requested, error)
        else:
            self.truncation.on_epoch_ends(requested, ends)

    def _on_ends(
        self,
        requested: dict[TopicPartition, int],
        listed: dict[TopicPartition, ListedOffset] | None,
        error: NetworkError | None,
    ) -> None:
        if listed is None:
            self._on_no_offsets(requested, error)
            return
        starts = self._out_of_range.on_end_offsets(requested, listed)
        if starts:
            on_response = self._callbacks.expect(self._on_starts, starts)
            self._leader.offsets(starts, EARLIEST, on_response)

    def _on_starts(
        self,
        requested: dict[TopicPartition, int],
        listed: dict[TopicPartition, ListedOffset] | None,
        error: NetworkError | None,
    ) -> None:
        if listed is None:
            self._on_no_offsets(requested, error)
        else:
            self._out_of_range.on_start_offsets(requested, listed)

    def _on_no_offsets(
        self, requested: dict[TopicPartition, int], error: NetworkError | None
    ) -> None:
        assert error is not None
        self._out_of_range.on_failed(requested)
        self._callbacks.on_failed(requested, error)

    def _on_tier_offsets(
        self,
        query: TierQuery,
        listed: dict[TopicPartition, ListedOffset] | None,
        error: NetworkError | None,
    ) -> None:
        assert self._tiered is not None
        if listed is None:
            self._on_no_tier_response(query.partitions, error)
            return
        epochs = self._tiered.on_offsets(query, listed)
        if epochs:
            on_response = self._callbacks.expect(self._on_tier_epochs, epochs)
            self._leader.epoch_ends(epochs, on_response)

    def _on_tier_epochs(
        self,
        requested: dict[TopicPartition, EpochQuery],
        ends: dict[TopicPartition, EpochEndOffset] | None,
        error: NetworkError | None,
    ) -> None:
        assert self._tiered is not None
        if ends is None:
            self._on_no_tier_response(requested, error)
        else:
            self._tiered.on_epoch_ends(requested, ends)

    def _on_no_tier_response(
        self, keys: Iterable[TopicPartition], error: NetworkError | None
    ) -> None:
        assert error is not None
        assert self._tiered is not None
        self._tiered.on_failed(keys)
        self._callbacks.on_failed(keys, error)
