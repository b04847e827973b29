"""Offset ranges: the offsets that each task reads, and the number of records per trigger.

Ranges depend on offsets only. The same offsets give the same ranges after a restart, which
exactly-once output requires.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.spark.offsets import Offsets


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets of one partition from `start` to `end`, without `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the range."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """Number of offsets; compaction and transaction markers can make records fewer."""
        return self.end - self.start


def ranges_between(start: Mapping[TopicPartition, int], end: Offsets) -> list[OffsetRange]:
    """Return the non-empty ranges from `start` to `end`; a missing start means offset 0."""
    return [
        OffsetRange(tp.topic, tp.partition, start.get(tp, 0), offset)
        for tp, offset in sorted(end.items())
        if offset > start.get(tp, 0)
    ]


def split_ranges(
    ranges: Iterable[OffsetRange],
    min_partitions: int | None = None,
    max_records_per_partition: int | None = None,
) -> list[OffsetRange]:
    """Split ranges to get about `min_partitions`, and none larger than the maximum.

    Large ranges are split into more parts than small ranges.
    """
    result = list(ranges)
    if max_records_per_partition is not None:
        limit = max_records_per_partition
        result = [part for one in result for part in _cut(one, ceil(one.size / limit))]
    if min_partitions is not None and 0 < len(result) < min_partitions:
        total = sum(one.size for one in result)
        result = [
            part
            for one in result
            for part in _cut(one, max(1, round(one.size / total * min_partitions)))
        ]
    return result


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    parts = max(1, min(parts, whole.size))
    bounds = [whole.start + whole.size * index // parts for index in range(parts + 1)]
    return [
        OffsetRange(whole.topic, whole.partition, low, high)
        for low, high in itertools.pairwise(bounds)
    ]


def limit_offsets(start: Offsets, latest: Offsets, limit: int) -> Offsets:
    """Return the end offsets of a trigger that takes about `limit` records.

    Each partition gets a share in proportion to its pending offsets, and at least one offset, so
    that large partitions do not starve small ones.
    """
    sizes = {tp: latest[tp] - start.get(tp, 0) for tp in latest}
    total = sum(size for size in sizes.values() if size > 0)
    if total <= limit:
        return dict(latest)
    result: Offsets = {}
    seen = given = 0
    for tp, size in sorted(sizes.items()):
        begin = start.get(tp, 0)
        if size <= 0:
            result[tp] = latest[tp]
            continue
        # Rounding the running sum makes the shares add up to the limit.
        seen += size
        share = max(1, limit * seen // total - given)
        given += share
        result[tp] = min(begin + share, latest[tp])
    return result
