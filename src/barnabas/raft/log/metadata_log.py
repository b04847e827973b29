"""The log `__cluster_metadata-0`: formatting its directory, opening it, and reading it.

Formatting writes the bootstrap snapshot of a new cluster (Kafka's `kafka-storage format`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.codec import decode, decode_from
from barnabas.protocol.record_frame import read_metadata_frame
from barnabas.protocol.records.metadata_log import KRaftVersionRecord
from barnabas.protocol.records.nodes import FeatureLevelRecord
from barnabas.raft.core.messages import ControlRecords
from barnabas.raft.log.metadata_batch import METADATA_BATCH_BYTES_MAX, replay_control_batches
from barnabas.raft.log.metadata_check import check_metadata
from barnabas.raft.log.snapshot import (
    BOOTSTRAP_SNAPSHOT,
    SnapshotWriter,
    list_snapshots,
    old_bootstrap_path,
    snapshot_name,
    write_snapshot,
)
from barnabas.raft.voter_set import KRAFT_VERSION_MAX
from barnabas.record.batch import (
    LOG_OVERHEAD,
    ControlType,
    check_crc,
    parse_control_key,
    read_header,
)
from barnabas.record.reader import records_of
from barnabas.record.record import CorruptBatchError
from barnabas.storage.config import LONG_MAX, LogConfig
from barnabas.storage.log.log import Log
from barnabas.storage.log_dependencies import LogOpening
from barnabas.storage.results import FetchIsolation
from barnabas.storage.topic_partition import LOG_SUFFIX, TopicPartition, offset_file, offset_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from barnabas.protocol.schema import Record
    from barnabas.raft.config import RaftConfig
    from barnabas.raft.listener import SnapshotId
    from barnabas.raft.voter_set import VoterHistory, VoterSet
    from barnabas.record.batch import BatchHeader
    from barnabas.runtime.disk import Disk, File
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
        read = log.reader.read(offset, _READ_BYTES_MAX, FetchIsolation.LOG_END, True)
        offset = replay_control_batches(read.content(), history)


class MetadataLogView:
    """The `LogView` of a `storage.Log` for the quorum core."""

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


_METADATA_VERSION = "metadata.version"


class FirstContent(msgspec.Struct, frozen=True):
    """Content of the checkpoint besides features."""

    # The first voters of a dynamic quorum (KIP-853), each with its directory id. None for static
    # voters, or if other nodes of the cluster hold the voters.
    voters: VoterSet | None = None
    # Whether the voters are dynamic although `voters` is None.
    is_dynamic: bool = False
    # Records that follow the features, in version 0.
    records: Sequence[Record] = ()


def format_metadata_directory(
    disk: Disk,
    directory: str,
    features: Mapping[str, int],
    now_ms: int,
    first: FirstContent | None = None,
) -> bool:
    """Write the bootstrap checkpoint unless the directory already has a snapshot or a log.

    Args:
        disk: the disk of the directory.
        directory: the directory of the metadata partition; created if missing.
        features: finalized level of each feature, including `metadata.version`. Features at level 0
            are left out.
        now_ms: wall clock time, ms.
        first: voters and records besides the features; None for neither.

    Returns:
        Whether the checkpoint was written.
    """
    if not disk.exists(directory):
        disk.make_directory(directory)
        # Sync the parent: the directory's entry must survive a power failure as the votes in it do.
        disk.sync_directory(directory.rpartition("/")[0] or "/")
    is_formatted = list_snapshots(disk, directory) or disk.exists(old_bootstrap_path(directory))
    if is_formatted or any(name.endswith(".log") for name in disk.list(directory)):
        return False
    assert _METADATA_VERSION in features, features
    names = sorted(features, key=lambda name: (name != _METADATA_VERSION, name))
    records: list[tuple[Record, int]] = [
        (FeatureLevelRecord(name=name, feature_level=features[name]), 0)
        for name in names
        if features[name] > 0
    ]
    first = first or FirstContent()
    records += [(record, 0) for record in first.records]
    control = None
    if first.is_dynamic or first.voters is not None:
        control = ControlRecords(0, None, KRAFT_VERSION_MAX, first.voters)
    writer = SnapshotWriter(disk, directory, BOOTSTRAP_SNAPSHOT, now_ms, now_ms, control)
    write_snapshot(writer, records)
    return True


_KRAFT_VERSION = "kraft.version"
# Twice the size of the largest batch of metadata records.
_WINDOW_BYTES = 2 * METADATA_BATCH_BYTES_MAX
# The first bytes of a FeatureLevelRecord (frame version 1, type 12, version 0) and of a
# KRaftVersionRecord (key length, key version 0, type 5). Metadata is never compressed, so a file
# without these bytes has no such record. This avoids decoding a long log.
_FEATURE_LEVEL_PATTERN = re.compile(rb"\x01\x0c\x00|\x08\x00\x00\x00\x05")
_LONGEST_MATCH = 5


def finalized_features(disk: Disk, data_directory: str) -> dict[str, int]:
    """Return the level by feature name, for levels above 0; empty if nothing is formatted.

    A node that does not support a finalized feature level can stop without changing any byte
    (KIP-584, KIP-853). Only feature records are decoded, because a newer Kafka may have written
    unknown records. The result combines the newest snapshot with the log after its end.
    Damage at the log end is ignored, because opening the log would truncate it.

    Raises:
        OSError: a file cannot be read.
    """
    directory = f"{data_directory}/{METADATA_PARTITION.directory_name}"
    names = disk.list(directory) if disk.exists(directory) else []
    levels: dict[str, int] = {}
    start = 0
    if snapshots := list_snapshots(disk, directory) if names else []:
        start = snapshots[-1].end_offset
        levels.update(_levels(disk, f"{directory}/{snapshot_name(snapshots[-1])}", 0))
    elif disk.exists(old := old_bootstrap_path(directory)):
        levels.update(_levels(disk, old, 0))
    bases = [offset_of(name, LOG_SUFFIX) for name in names]
    for base in sorted(base for base in bases if base is not None):
        levels.update(_levels(disk, offset_file(directory, base, LOG_SUFFIX), start))
    return {name: level for name, level in levels.items() if level > 0}


def _levels(disk: Disk, path: str, start: int) -> dict[str, int]:
    """Return the last level of each feature in a file, from offset `start` on."""
    levels: dict[str, int] = {}
    file = disk.open(path, create=False)
    try:
        if _may_contain_levels(file):
            for batch, header in _batches(file):
                if header.base_offset >= start and _FEATURE_LEVEL_PATTERN.search(batch):
                    levels.update(_of_batch(batch, header))
    except CorruptBatchError:
        # The bytes after a damaged batch do not belong to the log.
        pass
    finally:
        file.close()
    return levels


def _may_contain_levels(file: File) -> bool:
    """Return whether the file may contain a record of a feature level."""
    return any(
        _FEATURE_LEVEL_PATTERN.search(file.read_at(_WINDOW_BYTES + _LONGEST_MATCH, position))
        for position in range(0, file.size(), _WINDOW_BYTES)
    )


def _batches(file: File) -> Iterator[tuple[bytes, BatchHeader]]:
    """Yield each complete batch of a file.

    Raises:
        CorruptBatchError: the file contains bytes that are not a valid batch.
    """
    position, size = 0, file.size()
    while position < size:
        window = file.read_at(_WINDOW_BYTES, position)
        at = 0
        while at + LOG_OVERHEAD <= len(window):
            header = read_header(window, at)
            if at + header.size > len(window):
                break
            if not check_crc(window, at, header):
                raise CorruptBatchError(f"the batch at {position + at} is damaged")
            yield window[at : at + header.size], header
            at += header.size
        if at == 0:
            return
        position += at


def _of_batch(batch: bytes, header: BatchHeader) -> dict[str, int]:
    levels = {}
    for record in records_of(batch, 0, header):
        value = record.value or b""
        if header.is_control:
            if parse_control_key(record.key) is ControlType.KRAFT_VERSION:
                levels[_KRAFT_VERSION] = decode(KRaftVersionRecord, 0, value).kraft_version
            continue
        record_type, version, offset = read_metadata_frame(value)
        if record_type == FeatureLevelRecord.__record_type__:
            record_value, _ = decode_from(FeatureLevelRecord, version, value, offset)
            levels[record_value.name] = record_value.feature_level
    return levels
