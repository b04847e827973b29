"""Transfer of snapshots from the leader to a replica that is behind the log start (KIP-630)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.protocol.errors import ErrorCode
from barnabas.raft.log.snapshot import PART_SUFFIX, snapshot_name

if TYPE_CHECKING:
    from collections.abc import Container

    from barnabas.raft.core.effects import SnapshotSlice
    from barnabas.raft.core.messages import FetchSnapshotRequest, FetchSnapshotResponse
    from barnabas.raft.listener import SnapshotId
    from barnabas.runtime.disk import Disk, File


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

    __slots__ = ("_directory", "_disk", "_file", "id")

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
