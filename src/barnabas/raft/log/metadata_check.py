"""Checks for damaged committed metadata before the log is opened, because opening truncates it.

Only the log end may be truncated: a crash leaves uncommitted bytes there. Damage below the noted
committed offset, or in a log that was closed cleanly, affects committed metadata. A node that
continued without that metadata would forget topics and rename their logs as stray.

A power failure may tear a batch and leave an intact batch after it. An intact batch after the
damage is therefore no proof that committed metadata is damaged.

The noted offset is in a file beside the metadata log. Without this file, damage to the last
committed batches looks like the torn end that a crash leaves. The file is written some time after
each commit. Its offset may be lower than the committed end, but never higher.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.raft.listener import SnapshotError
from barnabas.raft.log.snapshot import (
    BOOTSTRAP_SNAPSHOT,
    list_snapshots,
    read_snapshot,
    snapshot_name,
)
from barnabas.record.record import CorruptBatchError
from barnabas.storage.config import LONG_MAX
from barnabas.storage.errors import DamageKind, StorageError
from barnabas.storage.files.checkpoint import CheckpointError, decode_lines, encode_lines
from barnabas.storage.files.leader_epoch_cache import LeaderEpochCache
from barnabas.storage.files.metadata_files import read_marker
from barnabas.storage.log.batch_order import BatchOrder
from barnabas.storage.segment.batch_scan import describe_end, valid_batches
from barnabas.storage.topic_partition import LOG_SUFFIX, offset_file, offset_of

if TYPE_CHECKING:
    from barnabas.record.batch import BatchHeader
    from barnabas.runtime.clock import Cancellable
    from barnabas.runtime.disk import Disk, File
    from barnabas.storage.errors import DamageRegister
    from barnabas.storage.log_dependencies import LogDependencies


_log = logging.getLogger(__name__)

COMMITTED_OFFSET = "committed-offset"
_INTERVAL_MS = 1000


def read_committed_offset(disk: Disk, directory: str) -> int:
    """Return the offset below which metadata is known to be committed; 0 if unknown."""
    path = f"{directory}/{COMMITTED_OFFSET}"
    if not disk.exists(path):
        return 0
    try:
        lines = decode_lines(disk.read(path), 1)
        return int(lines[0][0]) if lines else 0
    except (CheckpointError, ValueError) as error:
        # A power failure can leave a damaged file.
        _log.warning("Committed offset is not known: path=%s problem=%s", path, error)
        return 0


def write_committed_offset(disk: Disk, directory: str, offset: int) -> None:
    """Write the file without a sync, because an older offset is also correct."""
    content = encode_lines([str(offset)])
    disk.write_atomically(f"{directory}/{COMMITTED_OFFSET}", content, sync=False)


class CommittedOffsetFile:
    """Writes the file outside the event loop, at most once a second."""

    def __init__(self, log_dependencies: LogDependencies, directory: str) -> None:
        self._log_dependencies = log_dependencies
        self._directory = directory
        # The latest committed offset, exclusive, and the timer of the next write.
        self._offset = 0
        self._timer: Cancellable | None = None
        # Whether a write is running. Two writes at once would rename the same temporary file.
        self._is_writing = False

    def note(self, offset: int) -> None:
        """Note that the metadata below `offset` is committed."""
        self._offset = max(self._offset, offset)
        if self._timer is None:
            self._timer = self._log_dependencies.timer.call_later(_INTERVAL_MS, self._write)

    def _write(self) -> None:
        if self._is_writing:
            self._timer = self._log_dependencies.timer.call_later(_INTERVAL_MS, self._write)
            return
        self._timer = None
        self._is_writing = True
        disk, directory, offset = self._log_dependencies.disk, self._directory, self._offset

        def done(_: None, __: BaseException | None) -> None:
            # No error handling: a disk that fails here also fails the log, which reports the error.
            self._is_writing = False

        self._log_dependencies.executor.submit(
            lambda: write_committed_offset(disk, directory, offset), done
        )

    def close(self) -> None:
        """Write the file a last time before returning, unless another write is running."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._offset and not self._is_writing:
            write_committed_offset(self._log_dependencies.disk, self._directory, self._offset)


_REMEDY = (
    "The node does not start, to prevent data loss. First copy the directory. Then "
    "restore the file from a backup; or, if other controllers have the metadata, format "
    "the node again (`barnabas format`), and it joins them; or discard the metadata "
    "after the damage: `barnabas log repair` shows it, `--apply` discards it"
)


class MetadataDamagedError(StorageError):
    """Committed metadata is damaged: the node must not continue with the remaining metadata."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"Committed metadata is damaged: {path}: {problem}. {_REMEDY}")


class IntactEnd(NamedTuple):
    """The intact part of the metadata log."""

    # Base offset of the first segment (0 without segments), and the offset after the last batch.
    start: int
    end: int
    # File and position where the intact part ends; None if it ends with the last file.
    path: str | None = None
    position: int = 0
    problem: str = ""
    # Whether a segment is missing.
    is_missing_segment: bool = False


def check_metadata(disk: Disk, directory: str, damage: DamageRegister | None) -> None:
    """Check the log and the snapshots.

    Args:
        disk: the disk with the directory.
        directory: the directory of the metadata log.
        damage: gets a damaged snapshot that is not needed, which is renamed. None: nothing is
            changed.

    Raises:
        MetadataDamagedError: committed metadata is damaged or missing.
    """
    if not disk.exists(directory):
        return
    intact = find_intact_end(disk, directory)
    snapshot_end = _check_snapshots(disk, directory, intact, damage)
    if intact.path is not None and read_marker(disk, directory.rpartition("/")[0]) is not None:
        problem = (
            f"at position {intact.position} {intact.problem}, although the node was stopped cleanly"
        )
        raise MetadataDamagedError(intact.path, problem)
    committed = read_committed_offset(disk, directory)
    if max(intact.end, snapshot_end) < committed:
        path = intact.path or directory
        problem = f"{intact.problem or 'a file is missing'}; " if intact.path else ""
        raise MetadataDamagedError(
            path,
            f"{problem}the log ends at offset {intact.end}, but offset {committed} was committed",
        )
    if intact.is_missing_segment:
        raise MetadataDamagedError(intact.path or directory, intact.problem)
    if intact.start > snapshot_end:
        raise MetadataDamagedError(
            directory,
            f"the log begins at offset {intact.start}, but no snapshot has the earlier records",
        )


def _check_snapshots(
    disk: Disk, directory: str, intact: IntactEnd, damage: DamageRegister | None
) -> int:
    """Return the end offset of the latest intact snapshot; 0 if there is none."""
    snapshots = list_snapshots(disk, directory)
    for snapshot in reversed(snapshots):
        path = f"{directory}/{snapshot_name(snapshot)}"
        try:
            for _ in read_snapshot(disk, directory, snapshot).records:
                pass
        except (SnapshotError, CorruptBatchError, ValueError) as error:
            older = [each.end_offset for each in snapshots if each < snapshot]
            is_needed = intact.start > max(older, default=0) or intact.end < snapshot.end_offset
            if is_needed or (snapshot == BOOTSTRAP_SNAPSHOT and not intact.end):
                raise MetadataDamagedError(path, str(error)) from error
            if damage is None:
                continue
            disk.rename(path, f"{path}.damaged")
            action = (
                "renamed with the suffix .damaged; the log has all of its records; no action "
                "is needed"
            )
            damage.report(DamageKind.METADATA, path, str(error), action)
            continue
        return snapshot.end_offset
    return 0


def find_intact_end(disk: Disk, directory: str) -> IntactEnd:
    """Read the segments up to the first batch that does not continue the log."""
    names = disk.list(directory)
    bases = sorted(base for name in names if (base := offset_of(name, LOG_SUFFIX)) is not None)
    if not bases:
        return IntactEnd(0, 0)
    epochs = LeaderEpochCache(disk, directory)
    epochs.load()
    order = BatchOrder(epochs.entries, may_skip=False)
    end = bases[0]
    for index, base in enumerate(bases):
        path = offset_file(directory, base, LOG_SUFFIX)
        if base > end:
            gap = f"offsets {end} to {base - 1} are missing before it"
            return IntactEnd(bases[0], end, path, 0, gap, is_missing_segment=True)
        following = bases[index + 1] if index + 1 < len(bases) else LONG_MAX
        file = disk.open(path, create=False)
        try:
            position, wrong = _walk(file, order, base, following)
            end = order.next_offset
            if wrong is not None:
                return IntactEnd(bases[0], end, path, position, wrong)
        finally:
            file.close()
    return IntactEnd(bases[0], end)


def _walk(file: File, order: BatchOrder, base: int, following: int) -> tuple[int, str | None]:
    """Return the position of the first batch that does not continue the log, and the reason."""
    order.begin_segment(base)
    position, size = 0, file.size()
    walk = valid_batches(file, 0, size)
    ahead = next(walk, None)
    while ahead is not None:
        at, header, _ = ahead
        ahead = next(walk, None)
        after: BatchHeader | None = None if ahead is None else ahead[1]
        problem = order.problem(header, after, following)
        if problem is not None:
            return at, problem
        if header.next_offset > following:
            # The batch overlaps the next segment, so it was truncated earlier.
            return at, None
        order.take(header)
        position = at + header.size
    if position == size:
        return position, None
    return position, describe_end(file, position, size)[0]
