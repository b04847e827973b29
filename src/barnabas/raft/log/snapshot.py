"""Snapshots of the metadata log: Kafka's `<end offset>-<epoch>.checkpoint` files (KIP-630).

A file has a header control record, batches of metadata records, and a footer control record.
Offsets count from 0 within the file, and every batch carries the snapshot's epoch. A file without a
footer is not a valid snapshot.

A replica that is behind the log start gets the snapshot from the leader, in slices.

The oldest snapshot is deleted when snapshots and log together are too large, or when it is too old
(Kafka's `metadata.max.retention.*`). The log below the next snapshot is deleted with it. The latest
snapshot always stays.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.protocol.codec import decode, encode_bytes
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.record_frame import decode_metadata_record
from barnabas.protocol.records.metadata_log import SnapshotFooterRecord, SnapshotHeaderRecord
from barnabas.raft.listener import LoadedSnapshot, SnapshotError, SnapshotId
from barnabas.raft.log.metadata_batch import (
    encode_control_batch,
    encode_control_records,
    encode_metadata_batch,
    replay_control_record,
)
from barnabas.record.batch import ControlType, check_crc, parse_control_key, read_header
from barnabas.record.reader import read_batches
from barnabas.record.record import CorruptBatchError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from barnabas.protocol.schema import Record
    from barnabas.raft.config import RaftConfig
    from barnabas.raft.core.messages import (
        ControlRecords,
        FetchSnapshotRequest,
        FetchSnapshotResponse,
        SnapshotSlice,
    )
    from barnabas.raft.voter_set import VoterHistory
    from barnabas.runtime.disk import Disk, File
    from barnabas.storage.log.log import Log


# The records that the formatter wrote for a new cluster. It is not a snapshot of the log.
BOOTSTRAP_SNAPSHOT = SnapshotId(0, 0)

# The formatter of Kafka 3 writes this file into the data directory. Kafka 4 still reads it.
_OLD_BOOTSTRAP = "bootstrap.checkpoint"

_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
# Suffix of incomplete files.
PART_SUFFIX = ".part"
_HEADER_VERSION = 0
# The first batch of a snapshot, with its header and perhaps its voters, is smaller.
_HEADER_BYTES_MAX = 64 * 1024


def snapshot_name(snapshot_id: SnapshotId) -> str:
    """Return the file name of a snapshot."""
    return f"{snapshot_id.end_offset:020d}-{snapshot_id.epoch:010d}.checkpoint"


def old_bootstrap_path(directory: str) -> str:
    """Return the path of the bootstrap file in a directory that Kafka 3 formatted."""
    return f"{directory.rpartition('/')[0]}/{_OLD_BOOTSTRAP}"


def list_snapshots(disk: Disk, directory: str) -> list[SnapshotId]:
    """Return the complete snapshots in a directory, oldest first."""
    found = (_NAME.fullmatch(name) for name in disk.list(directory))
    return sorted(SnapshotId(int(each[1]), int(each[2])) for each in found if each)


def delete_unfinished(disk: Disk, directory: str) -> None:
    """Delete the incomplete snapshot files that a crash left."""
    for name in disk.list(directory):
        if name.endswith(PART_SUFFIX):
            disk.remove(f"{directory}/{name}")


def snapshot_timestamp(disk: Disk, directory: str, snapshot_id: SnapshotId) -> int | None:
    """Return the append time of the last contained record, ms; None if it is missing."""
    file = disk.open(f"{directory}/{snapshot_name(snapshot_id)}", create=False)
    try:
        first = file.read_at(_HEADER_BYTES_MAX, 0)
    finally:
        file.close()
    try:
        for _, records in read_batches(first):
            value = decode(SnapshotHeaderRecord, 0, records[0].value or b"")
            return value.last_contained_log_timestamp
    except (CorruptBatchError, ProtocolError):
        pass
    return None


def delete_snapshot(disk: Disk, directory: str, snapshot_id: SnapshotId) -> None:
    """Delete the file of a snapshot."""
    disk.remove(f"{directory}/{snapshot_name(snapshot_id)}")


class SnapshotWriter:
    """Writes one snapshot, batch by batch, under a temporary name until it is complete."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        snapshot_id: SnapshotId,
        timestamp: int,
        now_ms: int,
        control: ControlRecords | None = None,
    ) -> None:
        """Create the file and write its header.

        Args:
            disk: the disk of the directory.
            directory: the directory of the metadata log.
            snapshot_id: end offset and epoch of the last contained record.
            timestamp: append time of that record, ms.
            now_ms: wall clock time for the batches, ms.
            control: the voters and kraft.version at the snapshot's end; None to leave them out.
        """
        self.id = snapshot_id
        self._disk = disk
        self._directory = directory
        self._now_ms = now_ms
        self._path = f"{directory}/{snapshot_name(snapshot_id)}"
        self._offset = 0
        if disk.exists(self._path + PART_SUFFIX):
            disk.remove(self._path + PART_SUFFIX)
        self._file = disk.open(self._path + PART_SUFFIX)
        header = SnapshotHeaderRecord(
            version=_HEADER_VERSION, last_contained_log_timestamp=timestamp
        )
        self._control(ControlType.SNAPSHOT_HEADER, encode_bytes(header, 0))
        if control is not None:
            self._file.append(encode_control_records(control, self._offset, now_ms))
            self._offset += len(control)

    def append(self, records: Sequence[tuple[Record, int]]) -> None:
        """Write one batch of records, each given with its version. An empty list is ignored."""
        if not records:
            return
        epoch = self.id.epoch
        self._file.append(encode_metadata_batch(records, self._offset, epoch, self._now_ms))
        self._offset += len(records)

    def freeze(self) -> None:
        """Complete the file and rename it; on disk when this returns. Blocks."""
        footer = SnapshotFooterRecord(version=_HEADER_VERSION)
        self._control(ControlType.SNAPSHOT_FOOTER, encode_bytes(footer, 0))
        self._file.sync()
        self._file.close()
        self._disk.rename(self._path + PART_SUFFIX, self._path)
        self._disk.sync_directory(self._directory)

    def _control(self, control_type: ControlType, value: bytes) -> None:
        self._file.append(
            encode_control_batch(control_type, value, self._offset, self.id.epoch, self._now_ms)
        )
        self._offset += 1


def read_snapshot(
    disk: Disk, directory: str, snapshot_id: SnapshotId, history: VoterHistory | None = None
) -> LoadedSnapshot:
    """Open a snapshot, whose records are decoded during iteration.

    Voters and kraft.version records are added to `history`, at the snapshot's last offset.

    Raises:
        SnapshotError: the snapshot is damaged or incomplete.
    """
    return read_snapshot_file(
        disk, f"{directory}/{snapshot_name(snapshot_id)}", snapshot_id, history
    )


def read_snapshot_file(
    disk: Disk,
    path: str,
    snapshot_id: SnapshotId = BOOTSTRAP_SNAPSHOT,
    history: VoterHistory | None = None,
) -> LoadedSnapshot:
    """Open a snapshot file of any name; see `read_snapshot`.

    Raises:
        SnapshotError: the snapshot is damaged or incomplete.
    """
    name = path.rpartition("/")[2]
    content = memoryview(disk.read(path))
    try:
        timestamp = _check(content, name, history, snapshot_id.end_offset - 1)
    except (CorruptBatchError, ProtocolError) as error:
        raise SnapshotError(f"{path}: {error}") from error
    return LoadedSnapshot(snapshot_id, timestamp, _SnapshotRecords(content, name))


def _check(content: memoryview, name: str, history: VoterHistory | None, offset: int) -> int:
    """Check that header, footer and every batch are intact; returns the header's timestamp."""
    position = 0
    timestamp: int | None = None
    last_type: ControlType | None = None
    while position < len(content):
        header = read_header(content, position)
        end = position + header.size
        if end > len(content) or not check_crc(content, position, header):
            raise SnapshotError(f"{name}: the batch at {position} is truncated or damaged")
        last_type = None
        if header.is_control:
            batch = content[position:end]
            for _, records in read_batches(batch):
                for record in records:
                    value = record.value or b""
                    last_type = parse_control_key(record.key)
                    if last_type is ControlType.SNAPSHOT_HEADER:
                        first = decode(SnapshotHeaderRecord, 0, value)
                        timestamp = first.last_contained_log_timestamp
                    elif history is not None:
                        replay_control_record(record.key, value, offset, history)
        if timestamp is None:
            raise SnapshotError(f"{name}: does not begin with a snapshot header")
        position = end
    if last_type is not ControlType.SNAPSHOT_FOOTER:
        raise SnapshotError(f"{name}: has no footer, so it is incomplete")
    assert timestamp is not None
    return timestamp


class _SnapshotRecords:
    """Decodes the records during each iteration, so that they are never all in memory."""

    __slots__ = ("_content", "_name")

    def __init__(self, content: memoryview, name: str) -> None:
        self._content = content
        self._name = name

    def __iter__(self) -> Iterator[tuple[Record, int]]:
        for header, records in read_batches(self._content):
            if header.is_control:
                continue
            for record in records:
                try:
                    yield decode_metadata_record(record.value or b"")
                except ProtocolError as error:
                    raise SnapshotError(f"{self._name}: {error}") from error


def write_snapshot(
    writer: SnapshotWriter, records: Iterable[tuple[Record, int]], batch_records: int = 500
) -> None:
    """Write all records and complete the file. Blocks."""
    batch: list[tuple[Record, int]] = []
    for each in records:
        batch.append(each)
        if len(batch) >= batch_records:
            writer.append(batch)
            batch = []
    writer.append(batch)
    writer.freeze()


def read_slice(
    disk: Disk,
    directory: str,
    snapshots: Container[SnapshotId],
    request: FetchSnapshotRequest,
    response: FetchSnapshotResponse,
) -> FetchSnapshotResponse:
    """Add size and content to a leader's response, or an error code."""
    if request.snapshot_id not in snapshots:
        return replace(response, error=ErrorCode.SNAPSHOT_NOT_FOUND)
    path = f"{directory}/{snapshot_name(request.snapshot_id)}"
    size = disk.size(path)
    if not 0 <= request.position < size:
        return replace(response, error=ErrorCode.POSITION_OUT_OF_RANGE)
    file = disk.open(path, create=False)
    try:
        content = file.read_at(max(request.max_bytes, 0), request.position)
    finally:
        file.close()
    return replace(response, size=size, position=request.position, content=content)


class SnapshotReceiver:
    """Writes a leader's snapshot, slice by slice, under a temporary name until it is complete."""

    def __init__(self, disk: Disk, directory: str, snapshot_id: SnapshotId) -> None:
        self.id = snapshot_id
        self._disk = disk
        self._directory = directory
        path = self._path + PART_SUFFIX
        if disk.exists(path):
            disk.remove(path)
        self._file: File = disk.open(path)

    @property
    def _path(self) -> str:
        return f"{self._directory}/{snapshot_name(self.id)}"

    def write(self, part: SnapshotSlice) -> None:
        """Append a slice. Slices arrive in order and without gaps."""
        assert part.id == self.id, (part.id, self.id)
        assert part.position == self._file.size(), (part.position, self._file.size())
        assert isinstance(part.content, bytes | bytearray | memoryview)
        self._file.append(part.content)

    def freeze(self) -> None:
        """Rename the complete file; on disk when this returns. Blocks."""
        self._file.sync()
        self._file.close()
        self._disk.rename(self._path + PART_SUFFIX, self._path)
        self._disk.sync_directory(self._directory)

    def abandon(self) -> None:
        """Close and delete the incomplete file, because the snapshot is no longer needed."""
        self._file.close()
        path = self._path + PART_SUFFIX
        if self._disk.exists(path):
            self._disk.remove(path)


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
