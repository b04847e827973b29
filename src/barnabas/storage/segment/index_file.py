"""File of an index: fixed-size entries, written in groups, possibly followed by zeros.

Entries are buffered until there are enough for a write, or until the segment is rolled, synced or
closed. A crash may lose buffered entries, but recovery rebuilds every index above the recovery
point, and a sync writes them first. Kafka maps its index files into memory. It pads them with zeros
while they are open, and after a kill; this class removes the padding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.runtime.disk import is_out_of_descriptors

if TYPE_CHECKING:
    from barnabas.runtime.disk import Disk

# Maximum number of buffered bytes.
_PENDING_BYTES_MAX = 768
# Number of entries of the active segment that stay in memory when `trim` drops the earlier ones.
# Reads near the end of the log need these only.
TAIL_ENTRIES = 1024


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
        # Entries not yet in the file.
        self._pending = bytearray()
        # Bytes of entries in the file without padding; None until the file was examined.
        self._written_bytes: int | None = None
        # Number of changes of the file, and how many of them are synced. An existing file counts as
        # changed, because an earlier process may not have synced it.
        self._changes = 1
        self._synced_changes = 0

    def create(self) -> None:
        """Create the file, empty."""
        self._disk.open(self.path, briefly=True).close()
        self.start_empty()

    def start_empty(self) -> None:
        """Start without entries; the file is absent or empty."""
        self._written_bytes = 0
        # For an empty file, only the directory entry has to be synced.
        self._changes = self._synced_changes = 0

    def read(self) -> bytes:
        """Return all entries; an absent file has none."""
        content = self._disk.read(self.path) if self._disk.exists(self.path) else b""
        size = len(content.rstrip(b"\0"))
        entry_bytes = self._entry_bytes
        size = min(-(-size // entry_bytes) * entry_bytes, len(content) // entry_bytes * entry_bytes)
        self._written_bytes = size
        return content[:size] + self._pending

    def last_entry(self) -> bytes | None:
        """Return the last entry, None without one; read no more of the file than necessary."""
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
        """Append an entry, which may stay in memory until `write_out`."""
        pending = self._pending
        pending += entry
        if len(pending) >= _PENDING_BYTES_MAX:
            try:
                self.write_out()
            except OSError as error:
                # The batch is in the log and its entry is buffered; a later call writes the entry.
                if not is_out_of_descriptors(error):
                    raise

    def write_out(self) -> None:
        """Write buffered entries to the file, and remove padding."""
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

    def remove_padding(self) -> None:
        """Remove zeros after the last entry; the file must exist."""
        if self._written_bytes is None:
            self._find_end()
        written = self._written_bytes or 0
        if self._disk.size(self.path) == written:
            return
        file = self._disk.open(self.path, briefly=True)
        self._changes += 1
        try:
            file.truncate(written)
        finally:
            file.close()

    def sync(self) -> None:
        """Sync the written entries; callable on any thread."""
        changes = self._changes
        if self._synced_changes == changes:
            return
        try:
            file = self._disk.open(self.path, create=False, briefly=True)
        except FileNotFoundError:
            # The file was deleted with its segment.
            return
        try:
            file.sync()
        finally:
            file.close()
        self._synced_changes = changes

    def replace(self, content: bytes) -> None:
        """Replace the content of the file."""
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
        """Find the end of the entries, before any padding, and return the last entry."""
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
