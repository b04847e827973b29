"""Closed segments of a log, and the files that the remote tier stores of each (KIP-405).

A copy has what Kafka's copy has, byte for byte: the batches, the indexes without their padding, the
producer snapshot at the segment's end, and the leader epochs from the log's first one to the
segment's last one.
"""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from barnabas.storage.files.leader_epoch_cache import encode_epochs
from barnabas.storage.producers.producer_entry import encode_snapshot
from barnabas.storage.topic_partition import LOG_SUFFIX

if TYPE_CHECKING:
    from barnabas.storage.files.leader_epoch_cache import LeaderEpochCache
    from barnabas.storage.producers.producer_state import ProducerState
    from barnabas.storage.remote.remote_storage import SegmentFiles
    from barnabas.storage.segment.segment import Segment
    from barnabas.storage.segment.segments import Segments

_log = logging.getLogger(__name__)

# Segments that one call returns at most. The timestamps of old segments may have to be read.
COPYABLE_MAX = 64


class CopyableSegment(NamedTuple):
    """A closed segment whose records are all stable."""

    base_offset: int
    # Exclusive end.
    next_base_offset: int
    # Bytes of its batches.
    size: int
    # Largest timestamp of its records; without timestamps, the time of the last write.
    max_timestamp: int
    # Bytes of the later segments, including the active one.
    bytes_after: int


def find_copyable(
    segments: Segments, from_offset: int, stable: int, count_max: int
) -> list[CopyableSegment]:
    """Return the closed segments with offsets in [from_offset, stable), in order.

    Args:
        segments: all segments of the log.
        from_offset: a segment that contains it is included whole.
        stable: the last stable offset; segments that reach beyond it are left out.
        count_max: the largest number of segments to return.
    """
    found: list[CopyableSegment] = []
    if from_offset >= segments.active.base_offset:
        return found
    ordered = segments.from_offset(from_offset)
    bytes_after = sum(segment.size for segment in ordered)
    for segment, following in pairwise(ordered):
        if following.base_offset > stable or len(found) == count_max:
            break
        bytes_after -= segment.size
        found.append(
            CopyableSegment(
                segment.base_offset,
                following.base_offset,
                segment.size,
                segment.largest_timestamp(),
                bytes_after,
            )
        )
    return found


def segments_above(segments: Segments, offset: int) -> list[Segment]:
    """Return the segments that begin above an offset."""
    return [each for each in segments.from_offset(offset) if each.base_offset > offset]


def files_of(
    segment: Segment, end_offset: int, producers: ProducerState, epochs: LeaderEpochCache
) -> SegmentFiles:
    """Return the files of a closed segment. The indexes are read now, the batches later.

    Args:
        segment: the segment.
        end_offset: base offset of the next segment.
        producers: the producer state of the log, for its snapshots.
        epochs: the leader epochs of the log.
    """
    # A broker without a remote tier does not import its modules.
    from barnabas.storage.remote.remote_storage import SegmentFiles

    snapshot = producers.read_snapshot(end_offset)
    if not snapshot:
        # Deleted by hand, or damaged. Without it, a follower that starts from the copy knows no
        # producer, but it has all records.
        _log.warning(
            "No producer snapshot at the end of a segment, an empty one is copied: path=%s",
            producers.snapshot_path(end_offset),
        )
        snapshot = encode_snapshot([])
    return SegmentFiles(
        log_path=segment.path(LOG_SUFFIX),
        log_size=segment.size,
        offset_index=segment.offset_index.file.read(),
        time_index=segment.time_index.file.read(),
        transaction_index=bytes(segment.txn_index.load()) or None,
        producer_snapshot=snapshot,
        leader_epochs=encode_epochs(epochs.entries_until(end_offset)),
    )
