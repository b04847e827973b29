"""Finds the leader epochs of records that only the remote tier has, after their file was lost.

A log keeps the epochs of all its records in one file. If the file is lost, the epochs of local
records are found in the batches. Those before are in the metadata of the remote segments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.files.leader_epoch_cache import EpochEntry
from barnabas.storage.remote.remote_storage import SegmentState

if TYPE_CHECKING:
    from barnabas.storage.remote.remote_storage import RemoteSegment
    from barnabas.storage.remote.segment_states import RemoteLog


def find_epochs(remote: RemoteLog, end_offset: int, last_epoch: int | None) -> list[EpochEntry]:
    """Return the epochs of the remote records below an offset, as far as they adjoin it.

    Args:
        remote: the segments.
        end_offset: the first offset with a known epoch.
        last_epoch: that epoch; None if no epoch is known. Segments of later epochs belong to
            another history of the log.
    """
    finished = [
        each for each in remote.iterate() if each.state is SegmentState.COPY_SEGMENT_FINISHED
    ]
    starts: dict[int, int] = {}
    while (found := _segment_before(finished, end_offset, last_epoch)) is not None:
        for epoch, start in found.leader_epochs:
            starts[epoch] = min(start, starts.get(epoch, start))
        end_offset, last_epoch = found.start_offset, found.leader_epochs[0][0]
    return [EpochEntry(epoch, starts[epoch]) for epoch in sorted(starts)]


def _segment_before(
    segments: list[RemoteSegment], end_offset: int, last_epoch: int | None
) -> RemoteSegment | None:
    """Return the segment with the record before an offset, of the latest epoch that is possible."""
    fitting = [
        each
        for each in segments
        if each.start_offset < end_offset <= each.end_offset + 1
        and (last_epoch is None or each.leader_epochs[-1][0] <= last_epoch)
    ]
    return max(fitting, key=lambda each: each.leader_epochs[-1], default=None)
