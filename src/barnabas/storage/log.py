"""One partition's log (Kafka's UnifiedLog): the only place where offsets are assigned."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.disk import Disk
    from barnabas.storage.append_info import AppendInfo, AppendOrigin
    from barnabas.storage.config import LogConfig
    from barnabas.storage.doors import LogDoors, LogOpening
    from barnabas.storage.offset_metadata import LogOffsetMetadata
    from barnabas.storage.read_result import FetchIsolation, ReadResult
    from barnabas.storage.topic_partition import TopicPartition


class Log:
    """The records of one partition on one broker."""

    directory: str
    topic_partition: TopicPartition
    topic_id: bytes
    config: LogConfig
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    recovery_point: int

    @classmethod
    def open(
        cls, directory: str, config: LogConfig, doors: LogDoors, opening: LogOpening
    ) -> Log:
        """Open or make the log in `directory`, recovering it if it was not closed cleanly."""
        raise NotImplementedError

    def append_as_leader(
        self, records: memoryview, leader_epoch: int, origin: AppendOrigin, now_ms: int
    ) -> AppendInfo:
        """Validate, assign offsets and epoch in place (`records` is writable), write once."""
        raise NotImplementedError

    def append_as_follower(self, records: memoryview | bytes) -> AppendInfo:
        """Write the leader's bytes as they are; they must begin at the log end."""
        raise NotImplementedError

    def read(
        self, offset: int, max_bytes: int, isolation: FetchIsolation, min_one_batch: bool
    ) -> ReadResult:
        """A slice of the file from the batch that holds `offset` on."""
        raise NotImplementedError

    def end_offset_metadata(self) -> LogOffsetMetadata:
        """The log end and where it lies."""
        raise NotImplementedError

    def high_watermark_metadata(self) -> LogOffsetMetadata:
        """The high watermark and where it lies."""
        raise NotImplementedError

    def last_stable_offset_metadata(self) -> LogOffsetMetadata:
        """The last stable offset and where it lies."""
        raise NotImplementedError

    def update_high_watermark(self, offset: int) -> bool:
        """Move the high watermark (held within [log start, log end]); returns whether it moved."""
        raise NotImplementedError

    def maybe_increment_log_start_offset(self, offset: int, reason: str) -> bool:
        """Forget what lies below `offset`; returns whether the start moved."""
        raise NotImplementedError

    def truncate_to(self, offset: int) -> bool:
        """Drop all from `offset` on; returns whether there was anything."""
        raise NotImplementedError

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything; the log is empty and begins at `offset`."""
        raise NotImplementedError

    def roll(self) -> None:
        """Begin a new segment at the log end."""
        raise NotImplementedError

    def flush(self, force: bool = False) -> None:
        """Sync all up to the log end, in this turn."""
        raise NotImplementedError

    def flush_async(self, on_done: Callable[[BaseException | None], None]) -> None:
        """Sync off the loop all up to what is the log end now, then call back."""
        raise NotImplementedError

    def close(self) -> None:
        """Close cleanly: producer snapshot taken, indexes complete."""
        raise NotImplementedError

    def rename_to_delete(self) -> None:
        """Move the directory to a name that says it waits for deletion."""
        raise NotImplementedError

    def delete(self) -> None:
        """Delete every file and the directory."""
        raise NotImplementedError

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record at or after `timestamp`."""
        raise NotImplementedError

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch <= `epoch`, its end offset); (-1, -1) if there is none."""
        raise NotImplementedError

    @property
    def latest_epoch(self) -> int | None:
        """Leader epoch of the last batch; None if the log has no epoch."""
        raise NotImplementedError

    def delete_old_segments(self, now_ms: int) -> int:
        """Apply retention; returns the number of segments deleted."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        raise NotImplementedError

    @property
    def disk(self) -> Disk:
        """The door to the disk that the log lies on."""
        raise NotImplementedError
