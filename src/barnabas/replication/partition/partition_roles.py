"""The roles of a replica without leadership: offline, and following a leader.

Part of Kafka's cluster.Partition and ReplicaFetcherThread. All roles, with `leader_role`, share the
identity, log and assignment of the replica in `PartitionState`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.storage.errors import StorageError, UnexpectedAppendOffsetError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.metadata.partition_registration import PartitionRegistration
    from barnabas.runtime.clock import Clock
    from barnabas.storage.log.log import Log
    from barnabas.storage.remote.remote_reader import Miss
    from barnabas.storage.results import AppendInfo, FetchIsolation, ReadResult
    from barnabas.storage.topic_partition import TopicPartition

_log = logging.getLogger(__name__)


class BrokersView(Protocol):
    """The state of other brokers, as leaders need it."""

    def is_isr_eligible(self, broker_id: int) -> bool:
        """Whether the broker is registered, not fenced, and not in controlled shutdown."""
        ...

    def is_alive(self, broker_id: int) -> bool:
        """Whether the broker is registered and not fenced."""
        ...

    def broker_epoch(self, broker_id: int) -> int | None:
        """Return the epoch of the broker's registration, or None if unknown."""
        ...


class RemoteRecords(Protocol):
    """Reads of records that only the remote tier has."""

    def read(
        self,
        partition: PartitionState,
        offset: int,
        limit: tuple[int, bool],
        isolation: FetchIsolation,
    ) -> ReadResult | Miss | ErrorCode:
        """Return records from an offset, what must be loaded first, or the error.

        Args:
            limit: bytes at most, and whether the first batch is returned even if it is larger.
        """
        ...


class PartitionSettings(msgspec.Struct, frozen=True):
    """Settings that all partitions of a broker share."""

    node_id: int
    clock: Clock
    brokers: BrokersView
    replica_lag_time_max_ms: int
    # Reads of records that only the remote tier has. None without tiered storage.
    remote: RemoteRecords | None = None


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


NO_LEADER = -1
NO_LEADER_EPOCH = -1


class OfflineRole:
    """Nothing is appended. Also the role before the first metadata."""

    __slots__ = ("leader_epoch",)

    # As in the other roles.
    leader_id = NO_LEADER

    def __init__(self, leader_epoch: int = NO_LEADER_EPOCH) -> None:
        # The epoch of the change that took the leader away. Never changes. -1 before the first
        # metadata.
        self.leader_epoch = leader_epoch


class Fetched(NamedTuple):
    """One partition of a leader's response, without an error."""

    # Batches as in the leader's log. The last batch may be incomplete.
    records: memoryview | bytes
    high_watermark: int
    log_start_offset: int
    # Number of truncations of a leader that is a mirror itself, see `LeaderRole`; -1 without any.
    truncations: int = -1


class FollowerAppend(NamedTuple):
    """The changes that one response made."""

    # Whether the high watermark changed. Then the caller checks pending operations.
    moved: bool
    info: AppendInfo


class OffsetMismatchError(Exception):
    """The response is for a fetch offset that is not the current log end. Nothing is appended."""


class NotLeadingError(StorageError):
    """This broker does not lead the mirror any more, which the fetcher will learn soon."""

    error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class FollowerRole:
    """This broker follows `leader_id` in one leader epoch. Each epoch has a new object."""

    __slots__ = ("_state", "leader_epoch", "leader_id")

    def __init__(self, state: PartitionState, leader_id: int, leader_epoch: int) -> None:
        assert leader_id not in (-1, state.settings.node_id), f"leader_id={leader_id}"
        self._state = state
        # Broker id of the leader. Never changes, and is never this broker.
        self.leader_id = leader_id
        # The leader epoch. Never changes.
        self.leader_epoch = leader_epoch

    @property
    def is_being_added(self) -> bool:
        """Whether a reassignment adds this replica. Its traffic is counted separately."""
        return self._state.settings.node_id in self._state.adding_replicas

    def append(
        self, fetch_offset: int, fetched: Fetched, restart_log_at: Callable[[int], None]
    ) -> FollowerAppend:
        """Append the leader's batches, then apply its high watermark and log start offset.

        Args:
            fetch_offset: the offset in the request.
            fetched: the partition's data in the response.
            restart_log_at: empties the log and starts it at an offset.

        Raises:
            OffsetMismatchError: the log end has moved since the request.
            StorageError: damaged bytes, or a failing disk; nothing was appended.
        """
        log = self._state.log
        if fetch_offset != log.log_end_offset:
            raise OffsetMismatchError(
                f"{self._state.topic_partition}: fetched from {fetch_offset}, "
                f"the log ends at {log.log_end_offset}"
            )
        try:
            info = log.appender.append_as_follower(fetched.records, self.leader_epoch)
        except UnexpectedAppendOffsetError as error:
            # The leader's log starts within a batch whose first records are deleted. Empty this log
            # if it has no records, or only records that the leader has deleted.
            starts = (log.local_log_start_offset, fetched.log_start_offset)
            keeps_nothing = log.log_end_offset in starts
            is_within = error.first_offset < error.log_end_offset <= error.last_offset
            if not keeps_nothing or not is_within:
                raise
            _log.info(
                "Log restarts within a batch of the leader: partition=%s",
                self._state.topic_partition,
            )
            fetch_offset = error.first_offset
            restart_log_at(fetch_offset)
            info = log.appender.append_as_follower(fetched.records, self.leader_epoch)
        first = info.first_offset
        assert first < 0 or first >= fetch_offset, (
            f"LogMatching: partition={self._state.topic_partition} fetch_offset={fetch_offset} "
            f"first_appended={first} leader_epoch={self.leader_epoch}"
        )
        # As in Kafka: the leader's high watermark may be above the records that this response has.
        moved = log.update_high_watermark(min(fetched.high_watermark, log.log_end_offset))
        if fetched.log_start_offset > log.log_start_offset:
            log.maybe_increment_log_start_offset(fetched.log_start_offset, "the leader's moved")
        start, committed, end = log.log_start_offset, log.high_watermark, log.log_end_offset
        assert start <= committed <= end, (
            f"OffsetsInOrder: log_start={start} high_watermark={committed} log_end={end}"
        )
        return FollowerAppend(moved, info)
