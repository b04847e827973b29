"""Opens `__cluster_metadata-0` as a `storage.Log`, and adapts it for the core and the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.raft.log.metadata_batch import replay_control_batches
from barnabas.raft.log.metadata_check import check_metadata
from barnabas.raft.log.snapshot import BOOTSTRAP_SNAPSHOT, list_snapshots
from barnabas.storage.config import LONG_MAX, LogConfig
from barnabas.storage.log.log import Log
from barnabas.storage.log_dependencies import LogOpening
from barnabas.storage.results import FetchIsolation
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from barnabas.raft.config import RaftConfig
    from barnabas.raft.listener import SnapshotId
    from barnabas.raft.voter_set import VoterHistory
    from barnabas.runtime.disk import Disk
    from barnabas.storage.log_dependencies import LogDependencies

METADATA_TOPIC = "__cluster_metadata"
METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)
METADATA_TOPIC_ID = bytes(15) + b"\x01"

_READ_BYTES_MAX = 8 * 1024 * 1024


def open_metadata_log(directory: str, config: RaftConfig, log_dependencies: LogDependencies) -> Log:
    """Open or create the log, and recover and sync it.

    If the log lacks its beginning or ends before the latest snapshot, its start moves to the end of
    a snapshot.

    Raises:
        MetadataDamagedError: committed metadata is damaged; nothing was changed.
    """
    check_metadata(log_dependencies.disk, directory, log_dependencies.damage)
    log_config = LogConfig(
        max_message_bytes=LONG_MAX,
        segment_bytes=config.segment_bytes,
        segment_ms=config.segment_ms,
        retention_bytes=-1,
        retention_ms=-1,
    )
    snapshots = metadata_snapshots(log_dependencies.disk, directory)
    opening = LogOpening(METADATA_PARTITION, topic_id=METADATA_TOPIC_ID)
    log = Log.open(directory, log_config, log_dependencies, opening)
    if snapshots and _is_behind(log, snapshots[-1]):
        log.truncate_fully_and_start_at(snapshots[-1].end_offset)
    _begin_at_snapshot(log, snapshots)
    # Bytes that a crash left only in the page cache count as written only after a sync.
    log.sync.flush(force=True)
    return log


def _begin_at_snapshot(log: Log, snapshots: list[SnapshotId]) -> None:
    """Move the log start to a snapshot's end, if the log's own beginning is missing.

    The segments may be missing, or only their leader epochs. Records below the first known epoch
    cannot be compared with other logs, because their epochs are unknown.
    """
    first = max(log.log_start_offset, _first_epoch_offset(log))
    start = next((each.end_offset for each in snapshots if each.end_offset >= first), None)
    if first == 0 or start is None or start > log.log_end_offset:
        return
    # All records in a snapshot are committed.
    log.update_high_watermark(start)
    log.maybe_increment_log_start_offset(start, "snapshot")


def _first_epoch_offset(log: Log) -> int:
    entries = log.leader_epochs.entries
    return entries[0][1] if entries else 0


def _is_behind(log: Log, snapshot: SnapshotId) -> bool:
    """Return whether the log ends before the snapshot, by epoch or by offset."""
    latest_epoch = -1 if log.latest_epoch is None else log.latest_epoch
    if log.log_end_offset == log.log_start_offset == snapshot.end_offset:
        return False
    return (latest_epoch, log.log_end_offset) < (snapshot.epoch, snapshot.end_offset)


def metadata_snapshots(disk: Disk, directory: str) -> list[SnapshotId]:
    """Return the snapshots of the log's state, oldest first, without the bootstrap snapshot."""
    return [each for each in list_snapshots(disk, directory) if each != BOOTSTRAP_SNAPSHOT]


def replay_log(log: Log, history: VoterHistory) -> None:
    """Apply the control records of the whole log, committed or not."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        records = log.reader.read(offset, _READ_BYTES_MAX, FetchIsolation.LOG_END, True).records
        content = records if isinstance(records, bytes) else records.read()
        offset = replay_control_batches(content, history)


class MetadataLogView:
    """The `LogView` of a `storage.Log` for the quorum core."""

    __slots__ = ("_log", "snapshots")

    def __init__(self, log: Log, snapshots: list[SnapshotId]) -> None:
        self._log = log
        # Snapshots of the log's state, oldest first. The driver updates the list.
        self.snapshots = snapshots

    @property
    def start_offset(self) -> int:
        """First offset of the log. Earlier records are only in snapshots."""
        return self._log.log_start_offset

    @property
    def end_offset(self) -> int:
        """Exclusive end of the written records, whether or not they are synced."""
        return self._log.log_end_offset

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record; 0 if the log never had a record."""
        latest = self._log.latest_epoch
        if latest is not None:
            return latest
        earliest = self.earliest_snapshot
        return 0 if earliest is None else earliest.epoch

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        """The snapshot that ends where the log begins; None for a log that begins at 0."""
        start = self._log.log_start_offset
        return next((each for each in self.snapshots if 0 < start == each.end_offset), None)

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The newest snapshot; None if there is none."""
        return self.snapshots[-1] if self.snapshots else None

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (largest epoch <= `epoch` in the log, its end offset).

        The result is (-1, -1) if there is no such epoch.
        """
        entries = self._log.leader_epochs.entries
        if entries and epoch > entries[-1][0]:
            return entries[-1][0], self._log.log_end_offset
        if entries and epoch >= entries[0][0]:
            return self._log.end_offset_for_epoch(epoch)
        earliest = self.earliest_snapshot
        if earliest is not None and epoch >= earliest.epoch:
            # The log starts after that epoch, at the end of this snapshot.
            return earliest.epoch, earliest.end_offset
        return -1, -1
