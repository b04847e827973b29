"""The role of a leader: appends, states of the followers, watermarks and the ISR.

Part of Kafka's cluster.Partition (KIP-497, KIP-903, KIP-966).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.metadata.partition_registration import RECOVERED
from barnabas.protocol.errors import ErrorCode
from barnabas.replication.partition.isr import (
    OUTDATED,
    REFUSED,
    AlterPartitionProposal,
    AlterPartitionResult,
    IsrState,
)
from barnabas.replication.partition.replica import NO_BROKER_EPOCH, Replica
from barnabas.replication.partition.results import UNKNOWN_EPOCH, UNKNOWN_OFFSET, FetchResult
from barnabas.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.metadata.partition_registration import PartitionRegistration
    from barnabas.replication.partition.fetch_params import FetchParams, FetchPartitionData
    from barnabas.replication.partition.partition_roles import PartitionState
    from barnabas.storage.log.batch_inspection import InspectedRecords, JoinedBatch
    from barnabas.storage.results import AppendInfo, AppendOrigin

ACKS_ALL = -1
# Greater than every offset: no sync is required.
NOTHING_TO_SYNC = 0x7FFF_FFFF_FFFF_FFFF

# After this many repeated fetches of the same records, the leader verifies its own batch.
_REFUSALS_MAX = 3

# Attribute lookup on the enum class costs 100 ns, as much as a function call.
_NONE = ErrorCode.NONE


class FollowerUpdate(NamedTuple):
    """The consequences of a follower's fetch."""

    # Whether the high or low watermark moved. Then the caller checks pending operations.
    moved: bool
    # The proposal to add the follower to the ISR, which the caller sends to the controller.
    proposal: AlterPartitionProposal | None
    # Whether the follower repeatedly fetches the same records: the leader's log may be damaged.
    is_suspicious: bool = False


class AnswerOutcome(NamedTuple):
    """The consequences of the controller's response to a proposal."""

    # Whether the high watermark moved. Then the caller checks pending operations.
    moved: bool
    # Whether to send the same proposal again after a backoff.
    retry: bool


class LeaderRole:
    """This broker leads the partition in one leader epoch. Each epoch has a new object."""

    __slots__ = (
        "_committed_end",
        "_state",
        "awaiting_truncation",
        "isr_state",
        "leader_epoch",
        "leader_epoch_start_offset",
        "leader_id",
        "remote_replicas",
        "sync_required_from",
        "truncations",
    )

    def __init__(
        self,
        state: PartitionState,
        registration: PartitionRegistration,
        previous: LeaderRole | None,
    ) -> None:
        """Begin a leader epoch.

        Args:
            state: the shared state, already with the assignment of `registration`.
            registration: the metadata that names this broker as the leader.
            previous: the role of this broker in an earlier leader epoch, if it led until now. Its
                knowledge of the followers is kept.
        """
        self._state = state
        # Broker id of the leader: this broker. Never changes.
        self.leader_id = registration.leader
        # The leader epoch. Never changes.
        self.leader_epoch = registration.leader_epoch
        # This replica's log end offset at the start of the epoch. Only `on_truncated` lowers it.
        start = self.leader_epoch_start_offset = state.log.log_end_offset
        # The high watermark at its last move in this epoch. Only `on_truncated` lowers it: each
        # move and `on_moved` check that the log's high watermark has not gone below it.
        self._committed_end = state.log.high_watermark
        # Broker ids of followers that have not fetched since `on_truncated`. They may have records
        # of this epoch that this log does not have any more.
        self.awaiting_truncation: set[int] = set()
        # Number of calls of `on_truncated`. Replaced records have the same leader epoch, so mirrors
        # of this log in other clusters compare their logs with it when the number changes.
        self.truncations = 0
        # First offset that must be synced before it is acknowledged, for flush.messages;
        # NOTHING_TO_SYNC if there is none. Appends lower it to their first offset, `on_synced`
        # raises it.
        self.sync_required_from: int = (
            NOTHING_TO_SYNC if previous is None else previous.sync_required_from
        )
        # The ISR that the controller confirmed, and the change in flight. Moved by metadata, by
        # proposals and by the responses to them. Contains this broker.
        self.isr_state = IsrState.committed(())
        # The other assigned replicas by broker id. Moved by metadata.
        self.remote_replicas: dict[int, Replica] = (
            {} if previous is None else previous.remote_replicas
        )
        self.on_registration(registration)
        # Announce the epoch before its first append. A follower may have records of a later epoch
        # than any in this log, and needs the epoch to find its truncation offset (KIP-279).
        state.log.leader_epochs.announce(self.leader_epoch, start)
        now_ms = state.settings.clock.monotonic_ms()
        for replica in self.remote_replicas.values():
            in_isr = replica.broker_id in self.isr_state.isr
            replica.reset(now_ms, start, previous is None, in_isr)

    def on_registration(self, registration: PartitionRegistration) -> None:
        """Adopt the ISR and the replicas of a registration in this leader epoch."""
        leader, isr, replicas = self.leader_id, registration.isr, registration.replicas
        assert leader in isr, f"LeaderInIsr: leader={leader} isr={isr}"
        assert set(isr) <= set(replicas), f"IsrSubsetOfReplicas: isr={isr} replicas={replicas}"
        # After an unclean election, opening the log has already done the recovery. The next
        # proposal reports the leader as recovered, as in Kafka.
        self._state.leader_recovery_state = RECOVERED
        self.isr_state = IsrState.committed(isr)
        kept = self.remote_replicas
        self.remote_replicas = {
            each: kept.get(each) or Replica(each) for each in replicas if each != leader
        }
        self.awaiting_truncation &= self.remote_replicas.keys()

    # Appending.

    def append(
        self,
        records: memoryview | InspectedRecords,
        origin: AppendOrigin,
        required_acks: int,
        now_ms: int,
    ) -> AppendInfo | ErrorCode:
        """Append records, and advance the high watermark if no follower limits it.

        Returns:
            The appended offsets, or NOT_ENOUGH_REPLICAS for acks=all below min.insync.replicas.

        Raises:
            StorageError: the log rejects the records or cannot write them.
            InspectionNeededError: a client's records must be inspected first.
        """
        if required_acks == ACKS_ALL and self.is_under_min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        log = self._state.log
        info = log.appender.append_as_leader(records, self.leader_epoch, origin, now_ms)
        if info.needs_flush and info.first_offset < self.sync_required_from:
            self.sync_required_from = info.first_offset
        info.moved_high_watermark = self.maybe_increment_high_watermark()
        return info

    def append_jointly(
        self, joined: Sequence[JoinedBatch], now_ms: int
    ) -> list[AppendInfo | StorageError]:
        """Append the batches of several requests of clients, as `append` does with one of them.

        The last appended offsets report whether the high watermark moved.

        Returns:
            The appended offsets, or the error, for each request.
        """
        outcomes = self._state.log.appender.append_jointly(joined, self.leader_epoch, now_ms)
        last: AppendInfo | None = None
        for info in outcomes:
            if isinstance(info, StorageError):
                continue
            last = info
            if info.needs_flush and info.first_offset < self.sync_required_from:
                self.sync_required_from = info.first_offset
        if last is not None:
            last.moved_high_watermark = self.maybe_increment_high_watermark()
        return outcomes

    def must_wait(self, required_acks: int, info: AppendInfo) -> bool:
        """Whether the acknowledgement of an append must wait for the ISR or for a sync."""
        if required_acks == ACKS_ALL:
            return self._state.log.offsets.high_watermark <= info.last_offset
        return required_acks != 0 and self.sync_required_from <= info.last_offset

    def on_moved(self) -> None:
        """Handle the replacement of the log by its copy, all of whose records are synced."""
        self.sync_required_from = NOTHING_TO_SYNC
        known = self._state.log.high_watermark
        assert known >= self._committed_end, (
            f"HighWatermarkMonotonic: partition={self._state.topic_partition} "
            f"leader_epoch={self.leader_epoch} last={self._committed_end} copy={known}"
        )
        self.maybe_increment_high_watermark()

    def on_truncated(self) -> None:
        """Handle the truncation of the log in this epoch, which only mirrors do.

        The followers truncate too: they find the new log end by their next fetch. Until all of them
        have fetched, the caller appends nothing. Otherwise a follower that was offline, or that
        becomes the leader, could have other records at the same offsets of the same epoch.
        """
        self.truncations += 1
        log = self._state.log
        end = log.log_end_offset
        self._committed_end = min(self._committed_end, log.high_watermark)
        self.leader_epoch_start_offset = min(self.leader_epoch_start_offset, end)
        log.leader_epochs.announce(self.leader_epoch, end)
        self.awaiting_truncation = set(self.remote_replicas)
        for replica in self.remote_replicas.values():
            replica.on_leader_truncated()

    def on_adopted(self) -> None:
        """Handle that the log, which was empty, has started behind records of the remote tier.

        The high watermark is the log end: the store has all records below it. The followers find
        the new start by their next fetch.
        """
        log = self._state.log
        end = log.log_end_offset
        assert log.high_watermark == end, f"high_watermark={log.high_watermark} end={end}"
        self.leader_epoch_start_offset = end
        self._committed_end = end
        latest = log.leader_epochs.latest_epoch
        if latest is None or latest < self.leader_epoch:
            log.leader_epochs.announce(self.leader_epoch, end)

    def on_synced(self, end_offset: int) -> bool:
        """Handle a completed sync of all records below `end_offset`.

        Returns:
            Whether another sync is due because of later appends.
        """
        if self.sync_required_from == NOTHING_TO_SYNC:
            return False
        is_behind = self._state.log.sync.is_due
        self.sync_required_from = end_offset if is_behind else NOTHING_TO_SYNC
        self.maybe_increment_high_watermark()
        return is_behind

    def delete_records(self, offset: int) -> int | ErrorCode:
        """Advance the log start offset to `offset`, or to the high watermark for -1.

        Returns:
            The resolved offset, or an error.
        """
        log = self._state.log
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
        known_epoch = self._state.settings.brokers.broker_epoch(params.replica_id)
        if known_epoch is not None and NO_BROKER_EPOCH < params.replica_epoch < known_epoch:
            # The fetch was sent before that broker's restart and arrived late.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert result.position is not None, f"{self._state.topic_partition}: nothing was read"
        if self.awaiting_truncation:
            # The follower's log ends within this log, which has not grown since its truncation.
            self.awaiting_truncation.discard(params.replica_id)
        old_low_watermark = self.low_watermark if low_watermark_awaited else UNKNOWN_OFFSET
        old_end_offset = replica.log_end_offset
        replica.update(
            result.position,
            data.log_start_offset,
            self._state.settings.clock.monotonic_ms(),
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
        self, replica_id: int, requested: FetchPartitionData, reported_high_watermark: int
    ) -> bool:
        """Whether a fetch of that follower has no effect on either side until a change.

        This holds if the follower is in the ISR, has the whole log, and knows the high watermark.
        """
        log = self._state.log
        replica = self.remote_replicas.get(replica_id)
        return (
            replica is not None
            and requested.fetch_offset == replica.log_end_offset == log.log_end_offset
            and reported_high_watermark == log.high_watermark
            and requested.log_start_offset == replica.log_start_offset
            and requested.current_leader_epoch in (UNKNOWN_EPOCH, self.leader_epoch)
            and replica_id in self.isr_state.isr
        )

    @property
    def acknowledged_end_offset(self) -> int:
        """The log end offset, up to the first offset that flush.messages requires to be synced."""
        return min(self._state.log.log_end_offset, self.sync_required_from)

    @property
    def effective_min_isr(self) -> int:
        """min.insync.replicas, limited to the number of replicas."""
        return min(self._state.log.config.min_insync_replicas, len(self.remote_replicas) + 1)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether the ISR is smaller than acks=all requires."""
        size = len(self.isr_state.isr)
        # The full ISR is checked first, because it is the usual case.
        return size <= len(self.remote_replicas) and size < self.effective_min_isr

    @property
    def is_at_min_isr(self) -> bool:
        """Whether the ISR has exactly the size that acks=all requires."""
        return len(self.isr_state.isr) == self.effective_min_isr

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is not in the ISR."""
        return len(self.isr_state.isr) < len(self._state.replicas)

    def maybe_increment_high_watermark(self) -> bool:
        """Advance the high watermark to the smallest log end of the maximal ISR.

        A caught-up replica that is eligible for the ISR also limits the high watermark. Otherwise
        the high watermark could stay ahead of this replica permanently. Below min.insync.replicas
        no record is committed (KIP-966).

        Returns:
            Whether it moved. The high watermark never decreases.
        """
        offsets = self._state.log.offsets
        candidate = offsets.log_end_offset
        if candidate > self.sync_required_from:
            candidate = self.sync_required_from
        if self.remote_replicas:
            candidate = self._smallest_end(candidate)
        known = offsets.high_watermark
        if candidate <= known:
            return False
        assert self._committed_end <= known, (
            f"HighWatermarkMonotonic: partition={self._state.topic_partition} "
            f"leader_epoch={self.leader_epoch} last={self._committed_end} "
            f"high_watermark={known} new={candidate}"
        )
        if self.remote_replicas:
            self._check_replicas(candidate)
        is_moved = offsets.update_high_watermark(candidate)
        self._committed_end = offsets.high_watermark
        return is_moved

    def _check_replicas(self, candidate: int) -> None:
        """Assert what the replicas must have before the high watermark moves to `candidate`."""
        isr = self.isr_state.isr
        for broker_id, replica in self.remote_replicas.items():
            assert replica.log_end_offset >= candidate or broker_id not in isr, (
                f"AckedAllNeverLost: partition={self._state.topic_partition} new={candidate} "
                f"isr={isr} replica={broker_id} log_end={replica.log_end_offset}"
            )

    def _smallest_end(self, own_end: int) -> int:
        """Return the smallest log end of this replica and of those that limit the high watermark.

        If one of them is not above the high watermark, the others do not matter.
        """
        candidate, high_watermark = own_end, self._state.log.offsets.high_watermark
        maximal_isr = self.isr_state.maximal_isr
        outside: list[Replica] = []
        for broker_id, replica in self.remote_replicas.items():
            end = replica.end.message_offset
            if end >= candidate:
                continue
            if broker_id not in maximal_isr:
                outside.append(replica)
            elif end <= high_watermark:
                return end
            else:
                candidate = end
        if self.is_under_min_isr:
            return UNKNOWN_OFFSET
        for replica in outside:
            now_ms = self._state.settings.clock.monotonic_ms()
            if self._is_caught_up(replica, now_ms) and self._is_isr_eligible(replica):
                candidate = min(candidate, replica.log_end_offset)
        return candidate

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of the live replicas."""
        brokers = self._state.settings.brokers
        starts = [
            replica.log_start_offset
            for replica in self.remote_replicas.values()
            if brokers.is_alive(replica.broker_id)
        ]
        return min([self._state.log.log_start_offset, *starts])

    def check_enough_replicas(self, required_offset: int) -> ErrorCode | None:
        """Return whether acks=all is fulfilled up to `required_offset` (exclusive).

        Returns:
            None: not yet. NONE: yes.
            NOT_ENOUGH_REPLICAS_AFTER_APPEND: yes, but the ISR is below min.insync.replicas.
        """
        if self._state.log.high_watermark < required_offset:
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
        if self.isr_state.is_in_flight:
            return None
        now_ms = self._state.settings.clock.monotonic_ms()
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
            self.isr_state.is_in_flight
            and proposal.partition_epoch == self._state.partition_epoch
            and proposal.leader_epoch == self.leader_epoch
        )

    def on_alter_partition_result(
        self, proposal: AlterPartitionProposal, result: AlterPartitionResult
    ) -> AnswerOutcome:
        """Apply the controller's response. Ignore it if its proposal is no longer in flight."""
        if not self.is_waiting_for(proposal):
            return AnswerOutcome(moved=False, retry=False)
        if result.error in REFUSED:
            self.isr_state = self.isr_state.withdrawn()
            return AnswerOutcome(moved=self.maybe_increment_high_watermark(), retry=False)
        if result.error in OUTDATED:
            return AnswerOutcome(moved=False, retry=False)
        if result.error is not _NONE:
            return AnswerOutcome(moved=False, retry=True)
        if (
            result.leader_epoch > self.leader_epoch
            or result.partition_epoch < self._state.partition_epoch
        ):
            return AnswerOutcome(moved=False, retry=False)
        self.isr_state = IsrState.committed(result.isr)
        self._state.partition_epoch = result.partition_epoch
        self._state.leader_recovery_state = result.leader_recovery_state
        return AnswerOutcome(moved=self.maybe_increment_high_watermark(), retry=False)

    def _proposal(self) -> AlterPartitionProposal:
        proposed = self.isr_state.proposed_isr
        assert proposed is not None
        return AlterPartitionProposal(
            self._state.topic_id,
            self._state.topic_partition,
            self.leader_epoch,
            self._state.partition_epoch,
            tuple((each, self._known_epoch(each)) for each in proposed),
            self._state.leader_recovery_state,
        )

    def _known_epoch(self, broker_id: int) -> int:
        """Return the broker epoch of a replica's last fetch, or -1, which the controller skips."""
        replica = self.remote_replicas.get(broker_id)
        epoch = (
            self._state.settings.brokers.broker_epoch(broker_id)
            if replica is None
            else replica.broker_epoch
        )
        return NO_BROKER_EPOCH if epoch is None else epoch

    def _has_all_committed(self, replica: Replica) -> bool:
        end = replica.log_end_offset
        return end >= self.leader_epoch_start_offset and end >= self._state.log.high_watermark

    def _is_isr_eligible(self, replica: Replica) -> bool:
        brokers = self._state.settings.brokers
        if not brokers.is_isr_eligible(replica.broker_id):
            return False
        # Brokers without KIP-903 send epoch -1, which cannot be checked.
        return replica.broker_epoch == NO_BROKER_EPOCH or (
            replica.broker_epoch is not None
            and replica.broker_epoch == brokers.broker_epoch(replica.broker_id)
        )

    def _is_caught_up(self, replica: Replica, now_ms: float) -> bool:
        limit_ms = self._state.settings.replica_lag_time_max_ms
        return replica.is_caught_up(self._state.log.log_end_offset, now_ms, limit_ms)
