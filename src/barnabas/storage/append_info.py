"""Result of an append (Kafka's LogAppendInfo), and its origin (AppendOrigin)."""

from __future__ import annotations

from enum import Enum

import msgspec


class AppendOrigin(Enum):
    """Origin of an append, which decides how much is validated."""

    # Produce request of a client: everything is validated.
    CLIENT = "client"
    # A coordinator's records and transaction markers: only the producer epoch is validated.
    COORDINATOR = "coordinator"
    # A marker of a transaction of version 2: its epoch must be above the producer's (KIP-1228).
    BUMPING_MARKER = "bumping marker"
    # The leader of the metadata quorum: offsets are checked, not assigned.
    RAFT = "raft"
    # The leader's batches on a follower, which are stored unchanged.
    REPLICATION = "replication"


class AppendInfo(msgspec.Struct, gc=False):
    """Result of one append."""

    # Offset of the first record; for a duplicate, the offset of the first append. -1 if there was
    # nothing to append.
    first_offset: int
    # Offset of the last record, inclusive; first_offset - 1 if there was nothing to append.
    last_offset: int
    # Log start offset at the time of the append.
    log_start_offset: int
    # Largest timestamp of the appended batches, -1 without one.
    max_timestamp: int = -1
    # The broker's time for a LogAppendTime topic, else -1.
    log_append_time: int = -1
    # Leader epoch of the last batch.
    last_leader_epoch: int = -1
    record_count: int = 0
    # Bytes appended to the file.
    size: int = 0
    # Whether the batch was already appended earlier; nothing was written now.
    duplicate: bool = False
    # Whether flush.messages is reached. Acknowledgments then wait for `Log.flush_async`.
    needs_flush: bool = False
    # Whether the append moved the high watermark, since no follower limits it. Set by the leader.
    moved_high_watermark: bool = False
