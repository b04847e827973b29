"""Where a follower cuts its log, from what its leader says of an epoch (KIP-101, KIP-279)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.replication.results import UNKNOWN_EPOCH, UNKNOWN_OFFSET

if TYPE_CHECKING:
    from barnabas.replication.results import EpochEndOffset
    from barnabas.storage.log import Log


class OffsetTruncation(NamedTuple):
    """One cut."""

    offset: int
    # Whether both logs are known to be the same below; else the leader is asked again.
    is_complete: bool


def truncation_offset(log: Log, leader_end: EpochEndOffset, fetch_offset: int) -> OffsetTruncation:
    """The largest point that both logs may have in common.

    Args:
        leader_end: the largest epoch of the leader's that is no larger than our last one, and
            where it ends in the leader's log.
        fetch_offset: where fetching was to begin, for when the leader knows no epoch at all.
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
        # We have no record of that epoch: go back to the end of ours before it, and ask again.
        return OffsetTruncation(min(end_of_epoch, own_end), is_complete=False)
    return OffsetTruncation(min(end_of_epoch, leader_end.end_offset, own_end), is_complete=True)
