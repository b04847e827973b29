"""The follower's operations on its replica: appending the leader's records.

Part of Kafka's cluster.Partition and ReplicaFetcherThread.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.replication.partition.partition_replica import PartitionReplica
from barnabas.storage.errors import UnexpectedAppendOffsetError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.storage.append_info import AppendInfo

_log = logging.getLogger(__name__)


class Fetched(NamedTuple):
    """One partition of a leader's response, without an error."""

    # Batches as in the leader's log. The last batch may be incomplete.
    records: memoryview | bytes
    high_watermark: int
    log_start_offset: int


class FollowerAppend(NamedTuple):
    """The changes that one response made."""

    # Whether the high watermark changed. Then the caller checks waiting operations.
    moved: bool
    info: AppendInfo


class OffsetMismatchError(Exception):
    """The response is for a fetch offset that is not the current log end. Nothing is appended."""


class FollowerSide(PartitionReplica):
    """The operations of a follower. They must not be used while this broker leads."""

    __slots__ = ()

    @property
    def initial_fetch_offset(self) -> int:
        """The offset of the first fetch: the log end, or the high watermark if there is no epoch.

        Without a leader epoch, records above the high watermark may diverge.
        """
        log = self.log
        return log.high_watermark if log.latest_epoch is None else log.log_end_offset

    @property
    def is_being_added(self) -> bool:
        """Whether a reassignment adds this replica. Its traffic is counted separately."""
        return self._settings.node_id in self.adding_replicas

    def append_as_follower(
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
        log = self.log
        if fetch_offset != log.log_end_offset:
            raise OffsetMismatchError(
                f"{self.topic_partition}: fetched from {fetch_offset}, "
                f"the log ends at {log.log_end_offset}"
            )
        assert not self.is_leader, "a leader takes nothing from others"
        try:
            info = log.append_as_follower(fetched.records, self.leader_epoch)
        except UnexpectedAppendOffsetError as error:
            # The leader's log starts within a batch whose first records are deleted. Empty this log
            # if it has no records, or only records that the leader has deleted.
            keeps_nothing = log.log_end_offset in (log.log_start_offset, fetched.log_start_offset)
            is_within = error.first_offset < error.log_end_offset <= error.last_offset
            if not keeps_nothing or not is_within:
                raise
            _log.info("%s begins within a batch of its leader's", self.topic_partition)
            restart_log_at(error.first_offset)
            info = log.append_as_follower(fetched.records, self.leader_epoch)
        moved = log.update_high_watermark(min(fetched.high_watermark, log.log_end_offset))
        if fetched.log_start_offset > log.log_start_offset:
            log.maybe_increment_log_start_offset(fetched.log_start_offset, "the leader's moved")
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        return FollowerAppend(moved, info)
