"""Fetches with many partitions, which take several turns of the event loop.

A fetch of a follower updates the follower's state of a partition, and is reported to the checks of
leadership, in the turn in which the partition is read. A check that begins later does not count the
fetch, since the follower has sent it before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from barnabas.replication.requests.delayed_fetch import (
    DelayedFetch,
    FetchSource,
    ReadLimit,
    completes_at_once,
    limit_of,
)
from barnabas.waiting.steps import in_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.replication.partition.fetch_params import FetchParams, FetchPartitionData
    from barnabas.replication.partition.results import FetchResult
    from barnabas.replication.requests.delayed_fetch import WaitingPartition
    from barnabas.replication.requests.idle_partition_set import IdlePartitionSet
    from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition
    from barnabas.waiting.purgatory import Purgatory

    PartitionRequest = tuple[TopicIdPartition, FetchPartitionData]
    PartitionResult = tuple[TopicIdPartition, FetchResult]
    Steps = Generator[None, None, None]

# Partitions that one step reads.
_AT_ONCE = 100


class WideFetchSource(FetchSource, Protocol):
    """Reads the partitions of a fetch in parts."""

    def read_first(
        self, params: FetchParams, partitions: list[PartitionRequest], limit: ReadLimit
    ) -> list[PartitionResult]:
        """Read and count requested partitions."""
        ...

    def take_follower_states(
        self,
        params: FetchParams,
        partitions: list[PartitionRequest],
        results: list[PartitionResult],
    ) -> list[TopicPartition]:
        """Update a follower's states, and return the partitions whose watermark moved."""
        ...

    def waiting(
        self,
        params: FetchParams,
        partitions: list[PartitionRequest],
        results: list[PartitionResult],
    ) -> list[WaitingPartition]:
        """Return the requested partitions with the results of their first read."""
        ...

    def end_first_read(
        self, params: FetchParams, results: list[PartitionResult], moved: list[TopicPartition]
    ) -> None:
        """Check what waits for the moved partitions, and for fetches of the read ones."""
        ...


class WideFetch(DelayedFetch):
    """Reads its partitions in steps, and completes in steps.

    Each partition is watched from the turn in which it is read, so that no change is missed. If a
    change, the timeout or the limit of the purgatory completes the fetch before all partitions are
    read, the results follow after the last step.
    """

    __slots__ = ("_fetches", "_is_read", "_run")

    _source: WideFetchSource

    def __init__(
        self,
        params: FetchParams,
        source: WideFetchSource,
        fetches: Purgatory,
        run: Callable[[Steps], None],
        on_done: Callable[[list[PartitionResult]], None],
        idle: IdlePartitionSet | None = None,
    ) -> None:
        """Create a fetch. `read` starts it.

        Args:
            params: the request as a whole.
            source: reads the partitions.
            fetches: holds the fetch while it waits.
            run: runs steps over several turns, after the fetch has waited.
            on_done: gets one result per partition.
            idle: the session, which adds idle partitions when they change.
        """
        super().__init__(params, [], source, on_done, idle)
        self._run = run
        self._fetches = fetches
        # Set after the first read of the last partition; never reset.
        self._is_read = False
        if params.max_wait_ms > 0:
            # The fetch is a key of its own, so that it can wait without partitions.
            fetches.watch(self, [self])

    def read(self, partitions: list[PartitionRequest]) -> Steps:
        """Read the partitions in order, and complete or wait as in `ReplicaReads.fetch`."""
        params = self._params
        limit = limit_of(params)
        results: list[PartitionResult] = []
        size = 0
        # Whether these results are the response, and whether the watched partitions complete the
        # fetch, which then reads them again. Never reset.
        is_due = params.max_wait_ms <= 0 or params.min_bytes <= 0
        is_decided = False
        for some in in_parts(partitions, _AT_ONCE):
            found = self._source.read_first(params, some, limit)
            moved = self._source.take_follower_states(params, some, found)
            results += found
            size += sum(len(result.records) for _, result in found)
            is_due = is_due or size >= params.min_bytes or completes_at_once(params, found)
            if not is_due:
                waiting = self._watch(some, found)
                # If no partition had bytes, all of them were read up to their end.
                is_decided = is_decided or (size > 0 and self._is_any_decided(waiting))
            # After the partitions are watched, since completed operations may append to them.
            self._source.end_first_read(params, found, moved)
            yield
        self._is_read = True
        if is_due:
            self.cancel()
            self._on_done(results)
        elif is_decided or self.is_completed:
            self.cancel()
            yield from self._finish()

    def _watch(
        self, partitions: list[PartitionRequest], results: list[PartitionResult]
    ) -> list[WaitingPartition]:
        waiting = self._source.waiting(self._params, partitions, results)
        for each in waiting:
            self._add(each)
        self._fetches.watch_more(self, [each.topic_partition for each in waiting])
        return waiting

    def on_complete(self) -> None:
        """Read again the partitions that changed or had bytes, unless `read` is in progress."""
        self.on_cancel()
        if self._is_read:
            self._run(self._finish())

    def _finish(self) -> Steps:
        limit = limit_of(self._params)
        results: list[PartitionResult] = []
        for some in in_parts(self._partitions, _AT_ONCE):
            results += self._read_changed(some, limit)
            yield
        self._on_done(results)
