"""Which remote segments belong to a log, by leader epochs (Kafka's RemoteLogManager, KIP-405).

Former leaders may have copied records that the log does not have, after an unclean election. Their
segments have other leader epochs, or the same epochs with other offsets.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING

from barnabas.storage.files.leader_epoch_cache import EpochEntry
from barnabas.storage.remote.remote_storage import SegmentState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.storage.files.leader_epoch_cache import LeaderEpochCache
    from barnabas.storage.remote.remote_storage import RemoteSegment
    from barnabas.storage.remote.segment_states import RemoteLog

_epoch = attrgetter("epoch")
_NO_OFFSET = -1
_NO_EPOCH = -1


def without_empty_epochs(entries: Sequence[EpochEntry]) -> list[EpochEntry]:
    """Return the epochs that have records: the next epoch begins at a higher offset.

    Args:
        entries: leader epochs, ascending. The last one is always returned.
    """
    kept = [
        entry
        for entry, following in pairwise(entries)
        if entry.start_offset != following.start_offset
    ]
    return [*kept, *entries[-1:]]


def is_within_lineage(
    segment: RemoteSegment, log_end_offset: int, entries: Sequence[EpochEntry]
) -> bool:
    """Return whether all records of a segment are or were records of the log.

    Args:
        segment: the segment.
        log_end_offset: the end of the log, exclusive.
        entries: the result of `without_empty_epochs` for the epochs of the log.
    """
    own = without_empty_epochs([EpochEntry(*each) for each in segment.leader_epochs])
    last_epoch = own[-1].epoch
    if not entries or not entries[0].epoch <= last_epoch <= entries[-1].epoch:
        return False
    if segment.end_offset >= log_end_offset:
        return False
    # The log forgets epochs when its start offset rises, so the segment may have earlier ones.
    common = own[bisect_left(own, entries[0].epoch, key=_epoch) :]
    at = bisect_left(entries, common[0].epoch, key=_epoch)
    if entries[at].epoch != common[0].epoch:
        return False
    # The log's first epoch may have begun below its start offset.
    if at > 0 and common[0].start_offset < entries[at].start_offset:
        return False
    following = list(entries[at + 1 : at + len(common)])
    if following != common[1:]:
        return False
    ends_at = at + len(common)
    return ends_at == len(entries) or segment.end_offset < entries[ends_at].start_offset


def highest_remote_offset(
    remote: RemoteLog, epochs: LeaderEpochCache, log_end_offset: int
) -> tuple[int, int]:
    """Return offset and leader epoch of the last record of the log that was copied.

    Returns:
        (-1, -1) if no record of the log was copied.
    """
    for epoch, _ in reversed(epochs.entries):
        copied = remote.highest_offset(epoch)
        if copied is None:
            continue
        end_epoch, end = epochs.end_offset_for(epoch, log_end_offset)
        # A former leader may have copied more records of this epoch than the log has.
        return (end - 1, end_epoch) if end <= copied else (copied, epoch)
    return _NO_OFFSET, _NO_EPOCH


def first_remote_offset(remote: RemoteLog, epochs: LeaderEpochCache) -> int | None:
    """Return the start offset of the first copied segment of the log; None if there is none.

    Kafka also counts copies that are being made or deleted. Those cannot be read, so a log must not
    begin with one.
    """
    for epoch, _ in epochs.entries:
        for segment in remote.iterate(epoch):
            if segment.state is SegmentState.COPY_SEGMENT_FINISHED:
                return segment.start_offset
    return None
