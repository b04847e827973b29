"""What an append did (Kafka's LogAppendInfo), and who asked for it (AppendOrigin)."""

from __future__ import annotations

from enum import Enum


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


class AppendInfo:
    """The outcome of one append; one per partition of a request, so a slots class."""

    __slots__ = (
        "duplicate",
        "first_offset",
        "last_leader_epoch",
        "last_offset",
        "leader_high_watermark_change",
        "log_append_time",
        "log_start_offset",
        "max_timestamp",
        "needs_flush",
        "offset_of_max_timestamp",
        "record_count",
        "size",
    )

    def __init__(self, first_offset: int, last_offset: int, log_start_offset: int) -> None:
        # Offset of the first record; of a duplicate, the one it got the first time.
        # -1 if there was nothing to append.
        self.first_offset = first_offset
        # Offset of the last record, inclusive; first_offset - 1 if there was nothing to append.
        self.last_offset = last_offset
        # The log's start when the append was done.
        self.log_start_offset = log_start_offset
        # Largest timestamp of the appended batches, -1 without one.
        self.max_timestamp = -1
        # Last offset of the batch that has it.
        self.offset_of_max_timestamp = -1
        # The broker's time on a LogAppendTime topic, else -1.
        self.log_append_time = -1
        # Leader epoch of the last batch.
        self.last_leader_epoch = -1
        self.record_count = 0
        # Bytes appended, as they are in the file.
        self.size = 0
        # The same batch was appended before; nothing was written now.
        self.duplicate = False
        # flush.messages is reached: hold acknowledgements until `Log.flush_async` reports.
        self.needs_flush = False
        # Set by the layer above, which knows the replicas; None until then.
        self.leader_high_watermark_change: bool | None = None

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"AppendInfo({values})"
