"""Offsets by partition: as JSON in options and checkpoints, and as ranges for the tasks of a batch.

The JSON is that of Spark's Kafka connector, `{"topic": {"0": 123}}`; in options -2 means earliest
and -1 latest. Ranges depend on offsets only. The same offsets give the same ranges after a restart,
which exactly-once output requires.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from barnabas.client.topic_partition import TopicPartition
from barnabas.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Offsets = dict[TopicPartition, int]

LATEST = -1
EARLIEST = -2


def parse_offsets(option: str, text: str, lowest: int) -> Offsets:
    """Parse a JSON option with a number for each partition.

    Args:
        option: the option's name, for errors.
        text: the option's value.
        lowest: the smallest allowed number.

    Raises:
        OptionError: the value is not JSON of this form, or a number is too small.
    """
    example = '{"topic": {"0": 23, "1": 42}}'
    result: Offsets = {}
    for topic, partitions in _items(option, _loaded(option, text, example), example):
        for partition, number in _items(option, partitions, example):
            if not partition.isdigit() or isinstance(number, bool) or not isinstance(number, int):
                raise OptionError(
                    f"{option} has {partition!r}: {number!r} for topic {topic}; expected {example}"
                )
            if number < lowest:
                raise OptionError(f"{option} has {number} for {topic}-{partition}, too small")
            result[TopicPartition(topic, int(partition))] = number
    if not result:
        raise OptionError(f"{option} names no partition; expected {example}")
    return result


def parse_partitions(option: str, text: str) -> list[TopicPartition]:
    """Parse an `assign` option such as `{"topic": [0, 1]}` to sorted partitions, possibly none.

    Raises:
        OptionError: the value is not JSON of this form.
    """
    example = '{"topic": [0, 1]}'
    result = []
    for topic, partitions in _items(option, _loaded(option, text, example), example):
        if not isinstance(partitions, list) or not all(
            isinstance(p, int) and not isinstance(p, bool) and p >= 0 for p in partitions
        ):
            raise OptionError(f"{option} has {partitions!r} for topic {topic}; expected {example}")
        result += [TopicPartition(topic, partition) for partition in partitions]
    return sorted(set(result))


def _loaded(option: str, text: str, example: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        raise OptionError(f"{option} is not JSON: {text!r}; expected {example}") from None


def _items(option: str, value: object, example: str) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise OptionError(f"{option} has {value!r} where an object is expected, as in {example}")
    return list(value.items())


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Convert offsets for Spark's checkpoint; sorted, so that equal offsets give equal text."""
    result: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        result.setdefault(topic, {})[str(partition)] = offset
    return result


def from_json(value: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Convert offsets back from the form of `to_json`."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in value.items()
        for partition, offset in partitions.items()
    }


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
