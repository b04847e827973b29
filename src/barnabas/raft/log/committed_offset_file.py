"""A file beside the metadata log with an offset below which all metadata is committed.

Without this file, damage to the last committed batches looks like the torn end that a crash leaves.
The file is written some time after each commit. Its offset may be lower than the committed end, but
never higher.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.storage.files.checkpoint import CheckpointError, decode_lines, encode_lines

if TYPE_CHECKING:
    from barnabas.runtime.disk import Disk
    from barnabas.runtime.timer import Cancellable
    from barnabas.storage.log_dependencies import LogDependencies

_log = logging.getLogger(__name__)

FILE_NAME = "committed-offset"
_INTERVAL_MS = 1000


def read_committed_offset(disk: Disk, directory: str) -> int:
    """Return the offset below which metadata is known to be committed; 0 if unknown."""
    path = f"{directory}/{FILE_NAME}"
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
    disk.write_atomically(f"{directory}/{FILE_NAME}", content, sync=False)


class CommittedOffsetFile:
    """Writes the file outside the event loop, at most once a second."""

    __slots__ = ("_directory", "_is_writing", "_log_dependencies", "_offset", "_timer")

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
