"""The parameters of a fetch request and of each of its partitions (Kafka's FetchParams).

A fetch session (KIP-227) caches the parameters of a partition with its last response.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.storage.results import FetchIsolation

if TYPE_CHECKING:
    from barnabas.replication.partition.results import FetchResult
    from barnabas.storage.results import LogOffsetMetadata
    from barnabas.storage.topic_partition import TopicIdPartition


CONSUMER_REPLICA_ID = -1
# A debugging tool: it reads like a consumer, but from any replica.
DEBUGGING_REPLICA_ID = -2
# In Kafka, moves between log directories use this id. Barnabas' own moves do not, but a client with
# this id may read up to the log end, as in Kafka.
FUTURE_LOCAL_REPLICA_ID = -3

NO_EPOCH = -1
READ_COMMITTED = 1
ISOLATION_LEVELS = (0, READ_COMMITTED)
# Cached member: access to an enum member costs 100 ns, as much as a function call.
_HIGH_WATERMARK = FetchIsolation.HIGH_WATERMARK


def fetch_isolation(replica_id: int, isolation_level: int) -> FetchIsolation:
    """Return the isolation of a fetch: LOG_END for replicas, else the level in the request."""
    if replica_id >= 0 or replica_id == FUTURE_LOCAL_REPLICA_ID:
        return FetchIsolation.LOG_END
    if isolation_level == READ_COMMITTED:
        return FetchIsolation.TXN_COMMITTED
    return _HIGH_WATERMARK


def lookup_isolation(replica_id: int, isolation_level: int) -> FetchIsolation:
    """Return the isolation of an offset lookup: LOG_END for every client except consumers.

    LOG_END also applies to the debugging consumer, since tools query log end offsets this way.
    """
    if replica_id != CONSUMER_REPLICA_ID:
        return FetchIsolation.LOG_END
    return fetch_isolation(replica_id, isolation_level)


class ReadLimit(msgspec.Struct):
    """The limit of a response whose partitions are read in parts. Each part moves it."""

    # Number of bytes that further partitions may return.
    remaining: int
    # Whether the next batch is returned whole, even above the limit.
    min_one_batch: bool


class FetchParams(msgspec.Struct):
    """The parameters of the request as a whole."""

    # API version. Up to 2, byte limits are hard. Up to 10, only leaders serve consumers.
    version: int
    # Broker id of a follower, or one of the negative ids above.
    replica_id: int
    # Epoch of the follower's registration (KIP-903). -1 if absent.
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    # Limit of the whole response.
    max_bytes: int
    isolation: FetchIsolation
    # The consumer's rack (KIP-392). Empty if absent.
    rack_id: str = ""
    # Name of the listener that received the request.
    listener_name: str = ""
    # Results of the fields above, computed once, since each partition needs them. Whether the
    # client is a follower, and whether only the leader may serve the request.
    is_from_follower: bool = False
    fetch_only_leader: bool = False
    # Whether the byte limits also truncate the first batch (fetch v0-v2).
    has_hard_byte_limit: bool = False

    def __post_init__(self) -> None:
        version, replica_id = self.version, self.replica_id
        self.has_hard_byte_limit = version <= 2
        if replica_id >= 0:
            self.is_from_follower = self.fetch_only_leader = True
        elif version < 11:
            self.fetch_only_leader = replica_id == CONSUMER_REPLICA_ID

    def read_limit(self) -> ReadLimit:
        """Return the limit of a response before its first partition is read."""
        return ReadLimit(self.max_bytes, not self.has_hard_byte_limit)


class FetchPartitionData(msgspec.Struct):
    """The parameters of one partition."""

    fetch_offset: int
    max_bytes: int
    # Log start offset of the follower; -1 from consumers.
    log_start_offset: int = -1
    # Leader epoch that the client knows. -1: not checked.
    current_leader_epoch: int = NO_EPOCH
    # Epoch of the client's last record (KIP-595). -1: divergence is not checked.
    last_fetched_epoch: int = NO_EPOCH


UNKNOWN = -1

# (topic id, partition) in sessions with topic ids, else (topic name, partition).
SessionKey: TypeAlias = tuple[bytes | str, int]


class SessionPartition:
    """The last request and the last response for one partition."""

    __slots__ = (
        "high_watermark",
        "key",
        "log_start_offset",
        "position",
        "requested",
        "truncations",
        "where",
    )

    def __init__(
        self, key: SessionKey, where: TopicIdPartition, requested: FetchPartitionData
    ) -> None:
        self.key = key
        self.where = where
        # The last request. A request that does not name the partition repeats it.
        self.requested = requested
        # Values in the last response. -1 before the first response or after an error: then the next
        # response includes the partition.
        self.high_watermark = UNKNOWN
        self.log_start_offset = UNKNOWN
        # Number of truncations in the last response, which only mirrors get.
        self.truncations = 0
        # Log position of the fetch offset while the partition is idle.
        self.position: LogOffsetMetadata | None = None

    def has_changes(self, result: FetchResult) -> bool:
        """Whether the response must include `result`: records, an error or a changed value."""
        return (
            len(result.records) > 0
            or result.error is not ErrorCode.NONE
            or result.high_watermark != self.high_watermark
            or result.log_start_offset != self.log_start_offset
            or result.preferred_read_replica >= 0
            or result.diverging_epoch is not None
            or result.truncations != self.truncations
        )

    def note(self, result: FetchResult) -> None:
        """Record that the response includes `result`.

        The high watermark becomes unknown after an error or a diverging epoch, since the follower
        ignores the other fields of such a response.
        """
        is_unread = result.error is not ErrorCode.NONE or result.diverging_epoch is not None
        self.high_watermark = UNKNOWN if is_unread else result.high_watermark
        self.log_start_offset = result.log_start_offset
        self.truncations = result.truncations
