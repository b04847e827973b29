"""The file behind an index: entries of one size, appended in groups, perhaps followed by zeros.

Entries wait in memory until there are enough of them for a write, or until the segment is rolled,
synced or closed. A crash may lose them; recovery rebuilds every index above the recovery point, and
a sync writes them first. Kafka maps its index files and leaves them padded with zeros while they
are open, or when it was killed; the padding is dropped here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.runtime.disk import is_out_of_descriptors

if TYPE_CHECKING:
    from barnabas.runtime.disk import Disk

# Bytes that wait in memory at most.
_PENDING_BYTES_MAX = 768


class IndexFile:
    """Reads and appends whole entries; holds no descriptor between calls."""

    __slots__ = (
        "_changes",
        "_disk",
        "_entry_bytes",
        "_pending",
        "_synced_changes",
        "_written_bytes",
        "path",
    )

    def __init__(self, disk: Disk, path: str, entry_bytes: int) -> None:
        self._disk = disk
        self.path = path
        self._entry_bytes = entry_bytes
        # Entries that are not in the file yet.
        self._pending = bytearray()
        # Bytes of entries in the file, padding left out; None until the file was looked at.
        self._written_bytes: int | None = None
        # Changes of the file, and how many of them a sync has covered. A file that was there
        # before may have changes of an earlier process.
        self._changes = 1
        self._synced_changes = 0

    def create(self) -> None:
        """Make the file, empty."""
        self._disk.open(self.path, briefly=True).close()
        self._written_bytes = 0
        # An empty file has only a name to be synced.
        self._changes = self._synced_changes = 0

    def read(self) -> bytes:
        """All entries; an absent file has none."""
        content = self._disk.read(self.path) if self._disk.exists(self.path) else b""
        size = len(content.rstrip(b"\0"))
        entry_bytes = self._entry_bytes
        size = min(-(-size // entry_bytes) * entry_bytes, len(content) // entry_bytes * entry_bytes)
        self._written_bytes = size
        return content[:size] + self._pending

    def last_entry(self) -> bytes | None:
        """The bytes of the last entry, None if there is none; reads no more than it must."""
        if self._pending:
            return bytes(self._pending[-self._entry_bytes :])
        end = self._written_bytes
        if end is None:
            return self._find_end()
        if not end:
            return None
        file = self._disk.open(self.path, briefly=True)
        try:
            return file.read_at(self._entry_bytes, end - self._entry_bytes)
        finally:
            file.close()

    def append(self, entry: bytes) -> None:
        """Add an entry; it may stay in memory until `write_out`."""
        pending = self._pending
        pending += entry
        if len(pending) >= _PENDING_BYTES_MAX:
            try:
                self.write_out()
            except OSError as error:
                # The batch is in the log, and its entry here: it is written with a later one.
                if not is_out_of_descriptors(error):
                    raise

    def write_out(self) -> None:
        """Bring what waits in memory to the file, and cut padding off it."""
        if not self._pending:
            return
        if self._written_bytes is None:
            self._find_end()
        written = self._written_bytes or 0
        file = self._disk.open(self.path, briefly=True)
        self._changes += 1
        try:
            if file.size() != written:
                file.truncate(written)
            file.append(self._pending)
            self._written_bytes = written + len(self._pending)
            self._pending = bytearray()
        finally:
            file.close()

    def sync(self) -> None:
        """Make what was written out survive the loss of power; for any thread."""
        changes = self._changes
        if self._synced_changes == changes:
            return
        try:
            file = self._disk.open(self.path, create=False, briefly=True)
        except FileNotFoundError:
            # Deleted meanwhile with its segment.
            return
        try:
            file.sync()
        finally:
            file.close()
        self._synced_changes = changes

    def replace(self, content: bytes) -> None:
        """Make `content` all there is."""
        self._pending = bytearray()
        file = self._disk.open(self.path, briefly=True)
        self._changes += 1
        try:
            file.truncate(0)
            if content:
                file.append(content)
        finally:
            file.close()
        self._written_bytes = len(content)

    def _find_end(self) -> bytes | None:
        """Where the entries end: at the file's end, unless that is padding; and the last one."""
        try:
            file = self._disk.open(self.path, create=False, briefly=True)
        except FileNotFoundError:
            self._written_bytes = 0
            return None
        try:
            size = file.size() // self._entry_bytes * self._entry_bytes
            tail = file.read_at(self._entry_bytes, max(0, size - self._entry_bytes))
        finally:
            file.close()
        if size and not any(tail):
            return self.read()[-self._entry_bytes :] or None
        self._written_bytes = size
        return tail if size else None
