"""`__cluster_metadata-0` as a `storage.Log`: opening it, and what core and driver ask of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.raft.snapshot import BOOTSTRAP_SNAPSHOT, list_snapshots
from barnabas.storage.config import LONG_MAX, LogConfig
from barnabas.storage.doors import LogOpening
from barnabas.storage.log import Log
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from barnabas.raft.config import RaftConfig
    from barnabas.raft.listener import SnapshotId
    from barnabas.storage.doors import LogDoors

METADATA_TOPIC = "__cluster_metadata"
METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)
METADATA_TOPIC_ID = bytes(15) + b"\x01"


def open_metadata_log(directory: str, config: RaftConfig, doors: LogDoors) -> Log:
    """Open or make the log, recovered, synced, and beginning no later than its latest snapshot."""
    log_config = LogConfig(
        max_message_bytes=LONG_MAX,
        segment_bytes=config.segment_bytes,
        segment_ms=config.segment_ms,
        retention_bytes=-1,
        retention_ms=-1,
    )
    opening = LogOpening(METADATA_PARTITION, topic_id=METADATA_TOPIC_ID)
    log = Log.open(directory, log_config, doors, opening)
    snapshot = latest_snapshot(doors, directory)
    if snapshot is not None and log.log_end_offset < snapshot.end_offset:
        log.truncate_fully_and_start_at(snapshot.end_offset)
    # What a crash left in the page cache counts as written only once it is synced.
    log.flush(force=True)
    return log


def latest_snapshot(doors: LogDoors, directory: str) -> SnapshotId | None:
    """The latest snapshot that stands for a part of the log; None if there is none."""
    snapshots = [s for s in list_snapshots(doors.disk, directory) if s != BOOTSTRAP_SNAPSHOT]
    return snapshots[-1] if snapshots else None


class MetadataLogView:
    """A log in the eyes of `core.RaftCore`."""

    __slots__ = ("_log", "_snapshot_epoch")

    def __init__(self, log: Log, snapshot: SnapshotId | None) -> None:
        self._log = log
        # Epoch of the log's last record while the log itself has none.
        self._snapshot_epoch = 0 if snapshot is None else snapshot.epoch

    @property
    def end_offset(self) -> int:
        """Exclusive; of what is written, synced or not."""
        return self._log.log_end_offset

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record, 0 if there never was one."""
        latest = self._log.latest_epoch
        return self._snapshot_epoch if latest is None else latest

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch <= `epoch` in the log, its end offset); (-1, -1) if there is none."""
        return self._log.end_offset_for_epoch(epoch)
