"""Recognize the directories of partitions in a data directory by their names."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import NamedTuple

import click

from barnabas.runtime.disk import RealDisk

__all__ = ["PartitionDirectory", "partition_directories", "partition_of"]

_PARTITION = re.compile(
    r"(?P<topic>.+)-(?P<partition>\d+)(?:\.[0-9a-f]{32}-(?:delete|stray|future))?"
)
# End of the names of deleted logs.
_DELETED = "-delete"


class PartitionDirectory(NamedTuple):
    """A directory with the log of one partition."""

    path: str
    topic: str
    partition: int

    @property
    def name(self) -> str:
        """TOPIC-PARTITION."""
        return f"{self.topic}-{self.partition}"

    @property
    def is_current(self) -> bool:
        """Whether the broker uses the log: it is neither deleted, nor stray, nor a future copy."""
        return PurePosixPath(RealDisk().absolute(self.path)).name == self.name


def partition_of(path: str) -> PartitionDirectory | None:
    """Return the partition that a directory is named after; None for any other name."""
    found = _PARTITION.fullmatch(PurePosixPath(RealDisk().absolute(path)).name)
    if found is None:
        return None
    return PartitionDirectory(path.rstrip("/"), found["topic"], int(found["partition"]))


def partition_directories(path: str) -> list[PartitionDirectory]:
    """Return the partitions in a data directory, or the one that `path` is.

    Deleted logs in a data directory are left out: the broker removes their files.

    Raises:
        click.UsageError: The path is neither a data directory nor a partition's directory.
    """
    if not RealDisk().is_directory(path):
        raise click.UsageError(f"{path} is not a directory")
    inside = [
        partition
        for name in RealDisk().list(path)
        if not name.endswith(_DELETED)
        and RealDisk().is_directory(f"{path}/{name}")
        and (partition := partition_of(f"{path}/{name}")) is not None
    ]
    if inside or RealDisk().exists(f"{path}/meta.properties"):
        return inside
    own = partition_of(path)
    if own is None:
        raise click.UsageError(
            f"{path} is neither a data directory (log.dirs) nor a partition's (TOPIC-0)"
        )
    return [own]
