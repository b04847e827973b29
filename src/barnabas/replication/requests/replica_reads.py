"""Fetches of followers and consumers (the reading half of Kafka's ReplicaManager)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.partition.results import FetchResult, failed_fetch
from barnabas.replication.requests.delayed_fetch import (
    DelayedFetch,
    WaitingPartition,
    completes_at_once,
    has_missed,
)
from barnabas.storage.errors import DamagedLogError, StorageError, log_level_of
from barnabas.storage.results import FetchIsolation

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable

    from barnabas.replication.partition.fetch_params import (
        FetchParams,
        FetchPartitionData,
        ReadLimit,
    )
    from barnabas.replication.partition.isr_maintenance import IsrMaintenance
    from barnabas.replication.partition.partition_registry import PartitionRegistry
    from barnabas.replication.remote.remote_tier import RemoteReads
    from barnabas.replication.replica_metrics import ReplicaMetrics
    from barnabas.replication.replication_throttle import ReplicationThrottle
    from barnabas.replication.requests.delayed_remote_fetch import DelayedRemoteFetch
    from barnabas.replication.requests.idle_partitions import IdlePartitionSet
    from barnabas.replication.requests.leadership_checks import LeadershipChecks
    from barnabas.replication.requests.preferred_replicas import PreferredReplicas
    from barnabas.runtime.clock import Cancellable
    from barnabas.storage.remote.remote_reader import Miss
    from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition
    from barnabas.waiting.purgatory import Purgatory

_log = logging.getLogger(__name__)

_NO_TOPIC_ID = bytes(16)
# Attribute lookup on the enum class costs 100 ns, as much as a function call.
_NONE = ErrorCode.NONE
_STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR

PartitionRequest = tuple["TopicIdPartition", "FetchPartitionData"]
PartitionResult = tuple["TopicIdPartition", FetchResult]


class ReadDependencies(msgspec.Struct, frozen=True):
    """The collaborators and callbacks of `ReplicaReads`."""

    registry: PartitionRegistry
    metrics: ReplicaMetrics
    isr: IsrMaintenance
    # Pending fetches, and pending deletions of records, which depend on followers' log starts.
    fetches: Purgatory
    deletes: Purgatory
    # Pending checks of this broker's leadership, which depend on followers' fetches.
    checks: LeadershipChecks
    # Throttle of the records that this broker sends as leader.
    throttle: ReplicationThrottle
    # None if consumers read only from leaders.
    preferred: PreferredReplicas | None
    # Checks all operations that wait for a partition.
    wake: Callable[[TopicPartition], None]
    # Called with a partition whose local log is damaged.
    on_damage: Callable[[TopicPartition, DamagedLogError], None]
    # Reads of the remote tier, and the fetches that wait for it. None without tiered storage.
    remote: RemoteReads | None = None
    remote_fetches: Purgatory | None = None


class ReplicaReads:
    """Reads for fetch requests. A fetch waits in purgatory until enough bytes are available."""

    __slots__ = (
        "_checks",
        "_deletes",
        "_fetches",
        "_isr",
        "_metrics",
        "_on_damage",
        "_online",
        "_preferred",
        "_registry",
        "_remote_fetches",
        "_throttle",
        "_wake",
        "partition",
        "remote",
    )

    def __init__(self, dependencies: ReadDependencies) -> None:
        self._registry = dependencies.registry
        # The registry's own dict: the hot path does one lookup per partition.
        self._online = dependencies.registry.online
        self._metrics = dependencies.metrics
        self._isr = dependencies.isr
        self._fetches = dependencies.fetches
        self._deletes = dependencies.deletes
        self._checks = dependencies.checks
        self._throttle = dependencies.throttle
        self._preferred = dependencies.preferred
        self._wake = dependencies.wake
        self._on_damage = dependencies.on_damage
        self.remote = dependencies.remote
        self._remote_fetches = dependencies.remote_fetches
        # A bound method of another object, to save a call on the hot path.
        self.partition = dependencies.registry.partition

    def fetch(
        self,
        params: FetchParams,
        partitions: list[PartitionRequest],
        on_done: Callable[[list[PartitionResult]], None],
        idle: IdlePartitionSet | None = None,
        run: Callable[[Generator[None, None, None]], None] | None = None,
    ) -> DelayedFetch | DelayedRemoteFetch | None:
        """Read the partitions in order. Respond when enough bytes are there or the wait is over.

        Args:
            params: the request as a whole.
            partitions: the requested partitions, in the order of the request.
            on_done: gets one result per partition, in the same order; may be called before this
                returns.
            idle: further partitions of the session, which have no changes now.
            run: runs the steps of a fetch with many partitions over several turns. None: all
                partitions are read before this returns.

        Returns:
            The pending operation, or None if the fetch is complete.
        """
        if run is not None:
            wide = DelayedFetch(params, [], self, on_done, idle, run)
            if params.max_wait_ms > 0:
                # The fetch is a key of its own, so that it can wait without partitions.
                self._fetches.watch(wide, [wide])
            run(wide.read(partitions, self._fetches))
            return None if wide.is_ended else wide
        results = self.read_first(params, partitions)
        if self.remote is not None and has_missed(results):
            return self.fetch_remotely(params, partitions, results, on_done)
        moved: list[TopicPartition] = []
        if params.is_from_follower:
            moved = self.take_follower_states(params, partitions, results)
        is_request_empty = not partitions and not idle
        if params.max_wait_ms <= 0 or is_request_empty or completes_at_once(params, results):
            for key in moved:
                self._wake(key)
            on_done(results)
            if self._checks.pending:
                self._report_fetches(params, results)
            return None
        waiting = self.waiting(params, partitions, results)
        operation = self._park(params, waiting, on_done, idle)
        # After the fetch is pending, since completed operations may append to these partitions.
        self.end_first_read(params, results, moved)
        return operation

    def fetch_remotely(
        self,
        params: FetchParams,
        partitions: list[PartitionRequest],
        results: list[PartitionResult],
        on_done: Callable[[list[PartitionResult]], None],
    ) -> DelayedRemoteFetch:
        """Load what the first read of a fetch has missed in the remote tier, then respond.

        Args:
            params: the request as a whole.
            partitions: the requested partitions.
            results: the results of their first read.
            on_done: gets one result per partition; may be called before this returns.
        """
        # Imported only on brokers with tiered storage.
        from barnabas.replication.requests.delayed_remote_fetch import DelayedRemoteFetch

        assert self.remote is not None, "a read has missed the remote tier"
        assert self._remote_fetches is not None, "a broker with a remote tier has its purgatory"
        max_wait_ms = self.remote.limits.fetch_max_wait_ms
        operation = DelayedRemoteFetch(params, partitions, results, self, on_done, max_wait_ms)
        operation.start(self._remote_fetches)
        return operation

    def load_remote(self, miss: Miss, on_done: Callable[[ErrorCode], None]) -> Cancellable:
        """Load what a read has missed in the remote tier, see `RemoteTier.load`."""
        assert self.remote is not None, "a read has missed the remote tier"
        return self.remote.load(miss, on_done)

    def count_expired_remote_fetch(self) -> None:
        """Count a fetch whose reads of the remote tier were not done in time."""
        assert self.remote is not None, "a fetch has waited for the remote tier"
        self.remote.metrics.remote_fetch_expires += 1

    def read_first(
        self,
        params: FetchParams,
        partitions: list[PartitionRequest],
        limit: ReadLimit | None = None,
    ) -> list[PartitionResult]:
        """Read and count requested partitions. See `FetchSource.read_again` for the arguments."""
        topics = self._metrics.topics
        for where, _ in partitions:
            topics[where.topic].fetch_requests += 1
        return self._read(params, partitions, limit)

    def end_first_read(
        self, params: FetchParams, results: list[PartitionResult], moved: list[TopicPartition]
    ) -> None:
        """Check what waits for the moved partitions, and for fetches of the read ones.

        Args:
            params: the request as a whole.
            results: the results of the read.
            moved: the partitions that `take_follower_states` has returned.
        """
        for key in moved:
            self._wake(key)
        if self._checks.pending:
            self._report_fetches(params, results)

    def _report_fetches(self, params: FetchParams, results: list[PartitionResult]) -> None:
        """Report a follower's accepted partitions to the pending checks of leadership."""
        if params.is_from_follower:
            fetched = [
                where.topic_partition
                for where, result in results
                if result.error is _NONE and result.position is not None
            ]
            self._checks.on_fetches(params.replica_id, fetched)

    def waiting(
        self,
        params: FetchParams,
        partitions: list[PartitionRequest],
        results: list[PartitionResult],
    ) -> list[WaitingPartition]:
        """Return the requested partitions with the results of their first read."""
        # The throttle may release records before the second read.
        may_be_held_back = self._throttle.is_active and params.is_from_follower
        return [
            WaitingPartition(
                where,
                where.topic_partition,
                data,
                result.position,
                len(result.records),
                result,
                may_be_held_back,
            )
            for (where, data), (_, result) in zip(partitions, results, strict=True)
        ]

    def _park(
        self,
        params: FetchParams,
        waiting: list[WaitingPartition],
        on_done: Callable[[list[PartitionResult]], None],
        idle: IdlePartitionSet | None,
    ) -> DelayedFetch:
        operation = DelayedFetch(params, waiting, self, on_done, idle)
        keys: list[Hashable] = [each.topic_partition for each in waiting]
        if not keys:
            # The session is a key of its own, so that a fetch with only idle partitions can wait.
            keys.append(idle)
        if any(each.available for each in waiting):
            self._fetches.try_complete_else_watch(operation, keys)
        else:
            self._fetches.watch(operation, keys)
        return operation

    def read_again(
        self,
        params: FetchParams,
        partitions: list[PartitionRequest],
        limit: ReadLimit | None = None,
    ) -> list[PartitionResult]:
        """Read again for a fetch that has waited, without updating follower state or request
        counts.
        """
        return self._read(params, partitions, limit)

    def is_throttled(self, topic_partition: TopicPartition, replica_id: int) -> bool:
        """Whether the throttle withholds the partition from this follower.

        ISR members are exempt.
        """
        throttle = self._throttle
        if not throttle.is_throttled(topic_partition):
            return False
        partition = self._online.get(topic_partition)
        is_in_sync = partition is not None and replica_id in partition.isr
        return not is_in_sync and throttle.is_exceeded

    def count_expired_fetch(self, from_follower: bool) -> None:
        """Count a fetch that timed out."""
        if from_follower:
            self._metrics.delayed_fetch_follower_expires += 1
        else:
            self._metrics.delayed_fetch_consumer_expires += 1

    def _read(
        self,
        params: FetchParams,
        partitions: list[PartitionRequest],
        limit: ReadLimit | None = None,
    ) -> list[PartitionResult]:
        """Read in order within the response's byte limit. The first batch may exceed the limit."""
        limit = limit or params.read_limit()
        remaining, min_one_batch = limit.remaining, limit.min_one_batch
        results: list[PartitionResult] = []
        for where, data in partitions:
            max_bytes = min(data.max_bytes, remaining)
            result = self._read_one(params, where, data, (max_bytes, min_one_batch))
            if max_bytes < 0 and _has_more(params, data, result):
                # As in Kafka, which fails a partition whose byte limit is negative.
                self._metrics.topics[where.topic].failed_fetch_requests += 1
                result = failed_fetch(ErrorCode.UNKNOWN_SERVER_ERROR)
                remaining = max(0, remaining)
            # A partition that must be loaded counts with its limit, as in Kafka.
            size = len(result.records) if result.remote is None else max_bytes
            if size:
                min_one_batch = False
                remaining = max(0, remaining - size)
            results.append((where, result))
        limit.remaining, limit.min_one_batch = remaining, min_one_batch
        return results

    def _read_one(
        self,
        params: FetchParams,
        where: TopicIdPartition,
        data: FetchPartitionData,
        limit: tuple[int, bool],
    ) -> FetchResult:
        key = where.topic_partition
        partition = self._online.get(key)
        if partition is None:
            if not where.topic:
                return failed_fetch(ErrorCode.UNKNOWN_TOPIC_ID)
            return failed_fetch(self._registry.missing_error(key))
        topic_id = where.topic_id
        if topic_id != _NO_TOPIC_ID and topic_id != partition.topic_id:
            return failed_fetch(ErrorCode.INCONSISTENT_TOPIC_ID)
        try:
            if self._preferred is not None and params.rack_id:
                elsewhere = self._preferred.find(partition, params, data)
                if elsewhere is not None:
                    return elsewhere
            result = partition.read(params, data, *limit)
        except DamagedLogError as error:
            # The log has reported the damage already.
            self._metrics.topics[key.topic].failed_fetch_requests += 1
            self._on_damage(key, error)
            return failed_fetch(error.error_code)
        except StorageError as error:
            _log.log(log_level_of(error), "Read failed: partition=%s error=%s", key, error)
            if error.error_code is not _STORAGE_ERROR:
                # As in Kafka: a failing disk is counted elsewhere, as an offline directory.
                self._metrics.topics[key.topic].failed_fetch_requests += 1
            return failed_fetch(error.error_code)
        except AssertionError:
            raise
        except Exception:  # noqa: BLE001 - the request's other partitions are still handled
            return self._failed_unexpectedly(key)
        if (
            self._throttle.is_active
            and params.is_from_follower
            and self.is_throttled(key, params.replica_id)
        ):
            result.records = b""
        return result

    def _failed_unexpectedly(self, key: TopicPartition) -> FetchResult:
        """Log and count the exception that is being handled. Return the partition's result."""
        _log.exception("Unexpected error in a fetch: partition=%s", key)
        self._metrics.topics[key.topic].failed_fetch_requests += 1
        return failed_fetch(ErrorCode.UNKNOWN_SERVER_ERROR)

    def take_follower_states(
        self,
        params: FetchParams,
        partitions: list[PartitionRequest],
        results: list[PartitionResult],
    ) -> list[TopicPartition]:
        """Update a follower's states from its fetch. Skip partitions that it must truncate.

        Returns:
            Partitions whose high or low watermark moved. The caller checks their waiting
            operations.
        """
        moved: list[TopicPartition] = []
        if not params.is_from_follower:
            return moved
        low_watermark_awaited = self._deletes.delayed > 0
        for index, (where, data) in enumerate(partitions):
            result = results[index][1]
            partition = self._online.get(where.topic_partition)
            leader = None if partition is None else partition.leader
            if partition is None or leader is None or result.position is None:
                continue
            try:
                update = leader.update_follower_state(params, data, result, low_watermark_awaited)
            except AssertionError:
                raise
            except Exception:  # noqa: BLE001 - the request's other partitions are still handled
                failed = self._failed_unexpectedly(where.topic_partition)
                results[index] = (where, failed)
                continue
            if isinstance(update, ErrorCode):
                results[index] = (where, failed_fetch(update))
                continue
            if update.is_suspicious:
                damage = partition.log.reader.verify(data.fetch_offset, len(result.records))
                if damage is not None:
                    self._on_damage(partition.topic_partition, damage)
            if update.proposal is not None:
                self._isr.propose(partition, update.proposal)
            if update.moved:
                moved.append(partition.topic_partition)
        return moved


def _has_more(params: FetchParams, data: FetchPartitionData, result: FetchResult) -> bool:
    """Whether the client may read records at its fetch offset."""
    if result.error is not _NONE or result.diverging_epoch is not None:
        return False
    if result.position is not None and not result.position.is_known:
        # Only the remote tier has the offset. It returns nothing then.
        return False
    match params.isolation:
        case FetchIsolation.LOG_END:
            end = result.leader_log_end_offset
        case FetchIsolation.HIGH_WATERMARK:
            end = result.high_watermark
        case FetchIsolation.TXN_COMMITTED:
            end = result.last_stable_offset
    return data.fetch_offset < end
