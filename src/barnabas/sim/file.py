"""One file in the simulated disk's memory, with what a loss of power would undo."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.runtime.disk import Bytes
    from barnabas.runtime.rng import Rng


# How often a loss of power leaves zeros in what was written last.
_ZEROS_SHARE = 0.3


class Medium(Protocol):
    """The disk, as far as its files know it."""

    # Counts the losses of power: files opened before one are dead.
    generation: int

    def check(self, operation: str, path: str) -> None:
        """Raise the fault that lies on this path, if one does."""
        ...

    def written_before_failure(self, size: int) -> int:
        """How many of `size` bytes a write leaves behind that has just failed."""
        ...

    def room(self) -> int:
        """Bytes until the disk is full."""
        ...

    def wall_ms(self) -> int:
        """Now, for times of change."""
        ...


class Inode:
    """A file's bytes as the page cache has them, and a journal back to what the device has."""

    __slots__ = ("_journal", "data", "modified_ms")

    def __init__(self, modified_ms: int) -> None:
        self.data = bytearray()
        self.modified_ms = modified_ms
        # What each change since the last sync replaced: (position, bytes before, bytes written).
        # The bytes before end early where the file grew; nothing written means that it was cut.
        self._journal: list[tuple[int, bytes, int]] = []

    def write(self, position: int, data: Bytes) -> None:
        """Overwrite or grow."""
        if position > len(self.data):
            self.write(len(self.data), bytes(position - len(self.data)))
        end = position + len(data)
        self._journal.append((position, bytes(self.data[position:end]), len(data)))
        self.data[position:end] = data

    def truncate(self, size: int) -> None:
        """Cut, or grow with zeros."""
        if size > len(self.data):
            self.write(len(self.data), bytes(size - len(self.data)))
        elif size < len(self.data):
            self._journal.append((size, bytes(self.data[size:]), 0))
            del self.data[size:]

    def sync(self) -> None:
        """All of it is on the device."""
        self._journal.clear()

    @property
    def is_synced(self) -> bool:
        """Whether a loss of power would change nothing."""
        return not self._journal

    def lose_power(self, rng: Rng) -> None:
        """Keep some of the changes since the last sync, the last of those perhaps in part.

        Of what is kept, bytes may be zeros: the length reached the device before the data did.
        """
        kept = rng.randint(0, len(self._journal))
        while len(self._journal) > kept:
            self._undo(*self._journal.pop(), torn=0)
        if self._journal and rng.random() < 0.5:
            position, before, written = self._journal.pop()
            torn = rng.randint(0, written)
            self._undo(position, before, written, torn=torn)
            if written:
                self._journal.append((position, before, torn))
        if self._journal and rng.random() < _ZEROS_SHARE:
            self._blank(rng)
        self._journal.clear()

    def _blank(self, rng: Rng) -> None:
        """Make zeros of a part of one write, as far as the file had grown by it."""
        position, before, written = self._journal[rng.randint(0, len(self._journal) - 1)]
        first, end = position + len(before), min(position + written, len(self.data))
        if first < end:
            start = rng.randint(first, end - 1)
            end = end if rng.random() < 0.5 else rng.randint(start + 1, end)
            self.data[start:end] = bytes(end - start)

    def _undo(self, position: int, before: bytes, written: int, *, torn: int) -> None:
        """Put back what was there, but for the first `torn` bytes that were written."""
        if torn >= written and written:
            return
        if len(before) < written:
            # It had grown; the torn part of the growth stays.
            del self.data[position + max(len(before), torn) :]
        self.data[position + torn : position + len(before)] = before[torn:]


class SimFile:
    """An open file of a simulated disk."""

    __slots__ = ("_disk", "_generation", "_inode", "path")

    def __init__(self, disk: Medium, path: str, inode: Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode: Inode | None = inode
        # Handles of before a crash are dead.
        self._generation = disk.generation

    def append(self, data: Bytes | Sequence[Bytes]) -> int:
        """Write at the end; returns the number of bytes written."""
        whole = data if isinstance(data, bytes | bytearray | memoryview) else b"".join(data)
        self.write_at(whole, len(self._open().data))
        return len(whole)

    def write_at(self, data: Bytes, position: int) -> None:
        """Overwrite from `position` on; a full disk takes a part of it."""
        inode = self._open()
        try:
            self._disk.check("write", self.path)
        except OSError:
            kept = self._disk.written_before_failure(len(data))
            if kept:
                inode.write(position, memoryview(data)[:kept])
            raise
        growth = max(0, position + len(data) - len(inode.data))
        room = self._disk.room()
        if growth > room:
            fitting = max(0, len(data) - (growth - room))
            inode.write(position, memoryview(data)[:fitting])
            raise OSError(errno.ENOSPC, "no space left on device", self.path)
        inode.write(position, data)
        inode.modified_ms = self._disk.wall_ms()

    def read_at(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`."""
        inode = self._open()
        self._disk.check("read", self.path)
        return bytes(inode.data[position : position + size])

    def size(self) -> int:
        """Bytes in the file."""
        return len(self._open().data)

    def truncate(self, size: int) -> None:
        """Cut or grow to `size` bytes."""
        inode = self._open()
        self._disk.check("write", self.path)
        inode.truncate(size)
        inode.modified_ms = self._disk.wall_ms()

    def sync(self) -> None:
        """What was written survives `crash()`."""
        inode = self._open()
        self._disk.check("sync", self.path)
        inode.sync()

    def close(self) -> None:
        """The handle is dead."""
        self._inode = None

    def fileno(self) -> int:
        """There is none."""
        return -1

    def _open(self) -> Inode:
        if self._inode is None or self._generation != self._disk.generation:
            raise OSError(errno.EBADF, "file is closed", self.path)
        return self._inode
