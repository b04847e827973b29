"""Computes a follower's truncation offset from the leader's epochs (KIP-101, KIP-279)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.replication.partition.results import UNKNOWN_EPOCH, UNKNOWN_OFFSET

if TYPE_CHECKING:
    from barnabas.replication.partition.results import EpochEndOffset
    from barnabas.storage.log.log import Log


class OffsetTruncation(NamedTuple):
    """The target of one truncation."""

    offset: int
    # Whether both logs are known to be equal below. If not, the follower queries the leader again.
    is_complete: bool


def truncation_offset(log: Log, leader_end: EpochEndOffset, fetch_offset: int) -> OffsetTruncation:
    """Return the largest offset up to which both logs may be equal.

    Args:
        log: the follower's log.
        leader_end: the leader's largest epoch that is at most the follower's last epoch, with its
            end offset in the leader's log.
        fetch_offset: the initial fetch offset, used if the leader has no epochs.
    """
    own_end = log.log_end_offset
    if leader_end.end_offset == UNKNOWN_OFFSET:
        return OffsetTruncation(fetch_offset, is_complete=True)
    if leader_end.epoch == UNKNOWN_EPOCH:
        return OffsetTruncation(min(leader_end.end_offset, own_end), is_complete=True)
    epoch, end_of_epoch = log.end_offset_for_epoch(leader_end.epoch)
    if end_of_epoch == UNKNOWN_OFFSET:
        return OffsetTruncation(min(leader_end.end_offset, own_end), is_complete=True)
    if epoch != leader_end.epoch:
        # The follower has no record of that epoch: truncate to the end of the previous epoch, and
        # query again.
        return OffsetTruncation(min(end_of_epoch, own_end), is_complete=False)
    return OffsetTruncation(min(end_of_epoch, leader_end.end_offset, own_end), is_complete=True)
