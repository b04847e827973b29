"""Why a data directory, or a whole node, cannot go on: in words for its operator."""

from __future__ import annotations

import errno

# What the operator can do, by the kind of failure.
_REMEDIES = {
    errno.ENOSPC: "The disk is full: make room",
    errno.EDQUOT: "The disk quota is used up: make room or raise it",
    errno.EFBIG: "A file reached the largest size that is allowed: raise the limit (ulimit -f)",
    errno.EROFS: "The file system is read-only: look for its errors in the kernel's log, mend it",
    errno.EMFILE: "Too many files are open: raise the limit (ulimit -n)",
    errno.EACCES: "This user may not write there: mend the permissions",
}
_REMEDY = "Look for the disk's errors in the kernel's log and mend or replace it"


class NodeFailedError(RuntimeError):
    """The node has to end; the message says why and what to do."""


def describe_directory_failure(path: str, error: OSError) -> str:
    """Which directory failed, how, what that means and what to do, while others go on."""
    return (
        f"Data directory {path} failed and is offline: {error}. Its partitions are answered with "
        f"KAFKA_STORAGE_ERROR and nothing more is written to it; other directories go on. "
        f"{_remedy(error)}, then start the broker again"
    )


def metadata_failure(path: str, error: BaseException) -> BaseException:
    """What a failure of the metadata log's disk means for the node; other errors as they are.

    Args:
        path: the data directory that holds the metadata log.
        error: an OSError, or what storage made of one.
    """
    cause = error if isinstance(error, OSError) else error.__cause__
    if not isinstance(cause, OSError):
        return error
    return NodeFailedError(
        f"Data directory {path} failed: {cause}. It holds the metadata log, without which the node "
        f"cannot go on. {_remedy(cause)}, then start the node again"
    )


def last_directory_failure(path: str, error: OSError) -> NodeFailedError:
    """The last data directory that was left has failed."""
    return NodeFailedError(
        f"Data directory {path} failed: {error}. No other data directory is left. "
        f"{_remedy(error)}, then start the broker again"
    )


def _remedy(error: OSError) -> str:
    return _REMEDIES.get(error.errno or 0, _REMEDY)
