"""Aborted transactions of a segment (Kafka's TransactionIndex, `.txnindex`, KIP-98).

An entry has 34 bytes: version 0, producer id, first and last offset of the transaction, and the
last stable offset after its end. The file exists only if the segment has an aborted transaction.
"""

from __future__ import annotations

from bisect import bisect_left
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from barnabas.runtime.disk import is_out_of_descriptors

if TYPE_CHECKING:
    from barnabas.runtime.disk import Disk

_ENTRY = Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size
_VERSION = 0
# An entry without its version.
_FIELDS = Struct(">2x4q")


class AbortedEntry(NamedTuple):
    """An aborted transaction."""

    producer_id: int
    first_offset: int
    last_offset: int
    # Last stable offset after the end of this transaction.
    last_stable_offset: int


class TransactionIndex:
    """Aborted transactions in the order of their ends."""

    __slots__ = ("_content", "_disk", "_unwritten_bytes", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        # All entries as in the file. A segment may have 100,000 of them, so they are unpacked only
        # when needed. None until the file is read.
        self._content: bytearray | None = None
        # Bytes at the end that are not in the file, because no descriptor was free.
        self._unwritten_bytes = 0

    def create(self) -> None:
        """Start empty; the segment is new or is known to have no file."""
        self._content = bytearray()

    @property
    def may_have_entries(self) -> bool:
        """Whether there are entries or an unread file."""
        return self._content is None or bool(self._content)

    def load(self) -> bytearray:
        """Read the file, unless it was read, and return all entries as in the file."""
        if self._content is None:
            content = self._disk.read(self.path) if self._disk.exists(self.path) else b""
            self._content = bytearray(content[: len(content) // ENTRY_BYTES * ENTRY_BYTES])
        return self._content

    def entries(self) -> list[AbortedEntry]:
        """Return all entries; the file is read on first use."""
        return [AbortedEntry._make(fields) for fields in _FIELDS.iter_unpack(self.load())]

    def is_sane(self, base_offset: int, end_offset: int) -> bool:
        """Return whether the entries in the file can belong to a segment with these offsets.

        An empty file is invalid, because a segment without aborted transactions has no file.
        """
        content = self._disk.read(self.path)
        if not content or len(content) % ENTRY_BYTES:
            return False
        last = base_offset - 1
        for version, producer_id, *offsets in _ENTRY.iter_unpack(content):
            first_offset, last_offset, last_stable_offset = offsets
            is_placed = last < last_offset < end_offset and 0 <= first_offset <= last_offset
            # Either the end of the transaction, or the first offset of another open transaction.
            is_stable = 0 <= last_stable_offset <= last_offset + 1
            if version != _VERSION or producer_id < 0 or not (is_placed and is_stable):
                return False
            last = last_offset
        return True

    def append(self, entry: AbortedEntry) -> None:
        """Add a transaction and write it at once, since aborts are rare."""
        content = self.load()
        content += _ENTRY.pack(_VERSION, *entry)
        self._unwritten_bytes += ENTRY_BYTES
        try:
            self.write_out()
        except OSError as error:
            # The marker is in the log and its entry in memory; a later call writes the entry.
            if not is_out_of_descriptors(error):
                raise

    def write_out(self) -> None:
        """Write the entries that are not in the file."""
        if not self._unwritten_bytes:
            return
        content = self.load()
        written = len(content) - self._unwritten_bytes
        file = self._disk.open(self.path, briefly=True)
        try:
            if file.size() != written:
                file.truncate(written)
            file.append(bytes(content[written:]))
            self._unwritten_bytes = 0
        finally:
            file.close()

    def collect(self, offset: int, upper_bound: int, into: list[AbortedEntry]) -> bool:
        """Add the transactions that overlap [offset, upper_bound) to `into`.

        Returns:
            Whether later segments cannot have more of them.
        """
        content = self.load()
        for position in range(self._position_of(offset), len(content), ENTRY_BYTES):
            entry = _entry_at(content, position)
            if entry.first_offset < upper_bound:
                into.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return True
        return False

    def _position_of(self, offset: int) -> int:
        """Return the position of the first transaction that ended at or after `offset`."""
        content = self.load()
        positions = range(0, len(content), ENTRY_BYTES)
        slot = bisect_left(positions, offset, key=lambda at: _entry_at(content, at).last_offset)
        return slot * ENTRY_BYTES

    def truncate_to(self, offset: int) -> None:
        """Remove the transactions that ended at or after `offset`."""
        content, end = self.load(), self._position_of(offset)
        if not end:
            self.clear()
        elif end < len(content):
            self._disk.write_atomically(self.path, content[:end], sync=False)
            del content[end:]
            self._unwritten_bytes = 0

    def clear(self) -> None:
        """Remove all entries, and delete the file."""
        self._content = bytearray()
        self._unwritten_bytes = 0
        if self._disk.exists(self.path):
            self._disk.remove(self.path)

    def sync(self) -> None:
        """Sync the file, if it exists."""
        if self._disk.exists(self.path):
            file = self._disk.open(self.path, briefly=True)
            try:
                file.sync()
            finally:
                file.close()


def _entry_at(content: bytearray, position: int) -> AbortedEntry:
    return AbortedEntry._make(_FIELDS.unpack_from(content, position))
