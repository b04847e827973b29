"""Aborted transactions of a segment (Kafka's TransactionIndex, `.txnindex`, KIP-98).

An entry has 34 bytes: version 0, producer id, first and last offset of the transaction, and the
last stable offset after its end. The file exists only if the segment has an aborted transaction.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from barnabas.runtime.disk import is_out_of_descriptors

if TYPE_CHECKING:
    from barnabas.runtime.disk import Disk

_ENTRY = Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size
_VERSION = 0


class AbortedEntry(NamedTuple):
    """An aborted transaction."""

    producer_id: int
    first_offset: int
    last_offset: int
    # Last stable offset after the end of this transaction.
    last_stable_offset: int


class TransactionIndex:
    """Aborted transactions in the order of their ends."""

    __slots__ = ("_disk", "_entries", "_unwritten", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self._entries: list[AbortedEntry] | None = None
        # Number of entries at the end that are not in the file, because no descriptor was free.
        self._unwritten = 0

    def create(self) -> None:
        """Start empty, and without a file, for a new segment."""
        self._entries = []

    def entries(self) -> list[AbortedEntry]:
        """Return all entries; the file is read on first use."""
        if self._entries is None:
            self._entries = self._read()
        return self._entries

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
        self.entries().append(entry)
        self._unwritten += 1
        try:
            self.write_out()
        except OSError as error:
            # The marker is in the log and its entry in memory; a later call writes the entry.
            if not is_out_of_descriptors(error):
                raise

    def write_out(self) -> None:
        """Write the entries that are not in the file."""
        if not self._unwritten:
            return
        entries = self.entries()
        written = len(entries) - self._unwritten
        file = self._disk.open(self.path, briefly=True)
        try:
            if file.size() != written * ENTRY_BYTES:
                file.truncate(written * ENTRY_BYTES)
            file.append(_encoded(entries[written:]))
            self._unwritten = 0
        finally:
            file.close()

    def collect(self, offset: int, upper_bound: int, into: list[AbortedEntry]) -> bool:
        """Add the transactions that overlap [offset, upper_bound) to `into`.

        Returns:
            Whether later segments cannot have more of them.
        """
        for entry in self.entries():
            if entry.last_offset >= offset and entry.first_offset < upper_bound:
                into.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return True
        return False

    def truncate_to(self, offset: int) -> None:
        """Remove the transactions that ended at or after `offset`."""
        kept = [entry for entry in self.entries() if entry.last_offset < offset]
        if not kept:
            self.clear()
        elif len(kept) < len(self.entries()):
            self._disk.write_atomically(self.path, _encoded(kept), sync=False)
            self._entries = kept
            self._unwritten = 0

    def clear(self) -> None:
        """Remove all entries, and delete the file."""
        self._entries = []
        self._unwritten = 0
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

    def _read(self) -> list[AbortedEntry]:
        if not self._disk.exists(self.path):
            return []
        content = self._disk.read(self.path)
        whole = len(content) // ENTRY_BYTES * ENTRY_BYTES
        return [AbortedEntry(*values[1:]) for values in _ENTRY.iter_unpack(content[:whole])]


def _encoded(entries: list[AbortedEntry]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)
