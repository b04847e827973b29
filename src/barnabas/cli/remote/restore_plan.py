"""Which stored segments make the log of each partition of a lost topic.

The store may have segments of former leaders, with records that the log did not have at the end,
and second copies of the same records. The latest leader epoch decides: its last segment has the
leader epochs of the log, and only segments of this history are taken. From its end back to its
start, they must cover all offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.storage.remote.coverage import OffsetRange
from barnabas.storage.remote.lineage import is_within_lineage, without_empty_epochs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barnabas.storage.files.leader_epoch_cache import EpochEntry
    from barnabas.storage.remote.remote_storage import RemoteSegment


class RestorePlanError(Exception):
    """The segments do not make a log without gaps; the message says what to do."""


class PartitionPlan(NamedTuple):
    """The segments to restore of one partition."""

    partition: int
    # In the order of their offsets, at least one. They cover all offsets from the first to the
    # last one, and none of them lies within another.
    segments: tuple[RemoteSegment, ...]
    # Segments that belong to another history, or whose records other segments have, or that are
    # below the first offset.
    left_out: int

    @property
    def log_start_offset(self) -> int:
        """The first restored offset."""
        return self.segments[0].start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset after the last restored one."""
        return self.segments[-1].end_offset + 1

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(each.size for each in self.segments)


class StartOffsets(NamedTuple):
    """The first offsets that the user demands."""

    # Of partitions that are named; None in place of a partition for all others.
    by_partition: Mapping[int | None, int]

    def of(self, partition: int) -> int | None:
        """Return the first offset of a partition; None if it is not demanded."""
        return self.by_partition.get(partition, self.by_partition.get(None))


def plan_partition(
    partition: int,
    segments: Sequence[RemoteSegment],
    epochs_of: Callable[[RemoteSegment], list[EpochEntry]],
    from_offset: int | None,
) -> PartitionPlan:
    """Choose the segments of one partition.

    Args:
        partition: the partition.
        segments: its segments in the store that are whole, at least one.
        epochs_of: returns the leader epochs of the log up to the end of a segment.
        from_offset: the restored log may begin with the segment that has this offset; None for
            all segments.

    Raises:
        RestorePlanError: segments are missing, and no offset after them was demanded.
    """
    last = max(
        segments,
        key=lambda each: (each.leader_epochs[-1][0], each.end_offset, -each.start_offset),
    )
    end_offset = last.end_offset + 1
    if from_offset is not None and from_offset >= end_offset:
        raise RestorePlanError(
            f"partition {partition}: its last offset in the store is {last.end_offset}, and --from "
            f"is {from_offset}; give each partition its own: --from PARTITION:OFFSET"
        )
    epochs = without_empty_epochs(epochs_of(last))
    own = [each for each in segments if is_within_lineage(each, end_offset, epochs)]
    chain, gaps = _covering(own, last, from_offset)
    if gaps:
        raise RestorePlanError(
            f"partition {partition}: no segment has the offsets {', '.join(map(str, gaps))}; "
            "`barnabas remote verify` shows more. To restore only what comes after them: "
            f"--from {partition}:{gaps[0].last + 1}"
        )
    return PartitionPlan(partition, chain, len(segments) - len(chain))


def _covering(
    segments: Sequence[RemoteSegment], last: RemoteSegment, from_offset: int | None
) -> tuple[tuple[RemoteSegment, ...], list[OffsetRange]]:
    """Walk back from the last segment.

    Returns:
        Segments that cover all offsets, in ascending order; and the gaps, the latest one first.
    """
    by_end = sorted(segments, key=lambda each: each.end_offset)
    chain, gaps = [last], []
    # The segment with the lowest start of those that end at or behind the start of the chain.
    best = last
    while from_offset is None or chain[-1].start_offset > from_offset:
        start = chain[-1].start_offset
        while by_end and by_end[-1].end_offset >= start - 1:
            found = by_end.pop()
            best = min(best, found, key=lambda each: each.start_offset)
        if best.start_offset < start:
            chain.append(best)
        elif by_end:
            gaps.append(OffsetRange(by_end[-1].end_offset + 1, start - 1))
            chain.append(by_end[-1])
        else:
            break
    return tuple(reversed(chain)), gaps
