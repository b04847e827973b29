"""A file in the memory of the simulated disk, with a journal of the changes not yet synced."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.runtime.disk import Bytes
    from barnabas.runtime.rng import Rng


# Probability that a power loss leaves zeros in an unsynced write.
_ZEROS_SHARE = 0.3


class Medium(Protocol):
    """The methods of the disk that its files use."""

    # Increases with each crash or kill; files opened in an older generation are closed.
    generation: int

    def check(self, operation: str, path: str) -> None:
        """Raise the fault that is set for this operation and path, if there is one."""
        ...

    def written_before_failure(self, size: int) -> int:
        """Return how many of `size` bytes a write that just failed leaves in the file."""
        ...

    def free_bytes(self) -> int:
        """Return the bytes until the disk is full."""
        ...

    def wall_ms(self) -> int:
        """Return the current wall time (ms), used as modification time."""
        ...


class Inode:
    """The content of a file in the page cache, and a journal to undo unsynced changes."""

    __slots__ = ("_journal", "data", "modified_ms")

    def __init__(self, modified_ms: int) -> None:
        self.data = bytearray()
        self.modified_ms = modified_ms
        # Changes since the last sync: (position, bytes before, number of bytes written).
        # Where a write grew the file, the bytes before are shorter than the write. Zero bytes
        # written means a truncation.
        self._journal: list[tuple[int, bytes, int]] = []

    def write(self, position: int, data: Bytes) -> None:
        """Write at a position, and grow the file if necessary."""
        if position > len(self.data):
            self.write(len(self.data), bytes(position - len(self.data)))
        end = position + len(data)
        self._journal.append((position, bytes(self.data[position:end]), len(data)))
        self.data[position:end] = data

    def truncate(self, size: int) -> None:
        """Truncate the file, or grow it with zeros."""
        if size > len(self.data):
            self.write(len(self.data), bytes(size - len(self.data)))
        elif size < len(self.data):
            self._journal.append((size, bytes(self.data[size:]), 0))
            del self.data[size:]

    def sync(self) -> None:
        """Make the whole content durable."""
        self._journal.clear()

    @property
    def is_synced(self) -> bool:
        """Whether all changes are durable, so a power loss changes nothing."""
        return not self._journal

    def lose_power(self, rng: Rng) -> None:
        """Keep a random number of the unsynced changes; the last of them may be torn.

        Some of the kept bytes may become zeros, as when the new length becomes durable before the
        data.
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
        """Overwrite a random part of one write with zeros, within the bytes that grew the file."""
        position, before, written = self._journal[rng.randint(0, len(self._journal) - 1)]
        first, end = position + len(before), min(position + written, len(self.data))
        if first < end:
            start = rng.randint(first, end - 1)
            end = end if rng.random() < 0.5 else rng.randint(start + 1, end)
            self.data[start:end] = bytes(end - start)

    def _undo(self, position: int, before: bytes, written: int, *, torn: int) -> None:
        """Restore the previous content, except for the first `torn` bytes of the write."""
        if torn >= written and written:
            return
        if len(before) < written:
            # The write grew the file. The torn part of the growth stays.
            del self.data[position + max(len(before), torn) :]
        self.data[position + torn : position + len(before)] = before[torn:]


class SimFile:
    """An open file on a simulated disk."""

    __slots__ = ("_disk", "_generation", "_inode", "path")

    def __init__(self, disk: Medium, path: str, inode: Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode: Inode | None = inode
        # The handle is closed when the disk's generation differs.
        self._generation = disk.generation

    def append(self, data: Bytes | Sequence[Bytes]) -> int:
        """Write at the end of the file. Return the number of bytes written."""
        whole = data if isinstance(data, bytes | bytearray | memoryview) else b"".join(data)
        self.write_at(whole, len(self._open().data))
        return len(whole)

    def write_at(self, data: Bytes, position: int) -> None:
        """Write at `position`. On a full disk, write the part that fits and raise OSError."""
        inode = self._open()
        try:
            self._disk.check("write", self.path)
        except OSError:
            kept = self._disk.written_before_failure(len(data))
            if kept:
                inode.write(position, memoryview(data)[:kept])
            raise
        growth = max(0, position + len(data) - len(inode.data))
        free_bytes = self._disk.free_bytes()
        if growth > free_bytes:
            fitting = max(0, len(data) - (growth - free_bytes))
            inode.write(position, memoryview(data)[:fitting])
            raise OSError(errno.ENOSPC, "no space left on device", self.path)
        inode.write(position, data)
        inode.modified_ms = self._disk.wall_ms()

    def read_at(self, size: int, position: int) -> bytes:
        """Return up to `size` bytes from `position`."""
        inode = self._open()
        self._disk.check("read", self.path)
        return bytes(inode.data[position : position + size])

    def size(self) -> int:
        """Return the size of the file in bytes."""
        return len(self._open().data)

    def truncate(self, size: int) -> None:
        """Truncate or grow the file to `size` bytes."""
        inode = self._open()
        self._disk.check("write", self.path)
        inode.truncate(size)
        inode.modified_ms = self._disk.wall_ms()

    def sync(self) -> None:
        """Make the content durable: it survives `SimDisk.crash()`."""
        inode = self._open()
        self._disk.check("sync", self.path)
        inode.sync()

    def close(self) -> None:
        """Close the handle."""
        self._inode = None

    def fileno(self) -> int:
        """Return -1: a simulated file has no descriptor."""
        return -1

    def _open(self) -> Inode:
        if self._inode is None or self._generation != self._disk.generation:
            raise OSError(errno.EBADF, "file is closed", self.path)
        return self._inode
