"""The leader's operations on its replica: appends, follower states, watermarks and the ISR.

Part of Kafka's cluster.Partition (KIP-497, KIP-903, KIP-966).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.partition.alter_partition import (
    OUTDATED,
    REFUSED,
    AlterPartitionProposal,
    AlterPartitionResult,
)
from barnabas.replication.partition.isr import IsrState
from barnabas.replication.partition.partition_replica import NOTHING_TO_SYNC, PartitionReplica
from barnabas.replication.partition.replica import NO_BROKER_EPOCH, Replica
from barnabas.replication.partition.results import UNKNOWN_EPOCH, UNKNOWN_OFFSET, FetchResult
from barnabas.storage.errors import StorageError

if TYPE_CHECKING:
    from barnabas.replication.partition.fetch_params import FetchParams, FetchPartitionData
    from barnabas.storage.append_info import AppendInfo, AppendOrigin
    from barnabas.storage.log.log import Log
    from barnabas.storage.validation.batch_inspection import InspectedRecords

ACKS_ALL = -1

# After this many repeated fetches of the same records, the leader verifies its own batch.
_REFUSALS_MAX = 3

# Attribute lookup on the enum class costs 100 ns, as much as a function call.
_NONE = ErrorCode.NONE


class FollowerUpdate(NamedTuple):
    """The consequences of a follower's fetch."""

    # Whether the high or low watermark moved. Then the caller checks waiting operations.
    moved: bool
    # The proposal to add the follower to the ISR, which the caller sends to the controller.
    proposal: AlterPartitionProposal | None
    # Whether the follower repeatedly fetches the same records: the leader's log may be damaged.
    is_suspicious: bool = False


class AnswerOutcome(NamedTuple):
    """The consequences of the controller's response to a proposal."""

    # Whether the high watermark moved. Then the caller checks waiting operations.
    moved: bool
    # Whether to send the same proposal again after a backoff.
    retry: bool


class LeaderSide(PartitionReplica):
    """The operations of a leader. On a follower, only `on_moved` has an effect."""

    __slots__ = ()

    # Appending.

    def append_as_leader(
        self,
        records: memoryview | InspectedRecords,
        origin: AppendOrigin,
        required_acks: int,
        now_ms: int,
    ) -> AppendInfo | ErrorCode:
        """Append records, and advance the high watermark if no follower limits it.

        Returns:
            The appended offsets, or NOT_LEADER_OR_FOLLOWER, or NOT_ENOUGH_REPLICAS for acks=all
            below min.insync.replicas.

        Raises:
            StorageError: the log rejects the records or cannot write them.
            InspectionNeededError: a client's records must be inspected first.
        """
        if self.leader_id != self._settings.node_id:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if required_acks == ACKS_ALL and self.is_under_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        info = self.log.append_as_leader(records, self.leader_epoch, origin, now_ms)
        if info.needs_flush and info.first_offset < self.sync_required_from:
            self.sync_required_from = info.first_offset
        self.maybe_increment_high_watermark()
        return info

    def on_moved(self, log: Log) -> None:
        """Replace the log with its copy in another directory.

        All records of the copy are synced.
        """
        self.log = log
        self.sync_required_from = NOTHING_TO_SYNC
        if self.is_leader:
            self.maybe_increment_high_watermark()

    def on_synced(self, end_offset: int) -> bool:
        """Handle a completed sync of all records below `end_offset`.

        Returns:
            Whether another sync is due because of later appends.
        """
        if self.sync_required_from == NOTHING_TO_SYNC or not self.is_leader:
            # Another broker is now the leader, and its log may differ from the synced records.
            return False
        is_behind = self.log.sync.is_due
        self.sync_required_from = end_offset if is_behind else NOTHING_TO_SYNC
        self.maybe_increment_high_watermark()
        return is_behind

    def delete_records(self, offset: int) -> int | ErrorCode:
        """Advance the log start offset to `offset`, or to the high watermark for -1.

        Returns:
            The resolved offset, or an error.
        """
        log = self.log
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if log.config.is_compacted and not log.config.deletes:
            return ErrorCode.POLICY_VIOLATION
        wanted = log.high_watermark if offset == UNKNOWN_OFFSET else offset
        if not 0 <= wanted <= log.high_watermark:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        try:
            log.maybe_increment_log_start_offset(wanted, "client delete records request")
        except StorageError as error:
            return error.error_code
        return wanted

    # Follower states, and the high and low watermarks.

    def update_follower_state(
        self,
        params: FetchParams,
        data: FetchPartitionData,
        result: FetchResult,
        low_watermark_awaited: bool,
    ) -> FollowerUpdate | ErrorCode:
        """Update the follower's state from its fetch, then the ISR and the watermarks.

        Args:
            params: the fetch request as a whole.
            data: the request's parameters for this partition.
            result: the result of the read for this fetch.
            low_watermark_awaited: whether a DeleteRecords request is pending. Only then the low
                watermark is computed.
        """
        replica = self.remote_replicas[params.replica_id]
        known_epoch = self._settings.brokers.broker_epoch(params.replica_id)
        if known_epoch is not None and NO_BROKER_EPOCH < params.replica_epoch < known_epoch:
            # The fetch was sent before that broker's restart and arrived late.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert result.position is not None
        old_low_watermark = self.low_watermark if low_watermark_awaited else UNKNOWN_OFFSET
        old_end_offset = replica.log_end_offset
        replica.update(
            result.position,
            data.log_start_offset,
            self._settings.clock.monotonic_ms(),
            result.leader_log_end_offset,
            params.replica_epoch,
        )
        moved = low_watermark_awaited and self.low_watermark > old_low_watermark
        proposal = self.maybe_expand_isr(replica)
        if replica.log_end_offset != old_end_offset:
            moved = self.maybe_increment_high_watermark() or moved
        elif len(result.records):
            replica.refusals += 1
            if replica.refusals == _REFUSALS_MAX:
                replica.refusals = 0
                return FollowerUpdate(moved, proposal, is_suspicious=True)
            return FollowerUpdate(moved, proposal)
        replica.refusals = 0
        return FollowerUpdate(moved, proposal)

    def is_idle_for(
        self, replica_id: int, asked: FetchPartitionData, reported_high_watermark: int
    ) -> bool:
        """Whether a fetch of that follower has no effect on either side until a change.

        This holds if the follower is in the ISR, has the whole log, and knows the high watermark.
        """
        log = self.log
        replica = self.remote_replicas.get(replica_id)
        return (
            replica is not None
            and asked.fetch_offset == replica.log_end_offset == log.log_end_offset
            and reported_high_watermark == log.high_watermark
            and asked.log_start_offset == replica.log_start_offset
            and asked.current_leader_epoch in (UNKNOWN_EPOCH, self.leader_epoch)
            and replica_id in self.isr_state.isr
            and self.is_leader
        )

    @property
    def effective_min_isr(self) -> int:
        """min.insync.replicas, limited to the number of replicas."""
        return min(self.log.config.min_insync_replicas, len(self.remote_replicas) + 1)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether the ISR is smaller than acks=all requires."""
        return len(self.isr_state.isr) < self.effective_min_isr

    @property
    def is_at_min_isr(self) -> bool:
        """Whether the ISR has exactly the size that acks=all requires."""
        return self.is_leader and len(self.isr_state.isr) == self.effective_min_isr

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is not in the ISR."""
        return self.is_leader and len(self.isr_state.isr) < len(self.replicas)

    def maybe_increment_high_watermark(self) -> bool:
        """Advance the high watermark to the smallest log end of the maximal ISR.

        A caught-up replica that is eligible for the ISR also limits the high watermark. Otherwise
        the high watermark could stay ahead of this replica permanently. Below min.insync.replicas
        no record is committed (KIP-966).

        Returns:
            Whether it moved. The high watermark never decreases.
        """
        log = self.log
        candidate = log.log_end_offset
        if candidate > self.sync_required_from:
            candidate = self.sync_required_from
        if self.remote_replicas:
            candidate = self._smallest_end(candidate)
        if candidate <= log.high_watermark:
            return False
        return log.update_high_watermark(candidate)

    def _smallest_end(self, own_end: int) -> int:
        if self.is_under_min_isr:
            return UNKNOWN_OFFSET
        candidate = own_end
        now_ms = self._settings.clock.monotonic_ms()
        for replica in self.remote_replicas.values():
            if replica.log_end_offset < candidate and (
                replica.broker_id in self.isr_state.maximal_isr
                or (self._is_caught_up(replica, now_ms) and self._is_isr_eligible(replica))
            ):
                candidate = replica.log_end_offset
        return candidate

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of the live replicas."""
        brokers = self._settings.brokers
        starts = [
            replica.log_start_offset
            for replica in self.remote_replicas.values()
            if brokers.is_alive(replica.broker_id)
        ]
        return min([self.log.log_start_offset, *starts])

    def check_enough_replicas(self, required_offset: int) -> ErrorCode | None:
        """Return whether acks=all is fulfilled up to `required_offset` (exclusive).

        Returns:
            None: not yet. NONE: yes. NOT_LEADER_OR_FOLLOWER: this broker is not the leader.
            NOT_ENOUGH_REPLICAS_AFTER_APPEND: yes, but the ISR is below min.insync.replicas.
        """
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log.high_watermark < required_offset:
            return None
        if len(self.isr_state.maximal_isr) < self.effective_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return _NONE

    def readable_followers(self, offset: int) -> list[Replica]:
        """Return the ISR followers whose log contains `offset` (KIP-392)."""
        return [
            replica
            for replica in self.remote_replicas.values()
            if replica.broker_id in self.isr_state.isr
            and replica.log_start_offset <= offset <= replica.log_end_offset
        ]

    # The ISR.

    def maybe_expand_isr(self, replica: Replica) -> AlterPartitionProposal | None:
        """Propose to add `replica` to the ISR if it is eligible and has all committed records."""
        if (
            self.isr_state.is_in_flight
            or replica.broker_id in self.isr_state.isr
            or not self._has_all_committed(replica)
            or not self._is_isr_eligible(replica)
        ):
            return None
        self.isr_state = self.isr_state.expanded(replica.broker_id)
        return self._proposal()

    def maybe_shrink_isr(self) -> AlterPartitionProposal | None:
        """Propose to remove replicas that lag for longer than replica.lag.time.max.ms."""
        if not self.is_leader or self.isr_state.is_in_flight:
            return None
        now_ms = self._settings.clock.monotonic_ms()
        lagging = {
            replica.broker_id
            for replica in self.remote_replicas.values()
            if replica.broker_id in self.isr_state.isr and not self._is_caught_up(replica, now_ms)
        }
        if not lagging:
            return None
        self.isr_state = self.isr_state.shrunk(lagging)
        return self._proposal()

    def is_waiting_for(self, proposal: AlterPartitionProposal) -> bool:
        """Whether `proposal` is in flight."""
        return (
            self.is_leader
            and self.isr_state.is_in_flight
            and proposal.partition_epoch == self.partition_epoch
            and proposal.leader_epoch == self.leader_epoch
        )

    def on_alter_partition_result(
        self, proposal: AlterPartitionProposal, answer: AlterPartitionResult
    ) -> AnswerOutcome:
        """Apply the controller's response. Ignore it if its proposal is no longer in flight."""
        if not self.is_waiting_for(proposal):
            return AnswerOutcome(moved=False, retry=False)
        if answer.error in REFUSED:
            self.isr_state = self.isr_state.withdrawn()
            return AnswerOutcome(moved=self.maybe_increment_high_watermark(), retry=False)
        if answer.error in OUTDATED:
            return AnswerOutcome(moved=False, retry=False)
        if answer.error is not _NONE:
            return AnswerOutcome(moved=False, retry=True)
        if answer.leader_epoch > self.leader_epoch or answer.partition_epoch < self.partition_epoch:
            return AnswerOutcome(moved=False, retry=False)
        self.isr_state = IsrState.committed(answer.isr)
        self.partition_epoch = answer.partition_epoch
        self.leader_recovery_state = answer.leader_recovery_state
        return AnswerOutcome(moved=self.maybe_increment_high_watermark(), retry=False)

    def _proposal(self) -> AlterPartitionProposal:
        proposed = self.isr_state.proposed_isr
        assert proposed is not None
        return AlterPartitionProposal(
            self.topic_id,
            self.topic_partition,
            self.leader_epoch,
            self.partition_epoch,
            tuple((each, self._known_epoch(each)) for each in proposed),
            self.leader_recovery_state,
        )

    def _known_epoch(self, broker_id: int) -> int:
        """Return the broker epoch of a replica's last fetch, or -1, which the controller skips."""
        replica = self.remote_replicas.get(broker_id)
        epoch = (
            self._settings.brokers.broker_epoch(broker_id)
            if replica is None
            else replica.broker_epoch
        )
        return NO_BROKER_EPOCH if epoch is None else epoch

    def _has_all_committed(self, replica: Replica) -> bool:
        end, start = replica.log_end_offset, self.leader_epoch_start_offset
        return start is not None and end >= start and end >= self.log.high_watermark

    def _is_isr_eligible(self, replica: Replica) -> bool:
        brokers = self._settings.brokers
        if not brokers.is_isr_eligible(replica.broker_id):
            return False
        # Brokers without KIP-903 send epoch -1, which cannot be checked.
        return replica.broker_epoch == NO_BROKER_EPOCH or (
            replica.broker_epoch is not None
            and replica.broker_epoch == brokers.broker_epoch(replica.broker_id)
        )

    def _is_caught_up(self, replica: Replica, now_ms: float) -> bool:
        limit_ms = self._settings.replica_lag_time_max_ms
        return replica.is_caught_up(self.log.log_end_offset, now_ms, limit_ms)
