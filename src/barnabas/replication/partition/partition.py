"""A replica of a partition on this broker (Kafka's cluster.Partition).

`Partition` holds what every role shares, changes the role according to the metadata, and reads from
the log. The operations of a leader are in `LeaderRole`, those of a follower in `FollowerRole`. They
do not check pending operations. Their methods return which watermarks moved, and the replica
manager checks the pending operations after the change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.partition.leader_role import LeaderRole
from barnabas.replication.partition.partition_roles import (
    NO_LEADER,
    FollowerRole,
    OfflineRole,
    PartitionState,
)
from barnabas.replication.partition.results import (
    UNKNOWN_EPOCH,
    UNKNOWN_OFFSET,
    EpochEndOffset,
    FetchResult,
    failed_fetch,
)
from barnabas.storage.errors import (
    DamagedLogError,
    OffsetInRemoteTierError,
    OffsetOutOfRangeError,
)
from barnabas.storage.results import FetchIsolation, LogOffsetMetadata, ReadResult

if TYPE_CHECKING:
    from barnabas.metadata.partition_registration import PartitionRegistration
    from barnabas.replication.partition.fetch_params import FetchParams, FetchPartitionData
    from barnabas.replication.partition.partition_roles import PartitionSettings
    from barnabas.storage.log.log import Log
    from barnabas.storage.topic_partition import TopicPartition

# Attribute lookup on the enum class costs 100 ns, as much as a function call.
_NONE = ErrorCode.NONE


class Partition:
    """A replica of a partition. Its role changes only by metadata."""

    __slots__ = ("_role", "_state", "leader")

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        log: Log,
        settings: PartitionSettings,
    ) -> None:
        self._state = PartitionState(topic_partition, topic_id, log, settings)
        # Moved by `_take_role`. Its leader epoch never decreases.
        self._role: LeaderRole | FollowerRole | OfflineRole
        # The role if this broker leads, otherwise None. Moved together with the role.
        self.leader: LeaderRole | None
        self._take_role(OfflineRole())

    @property
    def follower(self) -> FollowerRole | None:
        """The role of a follower, or None if this broker leads or the partition has no leader."""
        role = self._role
        return role if isinstance(role, FollowerRole) else None

    @property
    def topic_partition(self) -> TopicPartition:
        """The name of the partition."""
        return self._state.topic_partition

    @property
    def topic_id(self) -> bytes:
        """The id of the topic."""
        return self._state.topic_id

    @property
    def log(self) -> Log:
        """The log of this replica."""
        return self._state.log

    @property
    def leader_id(self) -> int:
        """Broker id of the leader, or -1."""
        return self._role.leader_id

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the role. -1 before the first metadata."""
        return self._role.leader_epoch

    @property
    def partition_epoch(self) -> int:
        """The epoch of the registration. -1 before the first metadata."""
        return self._state.partition_epoch

    @property
    def replicas(self) -> tuple[int, ...]:
        """Broker ids of the assigned replicas."""
        return self._state.replicas

    @property
    def isr(self) -> tuple[int, ...]:
        """The confirmed ISR on the leader; empty on other replicas."""
        leader = self.leader
        return () if leader is None else leader.isr_state.isr

    @property
    def is_leader(self) -> bool:
        """Whether this broker is the leader."""
        return self.leader is not None

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment of the partition is in progress."""
        return bool(self._state.adding_replicas or self._state.removing_replicas)

    @property
    def is_syncing(self) -> bool:
        """Whether a sync for flush.messages runs off the event loop."""
        return self._state.is_syncing

    @is_syncing.setter
    def is_syncing(self, value: bool) -> None:
        self._state.is_syncing = value

    @property
    def initial_fetch_offset(self) -> int:
        """The offset of the first fetch: the log end, or the high watermark if there is no epoch.

        Without a leader epoch, records above the high watermark may diverge.
        """
        log = self._state.log
        return log.high_watermark if log.latest_epoch is None else log.log_end_offset

    # Transitions.

    def become_leader(self, registration: PartitionRegistration) -> bool:
        """Become the leader, or remain it with a changed assignment or ISR.

        Returns:
            Whether the high watermark moved. An outdated registration changes nothing.
        """
        if registration.partition_epoch < self._state.partition_epoch:
            return False
        self._check_transition(registration)
        node_id, leader_id = self._state.settings.node_id, registration.leader
        assert leader_id == node_id, f"{self.topic_partition}: leader={leader_id} node={node_id}"
        self._state.assign(registration)
        leader = self.leader
        if leader is None or registration.leader_epoch > leader.leader_epoch:
            leader = LeaderRole(self._state, registration, leader)
            self._take_role(leader)
        else:
            leader.on_registration(registration)
        return leader.maybe_increment_high_watermark()

    def become_follower(self, registration: PartitionRegistration) -> bool:
        """Become a follower, or a replica of a partition without a leader.

        Returns:
            Whether a new leader epoch started. An outdated registration changes nothing.
        """
        if registration.partition_epoch < self._state.partition_epoch:
            return False
        self._check_transition(registration)
        leader_id, leader_epoch = registration.leader, registration.leader_epoch
        is_new_epoch = leader_epoch > self._role.leader_epoch
        self._state.assign(registration)
        if leader_id == NO_LEADER:
            self._take_role(OfflineRole(leader_epoch))
        else:
            self._take_role(FollowerRole(self._state, leader_id, leader_epoch))
        return is_new_epoch

    def _take_role(self, role: LeaderRole | FollowerRole | OfflineRole) -> None:
        self._role = role
        self.leader = role if isinstance(role, LeaderRole) else None

    def _check_transition(self, registration: PartitionRegistration) -> None:
        known, new = self._role.leader_epoch, registration.leader_epoch
        assert new >= known, f"{self.topic_partition}: leader_epoch={known} new={new}"

    def on_moved(self, log: Log) -> None:
        """Replace the log with its copy in another directory.

        All records of the copy are synced.
        """
        self._state.log = log
        leader = self.leader
        if leader is not None:
            leader.on_moved()

    # Access.

    def check_access(self, current_leader_epoch: int, only_leader: bool) -> ErrorCode:
        """Return NONE, or the error if the client may not use this replica (KIP-320)."""
        leader_epoch = self._role.leader_epoch
        if current_leader_epoch >= 0 and current_leader_epoch != leader_epoch:
            if current_leader_epoch < leader_epoch:
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
            max_bytes: the partition's limit, or the remaining bytes of the response's limit if
                they are fewer.
            min_one_batch: return the first batch whole, even above the limit.

        Raises:
            StorageError: the disk failed.
        """
        if params.is_from_follower and self.has_nothing_for(params.replica_id, data):
            return self._read_at_end(params.replica_id)
        error = self.check_access(data.current_leader_epoch, params.fetch_only_leader)
        if error is _NONE and params.replica_id >= 0:
            error = self._check_replica(params.replica_id, data.current_leader_epoch)
        if error is not _NONE:
            return failed_fetch(error)
        log = self._state.log
        offsets = log.offsets
        # Take these values before the read. Otherwise a follower that reads to the log end would
        # seem to lag behind a concurrent append.
        result = FetchResult(
            _NONE, offsets.high_watermark, offsets.last_stable_offset, offsets.log_start_offset, b""
        )
        result.leader_log_end_offset = offsets.log_end_offset
        result.is_reassignment = params.replica_id in self._state.adding_replicas
        if data.last_fetched_epoch >= 0:
            error = self._note_divergence(data, result)
            if error is not _NONE:
                return failed_fetch(error)
            if result.diverging_epoch is not None:
                return result
            if params.replica_id < 0 and self.leader is not None:
                # Consumers send no such epoch. The client is the leader of a mirror.
                result.truncations = self.leader.truncations
        try:
            read = log.reader.read(data.fetch_offset, max_bytes, params.isolation, min_one_batch)
        except OffsetInRemoteTierError:
            return self._read_remotely(params, data, result, (max_bytes, min_one_batch))
        except OffsetOutOfRangeError:
            return failed_fetch(ErrorCode.OFFSET_OUT_OF_RANGE)
        result.position = read.position
        result.aborted_transactions = read.aborted_transactions
        # Return a truncated batch only to clients with a hard limit, which retry with a larger one.
        if params.has_hard_byte_limit or not read.first_batch_incomplete:
            result.records = read.records
        return result

    def _read_remotely(
        self,
        params: FetchParams,
        data: FetchPartitionData,
        result: FetchResult,
        limit: tuple[int, bool],
    ) -> FetchResult:
        """Complete the result of a fetch from an offset that only the remote tier has.

        A follower begins behind these offsets: it learns the log start offset with the error.
        """
        if params.isolation is FetchIsolation.LOG_END:
            result.error = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
            result.last_stable_offset = UNKNOWN_OFFSET
            return result
        remote = self._state.settings.remote
        if remote is None or not self._state.log.config.is_remote:
            return failed_fetch(ErrorCode.OFFSET_OUT_OF_RANGE)
        read = remote.read(self._state, data.fetch_offset, limit, params.isolation)
        if isinstance(read, ErrorCode):
            return failed_fetch(read)
        if isinstance(read, ReadResult):
            result.position = read.position
            result.records = read.records
            result.aborted_transactions = read.aborted_transactions
        else:
            result.remote = read
        return result

    def has_only_remotely(self, offset: int) -> bool:
        """Whether only the remote tier has the record at an offset from the log start on."""
        log = self._state.log
        return (
            offset < log.local_log_start_offset
            and log.config.is_remote
            and self._state.settings.remote is not None
        )

    def has_nothing_for(self, follower_id: int, data: FetchPartitionData) -> bool:
        """Whether the usual fetch of a follower finds no records, no error and no divergence.

        It may wait then. False means that `read` must decide.
        """
        log, leader = self._state.log, self.leader
        return (
            data.fetch_offset == log.offsets.log_end_offset
            and leader is not None
            and data.current_leader_epoch == leader.leader_epoch
            and data.last_fetched_epoch == log.leader_epochs.latest_epoch
            and follower_id in leader.remote_replicas
        )

    def _read_at_end(self, follower_id: int) -> FetchResult:
        """Return the result of a fetch for which `has_nothing_for` is true."""
        log = self._state.log
        offsets = log.offsets
        return FetchResult(
            _NONE,
            offsets.high_watermark,
            offsets.last_stable_offset,
            offsets.log_start_offset,
            b"",
            is_reassignment=follower_id in self._state.adding_replicas,
            position=log.reader.end_offset_metadata(),
            leader_log_end_offset=offsets.log_end_offset,
        )

    def _check_replica(self, broker_id: int, current_leader_epoch: int) -> ErrorCode:
        leader = self.leader
        if leader is not None and broker_id in leader.remote_replicas:
            return _NONE
        # A follower with a leader epoch may know of a reassignment before this leader does: it
        # retries. Without a leader epoch, the follower may not be a replica at all.
        if current_leader_epoch >= 0:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _note_divergence(self, data: FetchPartitionData, result: FetchResult) -> ErrorCode:
        """Set the diverging epoch if the follower's log diverges from this log (KIP-595)."""
        if not self.has_diverged(data):
            return _NONE
        end = self.end_of_epoch(data.last_fetched_epoch)
        if end.epoch == UNKNOWN_EPOCH or end.end_offset == UNKNOWN_OFFSET:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if data.fetch_offset < self._state.log.log_start_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        result.diverging_epoch = end
        return _NONE

    def has_diverged(self, data: FetchPartitionData) -> bool:
        """Whether the follower's log diverges from this log, or its last epoch is unknown here."""
        last_epoch, log = data.last_fetched_epoch, self._state.log
        if last_epoch == log.leader_epochs.latest_epoch:
            # The usual case. The log ends with this epoch.
            return log.offsets.log_end_offset < data.fetch_offset
        epoch, end_offset = log.end_offset_for_epoch(last_epoch)
        # An unknown epoch or offset is -1.
        return epoch != last_epoch or end_offset < data.fetch_offset

    def end_of_epoch(self, leader_epoch: int) -> EpochEndOffset:
        """Return the end offset of an epoch in this log, without access checks."""
        epoch, end_offset = self._state.log.end_offset_for_epoch(leader_epoch)
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
        log = self._state.log
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
