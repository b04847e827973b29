"""Disk space that a broker needs to start on a full data directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.file_names import LOG_SUFFIX, offset_of

if TYPE_CHECKING:
    from barnabas.runtime.disk import Disk

# Bytes written at every start: election state, metadata records, checkpoints, and the first batch
# of the offsets topic. Each file occupies whole blocks.
_BASE_BYTES = 128 << 10
# Bytes per log: leader epochs, a producer snapshot, and the blocks of two indexes.
_LOG_BYTES = 16 << 10
# Each 4096 bytes of a log have an offset index entry of 8 bytes and a time index entry of 12.
# Recovery may have to rewrite them for the last segment.
_LOG_BYTES_PER_INDEX_BYTE = 4096 // (8 + 12)


def missing_bytes(disk: Disk, path: str) -> int:
    """Return how many bytes must be freed before the broker can start; 0 if none.

    The result is an upper estimate for the current data. Clients may write more at the same time.

    Args:
        disk: the disk that contains the data directory.
        path: the data directory.

    Raises:
        OSError: the directory cannot be read.
    """
    needed = _BASE_BYTES
    for name in disk.list(path):
        directory = f"{path}/{name}"
        if not disk.is_directory(directory):
            continue
        needed += _LOG_BYTES
        segments = [
            each for each in disk.list(directory) if offset_of(each, LOG_SUFFIX) is not None
        ]
        if segments:
            needed += disk.size(f"{directory}/{max(segments)}") // _LOG_BYTES_PER_INDEX_BYTE
    _, free = disk.space(path)
    return max(0, needed - free)
