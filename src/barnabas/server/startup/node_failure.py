"""Descriptions of failures of data directories and nodes, as text for the operator."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from barnabas.storage.topic_partition import LOG_SUFFIX, offset_of

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


# Remedy for the operator, by errno.
_REMEDIES = {
    errno.ENOSPC: "The disk is full: make room",
    errno.EDQUOT: "The disk quota is used up: make room or raise the quota",
    errno.EFBIG: "A file reached the largest size that is allowed: raise the limit (ulimit -f)",
    errno.EROFS: "The file system is read-only: find its errors in the kernel's log, and repair it",
    errno.EMFILE: "Too many files are open: raise the limit (ulimit -n)",
    errno.EACCES: "This user may not write there: correct the permissions",
}
_REMEDY = "Find the disk's errors in the kernel's log, and repair or replace the disk"


class NodeFailedError(RuntimeError):
    """The node has to end. The message has the reason and the remedy."""


def describe_directory_failure(path: str, error: OSError, disk: Disk) -> str:
    """Describe the failure of one directory, its effect and a remedy, while others still work."""
    return (
        f"Data directory {path} failed and is offline: {error}. Requests for its partitions get "
        f"KAFKA_STORAGE_ERROR, and it is no longer written. Other directories are not affected. "
        f"{_remedy(path, error, disk)}, then start the broker again"
    )


def metadata_failure(path: str, error: BaseException, disk: Disk) -> BaseException:
    """Return the error of the node for a failed disk of the metadata log.

    Args:
        path: the data directory that holds the metadata log.
        error: an OSError, or a storage error that an OSError caused.
        disk: the disk with the directory.

    Returns:
        A NodeFailedError, or `error` itself if no OSError caused it.
    """
    cause = error if isinstance(error, OSError) else error.__cause__
    if not isinstance(cause, OSError):
        return error
    return NodeFailedError(
        f"Data directory {path} failed: {cause}. The node cannot continue without the metadata "
        f"log, which is in this directory. {_remedy(path, cause, disk)}, then start the node again"
    )


def last_directory_failure(path: str, error: OSError, disk: Disk) -> NodeFailedError:
    """Return the error of the node after its last online data directory has failed."""
    return NodeFailedError(
        f"Data directory {path} failed: {error}. No other data directory is left. "
        f"{_remedy(path, error, disk)}, then start the broker again"
    )


def _remedy(path: str, error: OSError, disk: Disk) -> str:
    remedy = _REMEDIES.get(error.errno or 0, _REMEDY)
    if error.errno != errno.ENOSPC:
        return remedy
    try:
        missing = missing_bytes(disk, path)
    except OSError:
        # A failed disk may be unable to report its free space.
        return remedy
    return f"{remedy} for at least {missing} bytes" if missing else remedy
