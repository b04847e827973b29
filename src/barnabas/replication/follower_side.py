"""What a follower does with its replica: appends what its leader sent.

Part of Kafka's cluster.Partition and ReplicaFetcherThread.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.replication.partition_replica import PartitionReplica
from barnabas.storage.errors import UnexpectedAppendOffsetError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.storage.append_info import AppendInfo

_log = logging.getLogger(__name__)


class Fetched(NamedTuple):
    """One partition of a leader's answer that has no error."""

    # Batches as they lie in the leader's log; the last may be cut off.
    records: memoryview | bytes
    high_watermark: int
    log_start_offset: int


class FollowerAppend(NamedTuple):
    """What an answer has changed."""

    # The high watermark is another: wake what waits on this partition.
    moved: bool
    info: AppendInfo


class OffsetMismatchError(Exception):
    """An answer to a fetch from another offset than the log end now: nothing is appended."""


class FollowerSide(PartitionReplica):
    """Of no use while this broker leads."""

    __slots__ = ()

    @property
    def initial_fetch_offset(self) -> int:
        """Where to begin to fetch: without an epoch nothing above the high watermark is sure."""
        log = self.log
        return log.high_watermark if log.latest_epoch is None else log.log_end_offset

    @property
    def is_being_added(self) -> bool:
        """Whether a reassignment adds this replica: its traffic is counted apart."""
        return self._settings.node_id in self.adding_replicas

    def append_as_follower(
        self, fetch_offset: int, fetched: Fetched, begin_anew: Callable[[int], None]
    ) -> FollowerAppend:
        """Append the leader's bytes, then follow its high watermark and its log start.

        Args:
            fetch_offset: that was asked for.
            begin_anew: empties the log and lets it begin at an offset.

        Raises:
            OffsetMismatchError: the log end has moved since.
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
            # The leader's log begins within a batch, whose first records were deleted. What we have
            # goes, if it is nothing, or nothing that the leader has not deleted.
            keeps_nothing = log.log_end_offset in (log.log_start_offset, fetched.log_start_offset)
            is_within = error.first_offset < error.log_end_offset <= error.last_offset
            if not keeps_nothing or not is_within:
                raise
            _log.info("%s begins within a batch of its leader's", self.topic_partition)
            begin_anew(error.first_offset)
            info = log.append_as_follower(fetched.records, self.leader_epoch)
        moved = log.update_high_watermark(min(fetched.high_watermark, log.log_end_offset))
        if fetched.log_start_offset > log.log_start_offset:
            log.maybe_increment_log_start_offset(fetched.log_start_offset, "the leader's moved")
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        return FollowerAppend(moved, info)
