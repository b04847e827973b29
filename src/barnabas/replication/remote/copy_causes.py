"""Why the oldest closed segment of a partition is not in the remote tier yet.

The causes are labels of metrics, so there is a fixed set of them. `barnabas why` has a sentence and
a remedy for each.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from barnabas.storage.topic_partition import TopicPartition


class CopyCause(StrEnum):
    """What a closed segment waits for. The values are labels of metrics."""

    # The events of the partition in the metadata topic are not read yet.
    METADATA = "metadata"
    # An event could not be written to the metadata topic.
    METADATA_WRITE = "metadata-write"
    # The followers in sync have not copied all of its records.
    UNCOMMITTED = "uncommitted"
    # A transaction with records in it, or before it, is open.
    TRANSACTION = "transaction"
    # remote.copy.lag.ms and remote.copy.lag.bytes delay it.
    COPY_LAG = "copy-lag"
    # All threads that copy are busy with other partitions.
    THREADS = "threads"
    # The copies exceed remote.log.manager.copy.max.bytes.per.second.
    QUOTA = "quota"
    # The broker knows barnabas.remote.segments.max segments.
    SEGMENTS_MAX = "segments-max"
    # Its copy runs, and no earlier try has failed.
    COPYING = "copying"
    # The store returned more metadata than is allowed, so copies stopped.
    METADATA_TOO_LARGE = "metadata-too-large"
    # The segment cannot be read on this broker.
    LOG = "log"
    # The latest try failed with an error of the store: see `store_health.FAILURE_KINDS`.
    UNAVAILABLE = "unavailable"
    REFUSED = "refused"
    FULL = "full"
    MISSING = "missing"
    DAMAGED = "damaged"
    UNEXPECTED = "unexpected"


# Causes that delay all copies of a broker.
PAUSES = (CopyCause.REFUSED, CopyCause.FULL, CopyCause.QUOTA, CopyCause.SEGMENTS_MAX)


class WaitingSegment(NamedTuple):
    """The oldest closed segment of a led partition without a copy."""

    partition: TopicPartition
    base_offset: int
    # Since when it is the oldest one (monotonic, ms).
    since_ms: float
    cause: CopyCause
