"""How much room a start needs on the disk of a data directory that is full."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.file_names import LOG_SUFFIX, offset_of

if TYPE_CHECKING:
    from barnabas.runtime.disk import Disk

# Bytes that a start writes whatever there is: the state of the election, records of the metadata
# log, checkpoints, and the offsets topic's first batch; each file takes whole blocks.
_BASE_BYTES = 128 << 10
# Bytes for each log: leader epochs, a producer snapshot, and the blocks of two indexes.
_LOG_BYTES = 16 << 10
# An index entry of 8 bytes and a time index entry of 12 bytes for each 4096 bytes of a log, which
# recovery may have to write again for the last segment.
_LOG_BYTES_PER_INDEX_BYTE = 4096 // (8 + 12)


def missing_bytes(disk: Disk, path: str) -> int:
    """Return how many bytes have to be freed before a start can work; 0 if there is room.

    It is an upper estimate for a node of the present size, not a promise that nothing else is
    written: clients may send more at once.

    Args:
        disk: where the data directory is.
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
