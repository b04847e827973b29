"""The target of `why`: a partition, an offset, a topic or a group, as users type it."""

from __future__ import annotations

import re
from typing import NamedTuple

import click

__all__ = ["Target", "parse_target"]

_PARTITION = re.compile(r"(?P<topic>[\w.-]+):(?P<partition>\d+)(?:@(?P<offset>\d+))?", re.ASCII)


class Target(NamedTuple):
    """The parsed target; a plain name is a topic, a group, or both."""

    name: str
    # None: all partitions.
    partition: int | None = None
    # None: the partition as a whole.
    offset: int | None = None


def parse_target(text: str) -> Target:
    """Parse TOPIC:PARTITION, TOPIC:PARTITION@OFFSET, or a name.

    Raises:
        click.UsageError: The text has an offset but no partition.
    """
    found = _PARTITION.fullmatch(text)
    if found is None:
        if "@" in text and ":" not in text and text.rpartition("@")[2].isdigit():
            raise click.UsageError(f"{text}: write TOPIC:PARTITION@OFFSET")
        return Target(text)
    offset = found["offset"]
    return Target(found["topic"], int(found["partition"]), None if offset is None else int(offset))
