"""A replica of a partition as far as both of its sides share it: who leads, what may be read.

Part of Kafka's cluster.Partition; `LeaderSide` and `FollowerSide` derive from it, and `Partition`
from both. Nothing in any of them wakes anybody: methods return what moved, and the replica manager
wakes those who wait, after the change and never in the midst of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.isr import IsrState
from barnabas.replication.results import (
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
    from barnabas.replication.fetch_params import FetchParams, FetchPartitionData
    from barnabas.replication.partition_settings import PartitionSettings
    from barnabas.replication.replica import Replica
    from barnabas.storage.log import Log
    from barnabas.storage.topic_partition import TopicPartition

NO_LEADER = -1
# Above every offset: nothing waits for a sync.
NOTHING_TO_SYNC = 0x7FFF_FFFF_FFFF_FFFF

# Looking a member up in its enum costs 100 ns, as much as a call.
_NONE = ErrorCode.NONE


class PartitionReplica:
    """What is known of a partition's leadership, and reading from its log."""

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
        # Broker id of the leader; NO_LEADER if there is none. Moved by metadata only.
        self.leader_id = NO_LEADER
        # Of the leadership that the fields below describe; never goes back.
        self.leader_epoch = UNKNOWN_EPOCH
        # Goes up with each change of the registration, ISR changes too; never goes back.
        self.partition_epoch = -1
        # Our log end when this leadership began; None on a follower.
        self.leader_epoch_start_offset: int | None = None
        self.replicas: tuple[int, ...] = ()
        self.adding_replicas: tuple[int, ...] = ()
        self.removing_replicas: tuple[int, ...] = ()
        self.leader_recovery_state = 0
        # Known on the leader only; empty on a follower.
        self.isr_state = IsrState.committed(())
        # The other assigned replicas by broker id; empty on a follower.
        self.remote_replicas: dict[int, Replica] = {}
        # With flush.messages: first offset that must be synced before it counts or is acknowledged.
        self.sync_required_from = NOTHING_TO_SYNC
        # A sync is under way off the loop.
        self.syncing = False

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads."""
        return self.leader_id == self._settings.node_id

    @property
    def is_reassigning(self) -> bool:
        """Whether its replicas are being changed."""
        return bool(self.adding_replicas or self.removing_replicas)

    @property
    def acknowledged_end_offset(self) -> int:
        """Our own log end as far as it counts: below what flush.messages wants synced first."""
        return min(self.log.log_end_offset, self.sync_required_from)

    # Access.

    def check_access(self, current_leader_epoch: int, only_leader: bool) -> ErrorCode:
        """NONE, or why the asker may not use this replica (KIP-320)."""
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
        """Read for a follower or a consumer; moves nothing.

        Args:
            max_bytes: the smaller of the partition's and the rest of the answer's limit.
            min_one_batch: the first batch is whole even above the limit.

        Raises:
            StorageError: the disk failed.
        """
        error = self.check_access(data.current_leader_epoch, params.fetch_only_leader)
        if error is _NONE and params.replica_id >= 0:
            error = self._check_replica(params.replica_id, data.current_leader_epoch)
        if error is not _NONE:
            return failed_fetch(error)
        log = self.log
        # All noted before the read: taken afterwards, a follower that read to the end would seem
        # behind by what was appended meanwhile.
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
        # A cut batch is only for those whose limit is a hard one: they ask again with a larger one.
        if params.has_hard_byte_limit or not read.first_batch_incomplete:
            result.records = read.records
        return result

    def _check_replica(self, broker_id: int, current_leader_epoch: int) -> ErrorCode:
        if broker_id in self.remote_replicas:
            return _NONE
        # A follower that knows a reassignment before us waits; one that does not name an epoch may
        # be anything.
        if current_leader_epoch >= 0:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _note_divergence(self, data: FetchPartitionData, result: FetchResult) -> ErrorCode:
        """Set the diverging epoch if the asker's log is not a part of ours (KIP-595)."""
        end = self.end_of_epoch(data.last_fetched_epoch)
        if end.epoch == UNKNOWN_EPOCH or end.end_offset == UNKNOWN_OFFSET:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if data.fetch_offset < self.log.log_start_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if end.epoch < data.last_fetched_epoch or end.end_offset < data.fetch_offset:
            result.diverging_epoch = end
        return _NONE

    def end_of_epoch(self, leader_epoch: int) -> EpochEndOffset:
        """Where an epoch ends in our log, without any check."""
        epoch, end_offset = self.log.end_offset_for_epoch(leader_epoch)
        return EpochEndOffset(epoch, end_offset)

    def epoch_end_offset(
        self, current_leader_epoch: int, leader_epoch: int, only_leader: bool
    ) -> EpochEndOffset:
        """Where an epoch ends, or why the asker may not know."""
        error = self.check_access(current_leader_epoch, only_leader)
        if error is not _NONE:
            return EpochEndOffset(UNKNOWN_EPOCH, UNKNOWN_OFFSET, error)
        return self.end_of_epoch(leader_epoch)

    def exposed_end(self, isolation: FetchIsolation) -> LogOffsetMetadata:
        """Up to where a fetch of that isolation may see, and where that lies in the file.

        The place is unknown where the log is damaged: a read says so.
        """
        log = self.log
        try:
            match isolation:
                case FetchIsolation.LOG_END:
                    return log.end_offset_metadata()
                case FetchIsolation.HIGH_WATERMARK:
                    return log.high_watermark_metadata()
                case FetchIsolation.TXN_COMMITTED:
                    return log.last_stable_offset_metadata()
        except DamagedLogError:
            return LogOffsetMetadata(log.high_watermark)
