"""What an append did (Kafka's LogAppendInfo), and who asked for it (AppendOrigin)."""

from __future__ import annotations

from enum import Enum

import msgspec


class AppendOrigin(Enum):
    """Who appends; decides how much is validated."""

    # A producer's request: everything is checked.
    CLIENT = "client"
    # A coordinator's own records, transaction markers too: only the producer epoch is checked.
    COORDINATOR = "coordinator"
    # The metadata quorum's leader: offsets are checked, not assigned.
    RAFT = "raft"
    # A leader's bytes on a follower: taken as they are.
    REPLICATION = "replication"


class AppendInfo(msgspec.Struct, gc=False):
    """The outcome of one append."""

    # Offset of the first record; of a duplicate, the one it got the first time.
    # -1 if there was nothing to append.
    first_offset: int
    # Offset of the last record, inclusive; first_offset - 1 if there was nothing to append.
    last_offset: int
    # The log's start when the append was done.
    log_start_offset: int
    # Largest timestamp of the appended batches, -1 without one.
    max_timestamp: int = -1
    # The broker's time on a LogAppendTime topic, else -1.
    log_append_time: int = -1
    # Leader epoch of the last batch.
    last_leader_epoch: int = -1
    record_count: int = 0
    # Bytes appended, as they are in the file.
    size: int = 0
    # The same batch was appended before; nothing was written now.
    duplicate: bool = False
    # flush.messages is reached: hold acknowledgements until `Log.flush_async` reports.
    needs_flush: bool = False
