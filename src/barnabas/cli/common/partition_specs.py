"""Partitions as users type them: TOPIC, or TOPIC:0,2 for some of its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.facade import Client

__all__ = ["parse_specs", "partitions_of"]


def parse_specs(specs: Sequence[str]) -> list[tuple[str, tuple[int, ...]]]:
    """Parse specs into topics and partition numbers; no numbers means all partitions.

    Raises:
        click.UsageError: The text after the colon is not a list of numbers.
    """
    found = []
    for spec in specs:
        topic, colon, numbers = spec.partition(":")
        words = numbers.split(",") if colon else []
        if not topic or not all(word.isdigit() for word in words):
            raise click.UsageError(f"{spec}: write TOPIC, or TOPIC:0,2 for some partitions")
        found.append((topic, tuple(map(int, words))))
    return found


def partitions_of(client: Client, specs: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions that the specs name, without duplicates.

    Raises:
        click.UsageError: The topic does not have a partition with that number.
        UnknownTopicError: The topic does not exist.
    """
    parsed = parse_specs(specs)
    found = client.partitions_for([topic for topic, _ in parsed], may_be_new=False)
    wanted: dict[TopicPartition, None] = {}
    for topic, numbers in parsed:
        for number in numbers or found[topic]:
            if number not in found[topic]:
                raise click.UsageError(f"{topic} has partitions 0 to {len(found[topic]) - 1}")
            wanted[TopicPartition(topic, number)] = None
    return list(wanted)
