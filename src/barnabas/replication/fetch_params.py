"""What a fetch asks: of the request as a whole, and of each partition (Kafka's FetchParams)."""

from __future__ import annotations

import msgspec

from barnabas.storage.read_result import FetchIsolation

CONSUMER_REPLICA_ID = -1
# A tool that reads as a consumer does, from whatever replica it likes.
DEBUGGING_REPLICA_ID = -2
# Kafka's moves between directories fetch with it. Ours do not, but a client that sends it gets
# what Kafka gives: everything up to the log end.
FUTURE_LOCAL_REPLICA_ID = -3

NO_EPOCH = -1
READ_COMMITTED = 1
ISOLATION_LEVELS = (0, READ_COMMITTED)


def fetch_isolation(replica_id: int, isolation_level: int) -> FetchIsolation:
    """How far a fetch sees: replicas to the log end, consumers by the request's isolation level."""
    if replica_id >= 0 or replica_id == FUTURE_LOCAL_REPLICA_ID:
        return FetchIsolation.LOG_END
    if isolation_level == READ_COMMITTED:
        return FetchIsolation.TXN_COMMITTED
    return FetchIsolation.HIGH_WATERMARK


def lookup_isolation(replica_id: int, isolation_level: int) -> FetchIsolation:
    """How far a look-up of offsets sees: but for consumers everybody sees the log end.

    So does the debugging consumer, who reads as consumers do; tools learn log end offsets so.
    """
    if replica_id != CONSUMER_REPLICA_ID:
        return FetchIsolation.LOG_END
    return fetch_isolation(replica_id, isolation_level)


class FetchParams(msgspec.Struct):
    """The request as a whole."""

    # Api version of the request: up to 2 byte limits are hard, up to 10 only leaders answer.
    version: int
    # Broker id of a follower, or one of the negative ids above.
    replica_id: int
    # Epoch of the follower's registration (KIP-903); -1 if it did not say.
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    # Of the whole answer.
    max_bytes: int
    isolation: FetchIsolation
    # Of the consumer; empty if it did not say (KIP-392).
    rack_id: str = ""
    # By which the request came in.
    listener_name: str = ""

    @property
    def is_from_follower(self) -> bool:
        """Whether another broker asks."""
        return self.replica_id >= 0

    @property
    def fetch_only_leader(self) -> bool:
        """Whether only the leader may answer."""
        return self.replica_id >= 0 or (
            self.replica_id == CONSUMER_REPLICA_ID and self.version < 11
        )

    @property
    def has_hard_byte_limit(self) -> bool:
        """Whether the byte limits hold for the first batch too, which is then cut (fetch v0-v2)."""
        return self.version <= 2


class FetchPartitionData(msgspec.Struct):
    """What is asked of one partition."""

    fetch_offset: int
    max_bytes: int
    # Of the follower's log; -1 from consumers.
    log_start_offset: int = -1
    # -1: not checked.
    current_leader_epoch: int = NO_EPOCH
    # Epoch of the last record the asker has; -1: divergence is not checked (KIP-595).
    last_fetched_epoch: int = NO_EPOCH
