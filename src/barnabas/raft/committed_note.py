"""A note of how far the metadata is committed, in a file beside the metadata log.

Without it, a log whose last batches are damaged looks like one whose end a crash has torn. The file
is written some time after each commit: it may say less than what is committed, never more.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.storage.checkpoint import CheckpointError, decode_lines, encode_lines

if TYPE_CHECKING:
    from barnabas.runtime.disk import Disk
    from barnabas.runtime.timer import Cancellable
    from barnabas.storage.doors import LogDoors

_log = logging.getLogger(__name__)

FILE_NAME = "committed-offset"
_INTERVAL_MS = 1000


def read_committed_note(disk: Disk, directory: str) -> int:
    """The offset below which metadata was committed, 0 if it is not known."""
    path = f"{directory}/{FILE_NAME}"
    if not disk.exists(path):
        return 0
    try:
        lines = decode_lines(disk.read(path), 1)
        return int(lines[0][0]) if lines else 0
    except (CheckpointError, ValueError) as error:
        # A loss of power explains it.
        _log.warning("Committed offset is not known: path=%s problem=%s", path, error)
        return 0


def write_committed_note(disk: Disk, directory: str, offset: int) -> None:
    """Write the file; not synced, since it may say less."""
    content = encode_lines([str(offset)])
    disk.write_atomically(f"{directory}/{FILE_NAME}", content, sync=False)


class CommittedNote:
    """Writes the note off the loop, once a second at most."""

    __slots__ = ("_directory", "_doors", "_is_writing", "_offset", "_timer")

    def __init__(self, doors: LogDoors, directory: str) -> None:
        self._doors = doors
        self._directory = directory
        # The latest high watermark, exclusive; and the timer of the next writing.
        self._offset = 0
        self._timer: Cancellable | None = None
        # Whether a write off the loop is under way: two at once would rename the same temporary
        # file.
        self._is_writing = False

    def note(self, offset: int) -> None:
        """Metadata below `offset` is committed."""
        self._offset = max(self._offset, offset)
        if self._timer is None:
            self._timer = self._doors.timer.call_later(_INTERVAL_MS, self._write)

    def _write(self) -> None:
        if self._is_writing:
            self._timer = self._doors.timer.call_later(_INTERVAL_MS, self._write)
            return
        self._timer = None
        self._is_writing = True
        disk, directory, offset = self._doors.disk, self._directory, self._offset

        def done(_: None, __: BaseException | None) -> None:
            # A disk that fails here fails the log too, which tells of it.
            self._is_writing = False

        self._doors.executor.submit(lambda: write_committed_note(disk, directory, offset), done)

    def close(self) -> None:
        """Write it for the last time, in this turn; left out while another write is under way."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._offset and not self._is_writing:
            write_committed_note(self._doors.disk, self._directory, self._offset)
