"""Deletion of old snapshots and log segments (Kafka's `metadata.max.retention.*`, KIP-630).

The oldest snapshot is deleted when snapshots and log together are too large, or when it is too old.
The log below the next snapshot is deleted with it. The latest snapshot always stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.raft.log.snapshot import (
    BOOTSTRAP_SNAPSHOT,
    delete_snapshot,
    list_snapshots,
    snapshot_name,
    snapshot_timestamp,
)

if TYPE_CHECKING:
    from barnabas.raft.config import RaftConfig
    from barnabas.raft.listener import SnapshotId
    from barnabas.runtime.disk import Disk
    from barnabas.storage.log.log import Log


def clean(log: Log, disk: Disk, config: RaftConfig, now_ms: int) -> list[SnapshotId]:
    """Delete old snapshots and segments.

    Returns:
        The remaining snapshots, without the bootstrap snapshot.
    """
    directory = log.directory
    snapshots = list_snapshots(disk, directory)
    sizes = {each: disk.size(f"{directory}/{snapshot_name(each)}") for each in snapshots}
    while len(snapshots) >= 2:
        oldest, following = snapshots[0], snapshots[1]
        is_large = log.size + sum(sizes[each] for each in snapshots) > config.retention_bytes
        if not is_large and not _is_old(disk, directory, oldest, config, now_ms):
            break
        if not _begin_log_at(log, following, now_ms):
            break
        delete_snapshot(disk, directory, oldest)
        del snapshots[0]
    return [each for each in snapshots if each != BOOTSTRAP_SNAPSHOT]


def _is_old(
    disk: Disk, directory: str, snapshot_id: SnapshotId, config: RaftConfig, now_ms: int
) -> bool:
    timestamp = snapshot_timestamp(disk, directory, snapshot_id)
    return timestamp is not None and timestamp + config.retention_ms < now_ms


def _begin_log_at(log: Log, snapshot_id: SnapshotId, now_ms: int) -> bool:
    """Move the log start to a snapshot's end; returns False if that offset is not committed yet."""
    if snapshot_id.end_offset > log.high_watermark:
        return False
    if snapshot_id.end_offset > log.log_start_offset:
        log.maybe_increment_log_start_offset(snapshot_id.end_offset, "snapshot")
        log.delete_old_segments(now_ms)
    return True
