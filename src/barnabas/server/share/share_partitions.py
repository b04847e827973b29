"""All share partitions and share sessions of a broker (KIP-932, Kafka's SharePartitionManager)."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.partition.results import ListOffsetResult
from barnabas.server.share.delayed_share_fetch import AT_ONCE, DelayedShareFetch, WideShareFetch
from barnabas.server.share.share_meters import FetchMeters, ShareCounts, ShareMeters
from barnabas.server.share.share_partition import SharePartition, SharePartitionDependencies
from barnabas.server.share.share_sessions import ShareSessionCache
from barnabas.server.share.state_writer import SharePartitionKey
from barnabas.storage.results import FetchIsolation
from barnabas.waiting.steps import in_parts, run_in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.partition_registry import LeadershipChanges
    from barnabas.replication.partition.results import RemoteLookup
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.runtime.clock import Clock
    from barnabas.server.conversion.conversion_queue import ConversionQueue
    from barnabas.server.share.dead_letter_writer import DeadLetterWriter
    from barnabas.server.share.delayed_share_fetch import ShareFetchOptions, ShareFetchResults
    from barnabas.server.share.group_settings import ShareGroupSettings
    from barnabas.server.share.persister import Persister
    from barnabas.server.share.records.acknowledgement import AcknowledgedBatch
    from barnabas.server.share.share_sessions import ShareSession, ShareSessionKey
    from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition
    from barnabas.waiting.timing_wheel import TimingWheel, WheelEntry

    AcknowledgeResult = tuple[ErrorCode, str | None]

_log = logging.getLogger(__name__)

# From this number on, share partitions of groups without sessions do not stay in memory.
SWEPT_AT = 10_000
# A share fetch of more partitions takes several turns.
NARROW_PARTITIONS_MAX = 500

_NONE = ErrorCode.NONE
# Errors after which a share partition is loaded again before its next use.
_FENCING = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class ShareDependencies(msgspec.Struct, frozen=True):
    """Dependencies of `SharePartitions`."""

    replicas: ReplicaManager
    # Access to the share coordinators.
    persister: Persister
    # The configuration of groups.
    settings: ShareGroupSettings
    dead_letters: DeadLetterWriter
    # Runs offset lookups.
    conversions: ConversionQueue
    clock: Clock
    wheel: TimingWheel


class SharePartitions:
    """Share partitions by group and partition, created by the first fetch."""

    def __init__(
        self, dependencies: ShareDependencies, sessions_max: int, partition_count: Callable[[], int]
    ) -> None:
        """Create an empty cache.

        Args:
            dependencies: what share partitions use.
            sessions_max: limit of sessions.
            partition_count: returns the cluster's partition count.
        """
        self._replicas = dependencies.replicas
        self._clock, self._wheel = dependencies.clock, dependencies.wheel
        self._conversions = dependencies.conversions
        self.settings = dependencies.settings
        self.dead_letters = dependencies.dead_letters
        self._partitions: dict[SharePartitionKey, SharePartition] = {}
        # The share partitions of each partition, as in `_partitions`.
        self._by_partition: dict[TopicPartition, dict[SharePartitionKey, SharePartition]] = {}
        self.sessions = ShareSessionCache(
            sessions_max, partition_count, self.release, self._drop_group
        )
        self.counts = ShareCounts()
        self.meters = ShareMeters()
        # Number of share partitions at which those of groups without sessions are dropped.
        self._sweep_at = SWEPT_AT
        self._dependencies = SharePartitionDependencies(
            persister=dependencies.persister,
            settings=dependencies.settings,
            clock=dependencies.clock,
            wheel=dependencies.wheel,
            find_start=self._find_start,
            wake=self._wake,
            on_refused=self._on_refused,
            write_dead_letter=dependencies.dead_letters.write,
            load_ms=self.meters.load_ms,
        )

    def __len__(self) -> int:
        return len(self._partitions)

    def __iter__(self) -> Iterator[SharePartition]:
        return iter(self._partitions.values())

    @property
    def in_flight_count(self) -> int:
        """Number of records in flight of all share partitions."""
        return sum(
            each.records.in_flight.in_flight_count
            for each in self._partitions.values()
            if each.records is not None
        )

    # The cache.

    def _get_or_create(self, key: SharePartitionKey) -> SharePartition | ErrorCode:
        found = self._partitions.get(key)
        if found is not None:
            return found
        if not key.group_id:
            # No share coordinator has the state of such a group.
            return ErrorCode.UNKNOWN_SERVER_ERROR
        partition = self._leader(key.where)
        if isinstance(partition, ErrorCode):
            return partition
        if len(self._partitions) >= self._sweep_at:
            self._sweep()
        created = SharePartition(key, partition.leader_epoch, self._dependencies)
        self._partitions[key] = created
        self._by_partition.setdefault(key.where.topic_partition, {})[key] = created
        return created

    def _leader(self, where: TopicIdPartition) -> Partition | ErrorCode:
        """Return the partition if this broker leads it."""
        partition = self._replicas.partition(where.topic_partition)
        if isinstance(partition, ErrorCode):
            return partition
        if partition.topic_id != where.topic_id:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return partition if partition.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _sweep(self) -> None:
        """Drop the share partitions of groups without sessions."""
        for partition in list(self._partitions.values()):
            if not self.sessions.has_group(partition.key.group_id) and not _must_stay(partition):
                self._remove(partition)
        self._sweep_at = max(SWEPT_AT, 2 * len(self._partitions))

    def _drop_group(self, group_id: str) -> None:
        """Drop the share partitions of a group whose last connection has closed.

        Those with dead letters stay until they are swept, so that no letter is written twice. So do
        those whose released records are being written.
        """
        self.meters.groups.pop(group_id, None)
        for partition in list(self._partitions.values()):
            if partition.key.group_id == group_id and not _must_stay(partition):
                self._remove(partition)

    def _remove(self, partition: SharePartition) -> None:
        """Fence a share partition. The next fetch loads its state again."""
        key = partition.key
        if self._partitions.get(key) is not partition:
            return
        del self._partitions[key]
        siblings = self._by_partition[key.where.topic_partition]
        del siblings[key]
        if not siblings:
            del self._by_partition[key.where.topic_partition]
        partition.fence()
        self._wake(key)

    def on_changes(self, changes: LeadershipChanges) -> None:
        """Fence the share partitions of partitions that this broker no longer leads."""
        lost = [*changes.deleted, *changes.failed]
        lost += [each.topic_partition for each in changes.followers]
        for topic_partition in lost:
            for partition in list(self._by_partition.get(topic_partition, {}).values()):
                self._remove(partition)

    def _on_refused(self, partition: SharePartition, error: ErrorCode) -> None:
        if error in _FENCING:
            _log.info("Share partition is fenced: key=%s error=%s", partition.key, error.name)
            self._remove(partition)

    def clear(self) -> None:
        """End all sessions and drop all share partitions: the feature was switched off."""
        self.sessions.clear()
        for partition in list(self._partitions.values()):
            self._remove(partition)

    def _wake(self, key: SharePartitionKey) -> None:
        self._replicas.share_fetches.check_and_complete(key)

    def _find_start(
        self, key: SharePartitionKey, leader_epoch: int, on_found: Callable[[int | ErrorCode], None]
    ) -> None:
        """Find where the group begins to read, by its configuration."""
        timestamp = self.settings.offset_reset(key.group_id).timestamp(self._clock.wall_ms())
        steps = self._replicas.list_offset(
            key.where.topic_partition, timestamp, FetchIsolation.HIGH_WATERMARK, leader_epoch
        )

        def on_done(result: object) -> None:
            if not isinstance(result, ListOffsetResult):
                on_found(ErrorCode.UNKNOWN_SERVER_ERROR)
            elif result.remote is not None:
                self._find_remotely(key, leader_epoch, result.remote, on_done)
            elif result.error is not _NONE:
                on_found(result.error)
            else:
                on_found(ErrorCode.OFFSET_NOT_AVAILABLE if result.offset < 0 else result.offset)

        self._conversions.submit(key, steps, on_done)

    def _find_remotely(
        self,
        key: SharePartitionKey,
        leader_epoch: int,
        lookup: RemoteLookup,
        on_done: Callable[[ListOffsetResult], None],
    ) -> None:
        """Find where the group begins to read, in the remote tier first."""
        # Imported only on brokers with tiered storage.
        from barnabas.replication.requests.delayed_offset_lookups import PendingLookup

        pending = PendingLookup(key.where.topic_partition, lookup, leader_epoch, True, on_done)
        self._replicas.look_up_remotely([pending], 0, self._conversions, lambda: None)

    # Requests.

    def fetch(
        self,
        group_id: str,
        options: ShareFetchOptions,
        partitions: Sequence[TopicIdPartition],
        on_done: Callable[[ShareFetchResults], None],
        on_client_gone: Callable[[Callable[[], object]], None],
    ) -> Generator[None, None, None]:
        """Acquire records for a member, or wait for records. Yields between many partitions.

        Args:
            group_id: the group of the member.
            options: the request as a whole.
            partitions: the partitions, in the order in which they are read.
            on_done: gets the results that the response includes, perhaps before this returns.
            on_client_gone: registers a callback for the end of the connection.
        """
        if not partitions or options.records_max == 0 or options.params.max_bytes == 0:
            on_done({})
            return
        topics = self._replicas.metrics.topics
        for topic in {where.topic for where in partitions}:
            topics[topic].share_fetch_requests += 1

        def on_fetched(results: ShareFetchResults) -> None:
            failed = {where.topic for where, each in results.items() if each.error is not _NONE}
            for topic in failed:
                topics[topic].failed_share_fetch_requests += 1
            on_done(results)

        meters = FetchMeters(self._clock, self.meters.of_group(group_id), len(partitions))
        if len(partitions) > NARROW_PARTITIONS_MAX:
            operation = WideShareFetch(
                options,
                self._replicas,
                on_fetched,
                self.counts.count_expired_fetch,
                meters,
                self._run_in_slices,
            )
            on_client_gone(operation.cancel)
            yield from self._begin_wide(operation, group_id, partitions)
            return
        errors: dict[TopicIdPartition, ErrorCode] = {}
        found = self._find(group_id, partitions, errors)
        narrow = DelayedShareFetch(
            options, found, self._replicas, on_fetched, self.counts.count_expired_fetch, meters
        )
        narrow.errors.update(errors)
        self._run_in_slices(self._load(narrow, found))
        if not narrow.try_complete():
            self._replicas.share_fetches.watch(narrow, narrow.keys)
            on_client_gone(narrow.cancel)

    def _begin_wide(
        self, operation: WideShareFetch, group_id: str, partitions: Sequence[TopicIdPartition]
    ) -> Generator[None, None, None]:
        """Add the partitions of a fetch in steps, load those that are not loaded, and check all."""
        fetches = self._replicas.share_fetches
        # The fetch is a key of its own, so that it waits before it has partitions.
        fetches.watch(operation, [operation])
        added: list[SharePartition] = []
        for some in in_parts(list(partitions), AT_ONCE):
            found = self._find(group_id, some, operation.errors)
            fetches.watch_more(operation, operation.add(found))
            added += found
            yield
        self._run_in_slices(self._load(operation, added))
        self._run_in_slices(operation.check())

    def _find(
        self,
        group_id: str,
        partitions: Sequence[TopicIdPartition],
        errors: dict[TopicIdPartition, ErrorCode],
    ) -> list[SharePartition]:
        """Return the share partitions; add the errors of those that this broker does not have."""
        topics = self._replicas.metrics.topics
        found: list[SharePartition] = []
        for where in partitions:
            topics[where.topic].fetch_requests += 1
            partition = self._get_or_create(SharePartitionKey(group_id, where))
            if isinstance(partition, ErrorCode):
                errors[where] = partition
            else:
                found.append(partition)
        return found

    def _load(
        self, operation: DelayedShareFetch, partitions: list[SharePartition]
    ) -> Generator[None, None, None]:
        for partition in partitions:
            if not partition.is_active:
                partition.load(partial(self._on_loaded, operation, partition))
                yield

    def _run_in_slices(self, steps: Generator[None, None, None]) -> None:
        run_in_slices(steps, self._clock, lambda work: self._wheel.add(0, work), lambda _: None)

    def _on_loaded(
        self, operation: DelayedShareFetch, partition: SharePartition, error: ErrorCode
    ) -> None:
        if error is not _NONE:
            operation.refuse(partition, error)
            self._remove(partition)
        self._wake(partition.key)

    def acknowledge(
        self,
        group_id: str,
        member_id: str,
        batches: Mapping[TopicIdPartition, Sequence[AcknowledgedBatch]],
        on_done: Callable[[dict[TopicIdPartition, AcknowledgeResult]], None],
    ) -> None:
        """Acknowledge records of several partitions, each on its own.

        Args:
            group_id: the group of the member.
            member_id: the member.
            batches: the acknowledged offsets of each partition.
            on_done: gets a result per partition when all are written, perhaps before this returns.
        """

        def on_collected(results: dict[TopicIdPartition, AcknowledgeResult]) -> None:
            self.counts.count_acknowledgements(results.values())
            failed = {where.topic for where, (error, _) in results.items() if error is not _NONE}
            for topic in failed:
                topics[topic].failed_share_acknowledge_requests += 1
            on_done(results)

        topics = self._replicas.metrics.topics
        for topic in {where.topic for where in batches}:
            topics[topic].share_acknowledge_requests += 1

        collected = _Collected(len(batches), on_collected)

        def acknowledge_each() -> Generator[None, None, None]:
            for where, acknowledged in batches.items():
                self.counts.count_records(acknowledged)
                partition = self._partitions.get(SharePartitionKey(group_id, where))
                done = partial(collected.add, where)
                if partition is None:
                    done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
                else:
                    partition.acknowledge(member_id, acknowledged, done)
                    self._wake(partition.key)
                yield

        self._run_in_slices(acknowledge_each())

    def end_session(self, key: ShareSessionKey) -> None:
        """End the session of a member and release its records."""
        session = self.sessions.remove(key)
        if session is not None:
            self.release(session)

    def call_later(self, delay_ms: float, call: Callable[[], None]) -> WheelEntry:
        """Make a call after a delay."""
        return self._wheel.add(delay_ms, call)

    def count_sent(self, results: ShareFetchResults) -> None:
        """Count the bytes of records that are sent to members."""
        topics = self._replicas.metrics.topics
        for where, result in results.items():
            if result.acquired:
                topics[where.topic].bytes_out += len(result.records)

    def release(self, session: ShareSession) -> None:
        """Release the records of a member whose session has ended."""
        group_id, member_id = session.key
        for each in session.partitions.values():
            partition = self._partitions.get(SharePartitionKey(group_id, each.where))
            if partition is not None:
                partition.release(member_id)
                self._wake(partition.key)


class _Collected:
    """Collects the results of several partitions."""

    __slots__ = ("_missing", "_on_done", "_results")

    def __init__(
        self, count: int, on_done: Callable[[dict[TopicIdPartition, AcknowledgeResult]], None]
    ) -> None:
        self._missing = count
        self._on_done = on_done
        self._results: dict[TopicIdPartition, AcknowledgeResult] = {}
        if not count:
            on_done(self._results)

    def add(self, where: TopicIdPartition, error: ErrorCode, message: str | None) -> None:
        """Add the result of a partition. The last one completes the collection."""
        if message is None and error is not _NONE:
            message = error.message
        self._results[where] = (error, message)
        self._missing -= 1
        if not self._missing:
            self._on_done(self._results)


def _must_stay(partition: SharePartition) -> bool:
    """Whether states or dead letters of a share partition are being written."""
    return partition.is_archiving or partition.is_writing
