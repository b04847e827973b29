"""The state of a replica that leaders and followers share: leadership and reads.

Part of Kafka's cluster.Partition. `LeaderSide` and `FollowerSide` derive from it, and `Partition`
derives from both. These classes do not check waiting operations. Their methods return what moved,
and the replica manager checks waiting operations after the change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.partition.isr import IsrState
from barnabas.replication.partition.results import (
    UNKNOWN_EPOCH,
    UNKNOWN_OFFSET,
    EpochEndOffset,
    FetchResult,
    failed_fetch,
)
from barnabas.storage.errors import DamagedLogError, OffsetOutOfRangeError
from barnabas.storage.offset_metadata import LogOffsetMetadata
from barnabas.storage.read_result import FetchIsolation

if TYPE_CHECKING:
    from barnabas.replication.partition.fetch_params import FetchParams, FetchPartitionData
    from barnabas.replication.partition.partition_settings import PartitionSettings
    from barnabas.replication.partition.replica import Replica
    from barnabas.storage.log.log import Log
    from barnabas.storage.topic_partition import TopicPartition

NO_LEADER = -1
# Greater than every offset: no sync is required.
NOTHING_TO_SYNC = 0x7FFF_FFFF_FFFF_FFFF

# Attribute lookup on the enum class costs 100 ns, as much as a function call.
_NONE = ErrorCode.NONE


class PartitionReplica:
    """The leadership of a partition, and reads from its log."""

    __slots__ = (
        "_settings",
        "adding_replicas",
        "isr_state",
        "leader_epoch",
        "leader_epoch_start_offset",
        "leader_id",
        "leader_recovery_state",
        "log",
        "partition_epoch",
        "remote_replicas",
        "removing_replicas",
        "replicas",
        "sync_required_from",
        "syncing",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        log: Log,
        settings: PartitionSettings,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self._settings = settings
        # Broker id of the leader, or NO_LEADER. Only metadata changes it.
        self.leader_id = NO_LEADER
        # Leader epoch of the fields below; never decreases.
        self.leader_epoch = UNKNOWN_EPOCH
        # Increases with each change of the registration, including ISR changes; never decreases.
        self.partition_epoch = -1
        # This replica's log end offset at the start of this leader epoch. None on a follower.
        self.leader_epoch_start_offset: int | None = None
        self.replicas: tuple[int, ...] = ()
        self.adding_replicas: tuple[int, ...] = ()
        self.removing_replicas: tuple[int, ...] = ()
        self.leader_recovery_state = 0
        # Known on the leader only. Empty on a follower.
        self.isr_state = IsrState.committed(())
        # The other assigned replicas by broker id; empty on a follower.
        self.remote_replicas: dict[int, Replica] = {}
        # First offset that must be synced before it is acknowledged, for flush.messages.
        self.sync_required_from = NOTHING_TO_SYNC
        # Whether a sync is running off the event loop.
        self.syncing = False

    @property
    def is_leader(self) -> bool:
        """Whether this broker is the leader."""
        return self.leader_id == self._settings.node_id

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment of the partition is in progress."""
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def acknowledged_end_offset(self) -> int:
        """The log end offset, up to the first offset that flush.messages requires to be synced."""
        return min(self.log.log_end_offset, self.sync_required_from)

    # Access.

    def check_access(self, current_leader_epoch: int, only_leader: bool) -> ErrorCode:
        """Return NONE, or the error if the client may not use this replica (KIP-320)."""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if only_leader and not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return _NONE

    # Reading.

    def read(
        self, params: FetchParams, data: FetchPartitionData, max_bytes: int, min_one_batch: bool
    ) -> FetchResult:
        """Read for a follower or a consumer, without changing any state.

        Args:
            max_bytes: the smaller of the partition's limit and the rest of the response's limit.
            min_one_batch: return the first batch whole, even above the limit.

        Raises:
            StorageError: the disk failed.
        """
        error = self.check_access(data.current_leader_epoch, params.fetch_only_leader)
        if error is _NONE and params.replica_id >= 0:
            error = self._check_replica(params.replica_id, data.current_leader_epoch)
        if error is not _NONE:
            return failed_fetch(error)
        log = self.log
        # Take these values before the read. Otherwise a follower that reads to the log end would
        # seem to lag behind a concurrent append.
        result = FetchResult(
            _NONE, log.high_watermark, log.last_stable_offset, log.log_start_offset, b""
        )
        result.leader_log_end_offset = log.log_end_offset
        result.is_reassignment = params.replica_id in self.adding_replicas
        if data.last_fetched_epoch >= 0:
            error = self._note_divergence(data, result)
            if error is not _NONE:
                return failed_fetch(error)
            if result.diverging_epoch is not None:
                return result
        try:
            read = log.read(data.fetch_offset, max_bytes, params.isolation, min_one_batch)
        except OffsetOutOfRangeError:
            return failed_fetch(ErrorCode.OFFSET_OUT_OF_RANGE)
        result.position = read.position
        result.aborted_transactions = read.aborted_transactions
        # Return a truncated batch only to clients with a hard limit, which retry with a larger one.
        if params.has_hard_byte_limit or not read.first_batch_incomplete:
            result.records = read.records
        return result

    def _check_replica(self, broker_id: int, current_leader_epoch: int) -> ErrorCode:
        if broker_id in self.remote_replicas:
            return _NONE
        # A follower with a leader epoch may know of a reassignment before this leader does: it
        # retries. Without a leader epoch, the follower may not be a replica at all.
        if current_leader_epoch >= 0:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _note_divergence(self, data: FetchPartitionData, result: FetchResult) -> ErrorCode:
        """Set the diverging epoch if the follower's log diverges from this log (KIP-595)."""
        end = self.end_of_epoch(data.last_fetched_epoch)
        if end.epoch == UNKNOWN_EPOCH or end.end_offset == UNKNOWN_OFFSET:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if data.fetch_offset < self.log.log_start_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if end.epoch < data.last_fetched_epoch or end.end_offset < data.fetch_offset:
            result.diverging_epoch = end
        return _NONE

    def end_of_epoch(self, leader_epoch: int) -> EpochEndOffset:
        """Return the end offset of an epoch in this log, without access checks."""
        epoch, end_offset = self.log.end_offset_for_epoch(leader_epoch)
        return EpochEndOffset(epoch, end_offset)

    def epoch_end_offset(
        self, current_leader_epoch: int, leader_epoch: int, only_leader: bool
    ) -> EpochEndOffset:
        """Return the end offset of an epoch, or the error if the client has no access."""
        error = self.check_access(current_leader_epoch, only_leader)
        if error is not _NONE:
            return EpochEndOffset(UNKNOWN_EPOCH, UNKNOWN_OFFSET, error)
        return self.end_of_epoch(leader_epoch)

    def exposed_end(self, isolation: FetchIsolation) -> LogOffsetMetadata:
        """Return the end of the records that are visible at that isolation level.

        The file position is unknown if the log is damaged. A read then reports the damage.
        """
        log = self.log
        try:
            match isolation:
                case FetchIsolation.LOG_END:
                    return log.reader.end_offset_metadata()
                case FetchIsolation.HIGH_WATERMARK:
                    return log.reader.high_watermark_metadata()
                case FetchIsolation.TXN_COMMITTED:
                    return log.reader.last_stable_offset_metadata()
        except DamagedLogError:
            return LogOffsetMetadata(log.high_watermark)
