"""Names of the files in a partition's directory (Kafka's LogFileUtils)."""

from __future__ import annotations

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
PRODUCER_SNAPSHOT_SUFFIX = ".snapshot"
DELETED_FILE_SUFFIX = ".deleted"
CLEANED_FILE_SUFFIX = ".cleaned"
SWAP_FILE_SUFFIX = ".swap"

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
# Barnabas' own file; Apache Kafka ignores it.
LARGEST_TIMESTAMPS = "largest-timestamps"

# One digit more than the largest offset, 2**63 - 1, has.
_OFFSET_DIGITS = 20


def offset_file(directory: str, offset: int, suffix: str) -> str:
    """Return the path of the file that begins at `offset`."""
    return f"{directory}/{offset:020d}{suffix}"


def offset_of(name: str, suffix: str) -> int | None:
    """Return the offset in a file name; None if the name does not have that suffix."""
    stem = name.removesuffix(suffix)
    if stem == name or not (stem.isascii() and stem.isdigit()) or len(stem) != _OFFSET_DIGITS:
        return None
    return int(stem)
