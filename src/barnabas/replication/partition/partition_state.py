"""What all roles of a replica share: its identity, its log, and its assignment."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.metadata.partition_registration import PartitionRegistration
    from barnabas.replication.partition.partition_settings import PartitionSettings
    from barnabas.storage.log.log import Log
    from barnabas.storage.topic_partition import TopicPartition


class PartitionState:
    """The facts that outlast a leader epoch."""

    __slots__ = (
        "adding_replicas",
        "is_syncing",
        "leader_recovery_state",
        "log",
        "partition_epoch",
        "removing_replicas",
        "replicas",
        "settings",
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
        # The identity. Never changes.
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        # The log of this replica. `Partition.on_moved` replaces it after a move to another
        # directory, by a log with the same records.
        self.log = log
        self.settings = settings
        # Number of changes of the registration, including ISR changes. Moved by metadata, and by
        # the controller's response to a leader's proposal. Never decreases.
        self.partition_epoch = -1
        # The assignment, broker ids. Moved by metadata only. The added and the removed replicas of
        # a reassignment in progress belong to `replicas`.
        self.replicas: tuple[int, ...] = ()
        self.adding_replicas: tuple[int, ...] = ()
        self.removing_replicas: tuple[int, ...] = ()
        # Whether the leader still has to recover its log after an unclean election. Moved by
        # metadata, by `become_leader`, and by the controller's response to a proposal.
        self.leader_recovery_state = 0
        # Whether a sync for flush.messages runs off the event loop. At most one at a time. Moved by
        # `ReplicaAppends`.
        self.is_syncing = False

    def assign(self, registration: PartitionRegistration) -> None:
        """Adopt the assignment and the epoch of a registration."""
        known, new = self.partition_epoch, registration.partition_epoch
        assert new >= known, f"{self.topic_partition}: partition_epoch={known} new={new}"
        self.partition_epoch = new
        self.replicas = registration.replicas
        self.adding_replicas = registration.adding_replicas
        self.removing_replicas = registration.removing_replicas
        self.leader_recovery_state = registration.leader_recovery_state
