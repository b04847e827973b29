"""Log ends that are known without a recovery: only the last few batches are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.errors import CorruptRecordError
from barnabas.storage.file_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from barnabas.storage.segment.batch_scan import headers, valid_batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.storage.files.leader_epoch_cache import LeaderEpochCache
    from barnabas.storage.segment.segment import Segment


def clean_end(
    segments: Sequence[Segment], epochs: LeaderEpochCache, recovery_point: int
) -> int | None:
    """Return the log end after a clean shutdown; None if the log needs recovery.

    After a clean shutdown, the last segment ends with a whole batch of the last leader epoch. It
    also ends at the recovery point, because a clean shutdown syncs the whole log.
    """
    if not segments:
        return None
    last = segments[-1]
    position, end = 0, last.base_offset
    if last.size:
        try:
            for start, header in headers(last.file, last.offset_index.last_position(), last.size):
                known = epochs.epoch_for_offset(header.base_offset)
                if known is not None and known != header.partition_leader_epoch:
                    return None
                position, end = start + header.size, header.next_offset
        except CorruptRecordError:
            return None
    return end if position == last.size and end == recovery_point else None


def idle_end(
    segments: Sequence[Segment],
    present: set[str],
    epochs: LeaderEpochCache,
    recovery_point: int,
    snapshots: Sequence[int],
) -> int | None:
    """Return the log end after a kill if nothing was written since the last complete sync.

    A recovery point at the log end implies that all indexes are synced too, as
    `LogSync.safe_recovery_point` ensures. Kafka's brokers do not ensure this. After a truncation,
    later batches may end where the log ended before, until the checkpoint is written. Therefore the
    last batches and the time index are checked, and the producer snapshot of the end must exist.

    Args:
        segments: all segments of the log.
        present: names of the files in the directory.
        epochs: leader epochs of the log.
        recovery_point: the checkpointed one.
        snapshots: offsets of the producer snapshots.
    """
    end = clean_end(segments, epochs, recovery_point)
    if end is None:
        return None
    last = segments[-1]
    names = (last.path(suffix).rpartition("/")[2] for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX))
    if not all(name in present for name in names) or (end and end not in snapshots):
        return None
    start = last.offset_index.last_position()
    for position, header, _ in valid_batches(last.file, start, last.size):
        start = position + header.size
    if start != last.size or not last.has_whole_indexes():
        return None
    return None if len(segments) > 1 and overlaps(segments[-2], last) else end


def overlaps(segment: Segment, following: Segment) -> bool:
    """Return whether a segment extends into the next one, after a truncation was lost."""
    try:
        return segment.find_end()[1] > following.base_offset
    except CorruptRecordError:
        return True
