"""A replica of a partition on this broker (Kafka's cluster.Partition).

This class changes the replica between leader and follower according to the metadata. The operations
of both roles are in `LeaderSide` and `FollowerSide`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.partition_registration import RECOVERED
from barnabas.replication.partition.follower_side import FollowerSide
from barnabas.replication.partition.isr import IsrState
from barnabas.replication.partition.leader_side import LeaderSide
from barnabas.replication.partition.partition_replica import NOTHING_TO_SYNC
from barnabas.replication.partition.replica import Replica

if TYPE_CHECKING:
    from barnabas.metadata.partition_registration import PartitionRegistration


class Partition(LeaderSide, FollowerSide):
    """A replica of a partition. As leader, it also tracks the state of the followers."""

    __slots__ = ()

    # Leadership changes from metadata.

    def become_leader(self, registration: PartitionRegistration) -> bool:
        """Become the leader, or remain it with a changed assignment or ISR.

        Returns:
            Whether the high watermark moved. An outdated registration changes nothing.
        """
        if registration.partition_epoch < self.partition_epoch:
            return False
        assert registration.leader == self._settings.node_id
        assert registration.leader_epoch >= self.leader_epoch
        leader, isr, replicas = registration.leader, registration.isr, registration.replicas
        assert leader in isr, f"LeaderInIsr: leader={leader} isr={isr}"
        assert set(isr) <= set(replicas), f"IsrSubsetOfReplicas: isr={isr} replicas={replicas}"
        was_leader = self.is_leader
        self._take_assignment(registration)
        # After an unclean election, opening the log has already done the recovery. The next
        # proposal reports the leader as recovered, as in Kafka.
        self.leader_recovery_state = RECOVERED
        self.isr_state = IsrState.committed(registration.isr)
        others = [each for each in registration.replicas if each != self._settings.node_id]
        kept = self.remote_replicas
        self.remote_replicas = {each: kept.get(each) or Replica(each) for each in others}
        if registration.leader_epoch > self.leader_epoch or not was_leader:
            self._begin_epoch(registration.leader_epoch, not was_leader)
        self.leader_id = registration.leader
        return self.maybe_increment_high_watermark()

    def become_follower(self, registration: PartitionRegistration) -> bool:
        """Become a follower, possibly without a leader.

        Returns:
            Whether a new leader epoch started. An outdated registration changes nothing.
        """
        if registration.partition_epoch < self.partition_epoch:
            return False
        assert registration.leader != self._settings.node_id
        is_new_epoch = registration.leader_epoch > self.leader_epoch
        self._take_assignment(registration)
        self.isr_state = IsrState.committed(())
        self.remote_replicas = {}
        # On a follower, the fetcher ensures that fetched records are synced.
        self.sync_required_from = NOTHING_TO_SYNC
        self.leader_id = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.leader_epoch_start_offset = None
        return is_new_epoch

    def _take_assignment(self, registration: PartitionRegistration) -> None:
        self.partition_epoch = registration.partition_epoch
        self.replicas = registration.replicas
        self.adding_replicas = registration.adding_replicas
        self.removing_replicas = registration.removing_replicas
        self.leader_recovery_state = registration.leader_recovery_state

    def _begin_epoch(self, leader_epoch: int, is_new_leader: bool) -> None:
        start = self.log.log_end_offset
        # Announce the epoch before its first append. A follower may have records of a later epoch
        # than any in this log, and needs the epoch to find its truncation offset (KIP-279).
        self.log.leader_epochs.announce(leader_epoch, start)
        now_ms = self._settings.clock.monotonic_ms()
        for replica in self.remote_replicas.values():
            in_isr = replica.broker_id in self.isr_state.isr
            replica.reset(now_ms, start, is_new_leader, in_isr)
        self.leader_epoch = leader_epoch
        self.leader_epoch_start_offset = start
