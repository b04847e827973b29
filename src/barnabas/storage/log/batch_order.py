"""Check of the batches of a log: whether each continues the log, and where the log ends.

Base offset and leader epoch lie outside the CRC. A flipped bit in them shows only as a
contradiction to the previous or next batch.

Some log ends are known without a recovery. Then only the last few batches are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.config import LONG_MAX
from barnabas.storage.errors import CorruptRecordError
from barnabas.storage.segment.batch_scan import headers, valid_batches
from barnabas.storage.segment.segment_indexes import RELATIVE_OFFSET_MAX
from barnabas.storage.topic_partition import INDEX_SUFFIX, TIME_INDEX_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.record.batch import BatchHeader
    from barnabas.storage.files.leader_epoch_cache import EpochEntry, LeaderEpochCache
    from barnabas.storage.segment.segment import Segment


class BatchOrder:
    """Checks the batches of a log in order."""

    __slots__ = (
        "_known_epochs",
        "_may_skip",
        "_segment_base",
        "epoch",
        "next_offset",
    )

    def __init__(self, epochs: Sequence[EpochEntry], *, may_skip: bool) -> None:
        """Create the check.

        Args:
            epochs: leader epochs and start offsets from the log's file; empty without one.
            may_skip: whether offsets may be missing between batches (the log is compacted).
        """
        self._known_epochs = frozenset(epoch for epoch, _ in epochs)
        self._may_skip = may_skip
        self._segment_base = 0
        # End offset of the accepted batches, and their latest leader epoch (-1 without one).
        self.next_offset = 0
        self.epoch = -1

    def begin_segment(self, base_offset: int) -> None:
        """Begin a segment; the next batch is its first."""
        self._segment_base = self.next_offset = base_offset

    def take(self, header: BatchHeader) -> None:
        """Accept the batch as part of the log."""
        self.next_offset = header.next_offset
        self.epoch = max(self.epoch, header.partition_leader_epoch)

    def problem(self, header: BatchHeader, after: BatchHeader | None, following: int) -> str | None:
        """Return why the batch cannot continue the log; None if it can.

        Args:
            header: header of a batch with a valid CRC.
            after: header of the next batch in the segment, also with a valid CRC; None without one.
            following: base offset of the next segment, LONG_MAX without one.
        """
        return self._offset_problem(header, after, following) or self._epoch_problem(header, after)

    def _offset_problem(
        self, header: BatchHeader, after: BatchHeader | None, following: int
    ) -> str | None:
        base, expected = header.base_offset, self.next_offset
        if base < expected:
            return f"its base offset is {base}, but the previous batch ends at {expected}"
        if header.last_offset - self._segment_base > RELATIVE_OFFSET_MAX:
            return f"its base offset is {base}, too large for its segment"
        if base == expected:
            return None
        # Offsets are missing before the batch. That is valid unless the next batch contradicts.
        limit = following if after is None else after.base_offset
        if header.next_offset > limit:
            return f"its base offset is {base}, although offset {limit} follows it"
        if after is None and limit == LONG_MAX and not self._may_skip:
            return f"its base offset is {base}, but the previous batch ends at {expected}"
        return None

    def _epoch_problem(self, header: BatchHeader, after: BatchHeader | None) -> str | None:
        epoch = header.partition_leader_epoch
        if epoch < self.epoch:
            # These may also be old bytes after a truncation that did not reach the disk.
            return f"its leader epoch is {epoch}, but the previous batch has {self.epoch}"
        older = epoch if after is None else after.partition_leader_epoch
        # No batch contradicts the last batch. After a power loss, the file of epochs may lack an
        # epoch, so an unknown epoch alone proves nothing.
        if older < epoch and epoch not in self._known_epochs:
            return f"its leader epoch is {epoch}, but the next batch has {older}"
        return None


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
