"""Files of a log as checks read them: partition directories, batches of a segment, findings.

Files are opened for reading only: this module cannot modify a log or create a file.
"""

from __future__ import annotations

import os
import re
import struct
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple, Self

import click

from barnabas.record.batch import (
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    MAGIC_V2,
    BatchHeader,
    check_crc,
)
from barnabas.runtime import system_calls
from barnabas.runtime.disk import RealDisk
from barnabas.storage.files.metadata_files import CLEAN_SHUTDOWN

if TYPE_CHECKING:
    from collections.abc import Iterator

METADATA_TOPIC = "__cluster_metadata"
METADATA_LOG = f"{METADATA_TOPIC}-0"
_BLOCK_BYTES = 1 << 20
_LENGTH_MIN = HEADER_SIZE - LOG_OVERHEAD
# The smallest message of format 0.
_OLD_LENGTH_MIN = 14
_LENGTH = struct.Struct(">i")


class ScannedBatch(NamedTuple):
    """A batch in the file."""

    position: int
    header: BatchHeader
    # The whole batch; only valid until the next batch.
    data: memoryview
    crc_is_right: bool


class SegmentScan:
    """An iterator over the batches of a segment, for one use.

    Afterwards `stopped_at` and `reason` tell where the data is invalid.
    """

    def __init__(self, file: ReadOnlyFile) -> None:
        self._file = file
        # Position at which the scan ended: the end of the file, unless `reason` is set.
        self.stopped_at = 0
        self.reason: str | None = None
        # Set if the file has a message format older than Kafka 0.11 (0 or 1).
        self.old_format: int | None = None
        # Whether the last batch is incomplete.
        self.is_cut_off = False

    def __iter__(self) -> Iterator[ScannedBatch]:
        block, block_start = memoryview(b""), 0
        position, end = 0, self._file.size
        while position < end:
            self.stopped_at = position
            at = position - block_start
            if at + HEADER_SIZE > len(block):
                block, block_start, at = self._read(_BLOCK_BYTES, position), position, 0
            size = self._size_at(block, at, end - position)
            if not size:
                return
            if at + size > len(block):
                block, block_start, at = self._read(max(size, _BLOCK_BYTES), position), position, 0
                if len(block) < size:
                    self._stop("the file was cut while it was read")
                    return
            header = BatchHeader._make(HEADER.unpack_from(block, at))
            data = block[at : at + size]
            yield ScannedBatch(position, header, data, check_crc(block, at, header))
            position += size
        self.stopped_at = end

    def _size_at(self, block: memoryview, at: int, left: int) -> int:
        """Return the size of the batch at `at`; on failure, set the reason and return 0."""
        if left < HEADER_SIZE and left <= MAGIC_POSITION:
            self.is_cut_off = True
            self._stop(f"{left} bytes are too few for a batch")
            return 0
        length = int(_LENGTH.unpack_from(block, at + 8)[0])
        magic = block[at + MAGIC_POSITION]
        if magic in (0, 1) and _OLD_LENGTH_MIN <= length <= left - LOG_OVERHEAD:
            self.old_format = magic
            self._stop(f"message format {magic}")
            return 0
        if magic != MAGIC_V2 or length < _LENGTH_MIN:
            zeros = not any(block[at : at + HEADER_SIZE])
            self._stop("zeros instead of a batch" if zeros else "no batch begins here")
            return 0
        if length + LOG_OVERHEAD > left:
            self.is_cut_off = True
            missing = length + LOG_OVERHEAD - left
            self._stop(f"a batch of {length + LOG_OVERHEAD} bytes lacks its last {missing}")
            return 0
        return length + LOG_OVERHEAD

    def _stop(self, reason: str) -> None:
        self.reason = reason

    def _read(self, size: int, position: int) -> memoryview:
        return memoryview(self._file.read_at(size, position))


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


def needs_recovery(path: str) -> bool:
    """Return whether the next start recovers logs of topics in a data directory.

    Controllers have the metadata log only. They write no marker of a clean shutdown.
    """
    if RealDisk().exists(f"{path}/{CLEAN_SHUTDOWN}"):
        return False
    return any(each.topic != METADATA_TOPIC for each in partition_directories(path))


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


class ReadOnlyFile:
    """A file with its size at opening time; data that a broker appends later is not visible."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | system_calls.BINARY)
        self.size = os.fstat(self._descriptor).st_size

    def read_at(self, size: int, position: int) -> bytes:
        """Return up to `size` bytes from `position`."""
        size = min(size, max(0, self.size - position))
        return system_calls.read_at(self._descriptor, size, position)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_locked(path: str) -> bool:
    """Return whether a broker holds the lock file, without locking or creating it."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return system_calls.is_locked(descriptor)
    finally:
        os.close(descriptor)


class FileFinding(NamedTuple):
    """A problem, or a note about something worth knowing."""

    path: str
    what: str
    # What to do about it.
    remedy: str
    is_problem: bool


class FileFindings:
    """The findings about files, in the order in which they were made."""

    def __init__(self) -> None:
        self.all: list[FileFinding] = []

    def problem(self, path: str, what: str, remedy: str) -> None:
        """Add a problem."""
        self.all.append(FileFinding(path, what, remedy, True))

    def note(self, path: str, what: str, remedy: str = "") -> None:
        """Add a note about something that is not wrong."""
        self.all.append(FileFinding(path, what, remedy, False))

    @property
    def problems(self) -> list[FileFinding]:
        """The findings that are problems."""
        return [finding for finding in self.all if finding.is_problem]
