"""Truncates a follower's log where it diverges from the leader's log (KIP-101, KIP-595).

The log also diverges if the response to a fetch is OFFSET_OUT_OF_RANGE. If the leader's log
ends below the follower's log, an unclean election took place. The follower truncates to the
leader's end. If the leader's log starts above the follower's end, retention has deleted the records
between them. The follower empties its log and starts at the leader's start. Otherwise it fetches
from its own end. Kafka: AbstractFetcherThread.fetchOffsetAndTruncate.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.fetcher.fetch_states import FetchPhase
from barnabas.replication.fetcher.leader_endpoint import EpochQuery
from barnabas.replication.fetcher.local_replicas import OffsetTruncation
from barnabas.replication.partition.results import UNKNOWN_EPOCH, UNKNOWN_OFFSET
from barnabas.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.replication.fetcher.fetch_states import FetchState, FetchStates
    from barnabas.replication.fetcher.leader_endpoint import ListedOffset
    from barnabas.replication.fetcher.local_replicas import LocalReplicas
    from barnabas.replication.fetcher.tiered_partitions import TierSettings
    from barnabas.replication.partition.results import EpochEndOffset
    from barnabas.storage.topic_partition import TopicPartition

_log = logging.getLogger(__name__)


class FollowerTruncation:
    """Truncates logs. If this fails for a partition, the partition becomes *failed*."""

    __slots__ = ("_local", "_states")

    def __init__(self, states: FetchStates, local: LocalReplicas) -> None:
        self._states = states
        self._local = local

    def truncate_without_epoch(self) -> None:
        """Truncate logs that have no leader epoch to their initial fetch offset.

        That is the high watermark.
        """
        for key, state in self._states.in_phase(FetchPhase.TRUNCATING):
            partition = self._local.find(key)
            if partition is None:
                self._fail_offline(key)
            elif self._local.latest_epoch(key) is None:
                truncation = OffsetTruncation(state.fetch_offset, is_complete=True)
                self._truncate(key, state, truncation, finds_divergence=True)

    def queries(self) -> dict[TopicPartition, EpochQuery]:
        """Return the OffsetForLeaderEpoch queries for the logs that have a leader epoch."""
        requested: dict[TopicPartition, EpochQuery] = {}
        for key, state in self._states.in_phase(FetchPhase.TRUNCATING):
            epoch = self._local.latest_epoch(key)
            if epoch is not None:
                requested[key] = EpochQuery(state.current_leader_epoch, epoch)
        return requested

    def on_epoch_ends(
        self,
        requested: Mapping[TopicPartition, EpochQuery],
        ends: Mapping[TopicPartition, EpochEndOffset],
    ) -> None:
        """Process the leader's response to `queries`.

        Skip partitions with a newer leader epoch.
        """
        for key, query in requested.items():
            state = self._states.get(key)
            if state is None or state.current_leader_epoch != query.current_leader_epoch:
                continue
            end = ends.get(key)
            if end is None:
                self._states.delay([key])
            elif end.error is ErrorCode.FENCED_LEADER_EPOCH:
                self._states.fence(key, query.current_leader_epoch)
            elif end.error is not ErrorCode.NONE:
                _log.info(
                    "Query for the end of an epoch failed: partition=%s error=%s",
                    key,
                    end.error.name,
                )
                self._states.delay([key])
            else:
                self._truncate_to(key, state, end, finds_divergence=False)

    def truncate_diverging(self, diverging: Mapping[TopicPartition, EpochEndOffset]) -> None:
        """Process diverging epochs from a fetch. The next fetch detects any further divergence."""
        for key, end in diverging.items():
            state = self._states.get(key)
            if state is not None:
                self._truncate_to(key, state, end, finds_divergence=True)

    def _truncate_to(
        self, key: TopicPartition, state: FetchState, end: EpochEndOffset, *, finds_divergence: bool
    ) -> None:
        if end.epoch < UNKNOWN_EPOCH or end.end_offset < UNKNOWN_OFFSET:
            _log.error(
                "Leader sent an impossible end of an epoch: partition=%s epoch=%d end_offset=%d",
                key,
                end.epoch,
                end.end_offset,
            )
            self._states.delay([key])
            return
        partition = self._local.find(key)
        if partition is None:
            self._fail_offline(key)
            return
        truncation = self._local.truncation_offset(partition.log, end, state.fetch_offset)
        _log.info(
            "Log diverges from the leader's: partition=%s truncation=%s leader_epoch_end=%s",
            key,
            truncation,
            end,
        )
        self._truncate(key, state, truncation, finds_divergence=finds_divergence)

    def _fail_offline(self, key: TopicPartition) -> None:
        _log.warning(
            "Replication failed until the leader changes, partition is offline: partition=%s", key
        )
        self._states.fail(key)

    def _truncate(
        self,
        key: TopicPartition,
        state: FetchState,
        truncation: OffsetTruncation,
        *,
        finds_divergence: bool,
    ) -> None:
        """Truncate the log and update the fetch offset, last epoch and phase."""
        try:
            self._local.truncate(key, truncation)
            log = self._local.log(key)
        except StorageError as error:
            _log.error(
                "Truncation failed, fetching stopped until leader change: partition=%s error=%s",
                key,
                error,
            )
            self._states.fail(key)
            return
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - the other partitions are still handled
            self._states.fail_unexpectedly(key, "truncating the log")
            return
        before = (state.fetch_offset, state.last_fetched_epoch, state.phase)
        # Truncation removes whole batches: the log may end below the requested offset.
        state.fetch_offset = min(truncation.offset, log.log_end_offset)
        epoch = self._local.latest_epoch(key)
        state.last_fetched_epoch = UNKNOWN_EPOCH if epoch is None else epoch
        is_over = truncation.is_complete or finds_divergence
        state.phase = FetchPhase.FETCHING if is_over else FetchPhase.TRUNCATING
        if before == (state.fetch_offset, state.last_fetched_epoch, state.phase):
            # The next request would be identical: delay it.
            self._states.delay([key])
        self._local.wake(key)


class OutOfRange:
    """Queries the end offsets first, then the start offsets of the partitions that need them."""

    __slots__ = ("_leader_ends", "_local", "_states", "_tier")

    def __init__(
        self, states: FetchStates, local: LocalReplicas, tier: TierSettings | None = None
    ) -> None:
        self._states = states
        self._local = local
        # None without a remote tier.
        self._tier = tier
        # The leader's end offsets of the partitions in the query for start offsets.
        self._leader_ends: dict[TopicPartition, int] = {}

    def queries(self) -> dict[TopicPartition, int]:
        """Return the partitions for the query of end offsets, with their leader epochs."""
        found = self._states.in_phase(FetchPhase.OUT_OF_RANGE)
        return {key: state.current_leader_epoch for key, state in found}

    def on_end_offsets(
        self, requested: Mapping[TopicPartition, int], listed: Mapping[TopicPartition, ListedOffset]
    ) -> dict[TopicPartition, int]:
        """Process the leader's end offsets.

        Return the partitions for the query of start offsets.
        """
        self._leader_ends.clear()
        for key, state, leader_end in self._usable_offsets(requested, listed):
            try:
                if leader_end < self._local.log(key).log_end_offset:
                    _log.warning(
                        "Leader's log ends below the local log: partition=%s leader_log_end=%d",
                        key,
                        leader_end,
                    )
                    self._local.truncate(key, OffsetTruncation(leader_end, is_complete=True))
                    self._move_offset(key, state, leader_end)
                else:
                    self._leader_ends[key] = leader_end
            except StorageError as error:
                self._give_up(key, error)
            except AssertionError:
                raise
            except Exception:  # noqa: BLE001 - the other partitions are still handled
                self._states.fail_unexpectedly(key, "truncating to the leader's log end")
        return {key: requested[key] for key in self._leader_ends}

    def on_start_offsets(
        self, requested: Mapping[TopicPartition, int], listed: Mapping[TopicPartition, ListedOffset]
    ) -> None:
        """Process the leader's start offsets."""
        for key, state, leader_start in self._usable_offsets(requested, listed):
            try:
                log = self._local.log(key)
                if leader_start > log.log_end_offset:
                    if self._tier is not None and self._tier.skips_all(log):
                        # KIP-1023: nothing that is in the remote tier is copied.
                        state.begin_tiered(leader_start, self._leader_ends[key])
                        continue
                    _log.warning(
                        "Leader's log starts above the local log: partition=%s leader_log_start=%d",
                        key,
                        leader_start,
                    )
                    self._local.restart_log_at(key, leader_start)
                self._move_offset(key, state, self._leader_ends[key])
            except StorageError as error:
                self._give_up(key, error)
            except AssertionError:
                raise
            except Exception:  # noqa: BLE001 - the other partitions are still handled
                self._states.fail_unexpectedly(key, "restarting the log")

    def on_failed(self, requested: Mapping[TopicPartition, int]) -> None:
        """Return the partitions to fetching after a failed request.

        The next fetch checks the range.
        """
        for key in requested:
            state = self._states.get(key)
            if state is not None and state.phase is FetchPhase.OUT_OF_RANGE:
                state.phase = FetchPhase.FETCHING

    def _usable_offsets(
        self, requested: Mapping[TopicPartition, int], listed: Mapping[TopicPartition, ListedOffset]
    ) -> Iterator[tuple[TopicPartition, FetchState, int]]:
        """Yield the offsets of partitions without errors whose state is unchanged.

        Partitions with errors are delayed or fenced.
        """
        for key, epoch in requested.items():
            state = self._states.get(key)
            if (
                state is None
                or state.phase is not FetchPhase.OUT_OF_RANGE
                or state.current_leader_epoch != epoch
            ):
                continue
            result = listed.get(key)
            if result is not None and result.error is ErrorCode.NONE and result.offset >= 0:
                yield key, state, result.offset
                continue
            name = "nothing" if result is None else f"{result.error.name}, {result.offset}"
            _log.info(
                "Leader's offsets are unknown after OFFSET_OUT_OF_RANGE: partition=%s response=%s",
                key,
                name,
            )
            state.phase = FetchPhase.FETCHING
            if result is not None and result.error is ErrorCode.FENCED_LEADER_EPOCH:
                self._states.fence(key, epoch)
            else:
                self._states.delay([key])

    def _move_offset(self, key: TopicPartition, state: FetchState, leader_end: int) -> None:
        log = self._local.log(key)
        epoch = self._local.latest_epoch(key)
        before = (state.fetch_offset, state.last_fetched_epoch)
        state.fetch_offset = log.log_end_offset
        state.last_fetched_epoch = UNKNOWN_EPOCH if epoch is None else epoch
        state.lag = max(0, leader_end - state.fetch_offset)
        state.phase = FetchPhase.FETCHING
        self._states.move_to_end(key)
        if before == (state.fetch_offset, state.last_fetched_epoch):
            # The next request would be identical: delay it, until the leader may have more records.
            self._states.delay([key])
        self._local.wake(key)

    def _give_up(self, key: TopicPartition, error: StorageError) -> None:
        _log.error(
            "Fetch offset cannot be moved into the leader's range: partition=%s error=%s",
            key,
            error,
        )
        state = self._states.get(key)
        if state is not None:
            state.phase = FetchPhase.FETCHING
            self._states.delay([key])
