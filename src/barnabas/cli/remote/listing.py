"""`barnabas remote list`: what the remote tier has of each partition."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from barnabas.cli.common.output import echo_json
from barnabas.cli.common.printable import counted
from barnabas.cli.common.tables import bad, dim, echo_line, echo_table, warn
from barnabas.cli.common.units import short_time, size
from barnabas.protocol.primitives import uuid_to_string
from barnabas.storage.remote.coverage import Coverage, OffsetRange
from barnabas.storage.remote.remote_storage import SegmentState
from barnabas.storage.topic_partition import TopicIdPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from barnabas.cli.remote.cluster_segments import ClusterSegments
    from barnabas.storage.remote.remote_storage import RemoteSegment, RemoteStorage

# Gaps of a partition that are listed. All of them are counted.
_GAPS_LISTED = 100
_COLUMNS = ("topic", "partition", "segments", "size", "first", "last", "gaps", "overlaps", "newest")


class PartitionSummary:
    """What the tier has of one partition."""

    __slots__ = ("_coverage", "bytes", "first", "gap_count", "gaps", "newest_ms", "segments",
                 "unfinished", "where")  # fmt: skip

    def __init__(self, where: TopicIdPartition) -> None:
        self.where = where
        # Of finished copies.
        self.segments = 0
        self.bytes = 0
        self.first: int | None = None
        # Time of the newest event of a finished copy, ms; -1 without one.
        self.newest_ms = -1
        # Copies and deletions that have begun and are not finished.
        self.unfinished = 0
        self.gap_count = 0
        # The first ones.
        self.gaps: list[OffsetRange] = []
        self._coverage = Coverage()

    @property
    def last(self) -> int | None:
        """The last offset that a segment has."""
        return None if self._coverage.end is None else self._coverage.end - 1

    @property
    def overlaps(self) -> int:
        """Number of segments with offsets that an earlier one has too."""
        return self._coverage.overlaps

    def add(self, segment: RemoteSegment) -> None:
        """Add a segment. Segments come in the order of their start offsets."""
        if segment.state is not SegmentState.COPY_SEGMENT_FINISHED:
            self.unfinished += 1
            return
        self.segments += 1
        self.bytes += segment.size
        if self.first is None:
            self.first = segment.start_offset
        self.newest_ms = max(self.newest_ms, segment.event_ms)
        gap = self._coverage.add(segment)
        if gap is not None:
            self.gap_count += 1
            if len(self.gaps) < _GAPS_LISTED:
                self.gaps.append(gap)

    def as_json(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return {
            "topic": self.where.topic,
            "topic_id": uuid_to_string(self.where.topic_id),
            "partition": self.where.partition,
            "segments": self.segments,
            "bytes": self.bytes,
            "first_offset": self.first,
            "last_offset": self.last,
            "gaps": [gap._asdict() for gap in self.gaps],
            "gap_count": self.gap_count,
            "overlaps": self.overlaps,
            "unfinished": self.unfinished,
            "newest_copy_ms": None if self.newest_ms < 0 else self.newest_ms,
        }


def summaries_of_objects(
    storage: RemoteStorage, topic: str | None, advance: Callable[[int], None]
) -> Iterator[PartitionSummary]:
    """Yield what the manifests in a store tell about each partition.

    Args:
        storage: The store of one cluster.
        topic: Only this topic; None for all.
        advance: Called with the number of segments that were read.
    """
    summary: PartitionSummary | None = None
    for found in storage.list_segments(topic):
        segment = found.segment
        where = TopicIdPartition(segment.topic_id, segment.topic, segment.partition)
        if summary is None or summary.where != where:
            if summary is not None:
                yield summary
            summary = PartitionSummary(where)
        summary.add(segment)
        advance(1)
    if summary is not None:
        yield summary


def summaries_of_metadata(segments: ClusterSegments) -> Iterator[PartitionSummary]:
    """Yield what the metadata of a cluster tells about each partition."""
    for logs in segments.logs():
        for where, log in logs.items():
            if not log.count:
                continue
            summary = PartitionSummary(where)
            for segment in log.segments():
                summary.add(segment)
            yield summary


def show_summaries(found: Iterable[PartitionSummary], cluster_id: str, *, as_json: bool) -> None:
    """Print the partitions by topic and number, and their totals."""
    summaries = sorted(found, key=lambda each: (each.where.topic, each.where[0], each.where[2]))
    segments = sum(each.segments for each in summaries)
    total = sum(each.bytes for each in summaries)
    if as_json:
        echo_json(
            {
                "cluster_id": cluster_id,
                "segments": segments,
                "bytes": total,
                "partitions": [each.as_json() for each in summaries],
            }
        )
        return
    ids: dict[str, set[bytes]] = {}
    for each in summaries:
        ids.setdefault(each.where.topic, set()).add(each.where.topic_id)
    now_ms = time.time() * 1000
    rows = [_row(each, now_ms, is_single=len(ids[each.where.topic]) == 1) for each in summaries]
    echo_table(_COLUMNS, rows)
    for each in summaries:
        if each.gaps:
            _show_gaps(each)
    topics = sum(map(len, ids.values()))
    places = f"{counted(len(summaries), 'partition')} of {counted(topics, 'topic')}"
    echo_line(f"{counted(segments, 'segment')}, {size(total)}, in {places}, cluster {cluster_id}")
    unfinished = sum(each.unfinished for each in summaries)
    if unfinished:
        echo_line(dim(f"{unfinished} more are being copied or deleted"))


def _row(summary: PartitionSummary, now_ms: float, *, is_single: bool) -> tuple[object, ...]:
    """Return the cells. A deleted topic may have segments beside the new one of its name."""
    where = summary.where
    topic = where.topic if is_single else f"{where.topic} ({uuid_to_string(where.topic_id)})"
    newest = None if summary.newest_ms < 0 else short_time(max(0.0, now_ms - summary.newest_ms))
    return (
        topic,
        where.partition,
        summary.segments,
        size(summary.bytes),
        summary.first,
        summary.last,
        bad(summary.gap_count) if summary.gap_count else 0,
        warn(summary.overlaps) if summary.overlaps else 0,
        newest,
    )


def _show_gaps(summary: PartitionSummary) -> None:
    listed = ", ".join(map(str, summary.gaps))
    more = summary.gap_count - len(summary.gaps)
    rest = f" and {more} more" if more else ""
    name = f"{summary.where.topic}-{summary.where.partition}"
    echo_line(bad("gap"), f"    {name}: no segment has the offsets {listed}{rest}")
