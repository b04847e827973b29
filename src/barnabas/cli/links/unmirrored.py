"""Finds the records of a cluster that the mirrors of its topics never got.

A topic that was mirrored, and whose mirror was promoted, may have records that no mirror has: those
of producers that went on. They begin behind the last batch that both logs have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.record.batch import batches
from barnabas.replication.links.mirror_comparison import are_equal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.record.batch import BatchHeader

# Offsets that are compared at once: first the last batch of a log, then more and more before it.
_OFFSETS_AT_FIRST = 1
_OFFSETS_MORE = 32
_OFFSETS_MAX = 100_000


class Unmirrored(NamedTuple):
    """The end of a partition that the other cluster does not have."""

    topic: str
    partition: int
    # The offset behind the last batch that both clusters have.
    offset: int
    records: int
    # Markers of transactions, which no consumer sees.
    markers: int


class _Range(NamedTuple):
    start: int
    end: int


def find_unmirrored(
    old: Client, new: Client, partitions: Iterable[TopicPartition], compacted: Collection[str]
) -> list[Unmirrored]:
    """Return the partitions of the old source with batches that the new source does not have.

    Args:
        old: the cluster whose topics were mirrored.
        new: the cluster with the promoted mirrors.
        partitions: partitions that both clusters have.
        compacted: the topics with compaction, which changes batches.
    """
    wanted = list(partitions)
    theirs, ours = _ranges(old, wanted), _ranges(new, wanted)
    found: list[Unmirrored] = []
    for key in wanted:
        last = _compare(old, new, key, theirs[key], ours[key], key.topic in compacted)
        if last is not None:
            found.append(last)
    return found


def _ranges(client: Client, partitions: list[TopicPartition]) -> dict[TopicPartition, _Range]:
    starts = client.list_offsets(dict.fromkeys(partitions, "earliest"))
    ends = client.list_offsets(dict.fromkeys(partitions, "latest"))
    return {key: _Range(starts[key].offset, ends[key].offset) for key in partitions}


def _compare(
    old: Client, new: Client, key: TopicPartition, theirs: _Range, ours: _Range, compacted: bool
) -> Unmirrored | None:
    """Compare one partition backwards from its end. Return None if both have its last batch."""
    end, size = theirs.end, _OFFSETS_AT_FIRST
    records = markers = 0
    while end > theirs.start:
        start = max(theirs.start, end - size)
        size = min(_OFFSETS_MAX, size * _OFFSETS_MORE)
        # The first batch may begin before the range.
        own = [each for each in _headers(old, key, _Range(start, end)) if each.base_offset < end]
        known = _known(new, key, ours, _Range(own[0].base_offset, end)) if own else {}
        for header in reversed(own):
            twin = known.get(header.base_offset)
            if twin is not None and are_equal(header, twin, is_compacted=compacted):
                if not records and not markers:
                    return None
                return Unmirrored(key.topic, key.partition, header.next_offset, records, markers)
            if header.is_control:
                markers += header.record_count
            else:
                records += header.record_count
        end = min(start, own[0].base_offset) if own else start
    if not records and not markers:
        return None
    return Unmirrored(key.topic, key.partition, theirs.start, records, markers)


def _known(
    new: Client, key: TopicPartition, ours: _Range, wanted: _Range
) -> dict[int, BatchHeader]:
    found = _headers(new, key, _Range(max(wanted.start, ours.start), min(wanted.end, ours.end)))
    return {each.base_offset: each for each in found}


def _headers(client: Client, key: TopicPartition, wanted: _Range) -> list[BatchHeader]:
    """Return the headers of the batches with these offsets, ascending."""
    if wanted.start >= wanted.end:
        return []
    return [
        header for each in client.fetch_range({key: wanted}) for _, header in batches(each.data)
    ]
