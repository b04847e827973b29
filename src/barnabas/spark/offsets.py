"""Offsets by partition as JSON in options and checkpoints: `{"topic": {"0": 123}}`.

The format is that of Spark's Kafka connector; in options -2 means earliest and -1 latest.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from barnabas.client.topic_partition import TopicPartition
from barnabas.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    try:
        loaded = json.loads(text)
    except ValueError:
        raise OptionError(f"{option} is not JSON: {text!r}; expected {example}") from None
    result: Offsets = {}
    for topic, partitions in _items(option, loaded, example):
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
    try:
        loaded = json.loads(text)
    except ValueError:
        raise OptionError(f"{option} is not JSON: {text!r}; expected {example}") from None
    result = []
    for topic, partitions in _items(option, loaded, example):
        if not isinstance(partitions, list) or not all(
            isinstance(p, int) and not isinstance(p, bool) and p >= 0 for p in partitions
        ):
            raise OptionError(f"{option} has {partitions!r} for topic {topic}; expected {example}")
        result += [TopicPartition(topic, partition) for partition in partitions]
    return sorted(set(result))


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
