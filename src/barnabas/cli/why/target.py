"""What `why` is asked about: a partition, an offset, a topic or a group, as users write them."""

from __future__ import annotations

import re
from typing import NamedTuple

import click

__all__ = ["Target", "parse_target"]

_PARTITION = re.compile(r"(?P<topic>[\w.-]+):(?P<partition>\d+)(?:@(?P<offset>\d+))?", re.ASCII)


class Target(NamedTuple):
    """What the words say; a mere name is a topic, a group, or both."""

    name: str
    # None: all of them.
    partition: int | None = None
    # None: the partition as a whole.
    offset: int | None = None


def parse_target(text: str) -> Target:
    """TOPIC:PARTITION, TOPIC:PARTITION@OFFSET, or a name.

    Raises:
        click.UsageError: an offset without a partition.
    """
    found = _PARTITION.fullmatch(text)
    if found is None:
        if "@" in text and ":" not in text and text.rpartition("@")[2].isdigit():
            raise click.UsageError(f"{text}: write TOPIC:PARTITION@OFFSET")
        return Target(text)
    offset = found["offset"]
    return Target(found["topic"], int(found["partition"]), None if offset is None else int(offset))
