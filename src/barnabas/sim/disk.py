"""An in-memory disk with realistic failures, which depend on the seed.

`crash()` simulates a power loss. Data that was not synced is lost entirely or in part, and the last
write may be torn. Files that were created, renamed or removed without `sync_directory` may return
to their old state. `kill()` simulates the death of the process: the page cache survives.

Faults are set by path prefix: for example, EIO on reads, writes or syncs. The disk can have a
capacity limit, and single bits can be flipped. A single system call can fail by its number, so a
test can make each call of an operation fail in turn.
"""

from __future__ import annotations

import errno
import posixpath
from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.runtime.clock import Clock
    from barnabas.runtime.disk import Bytes, File, FileLock, FileSystem, Names
    from barnabas.runtime.rng import Rng


# Probability that a power loss leaves zeros in an unsynced write.
_ZEROS_SHARE = 0.3


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

    def __init__(self, disk: SimDisk, path: str, inode: Inode) -> None:
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


# The entry of a directory, which has no inode.
_DIRECTORY = None
_Entry: TypeAlias = "Inode | None"
_MISSING = object()
# Size that a disk without a capacity limit reports.
_SIZE_BYTES = 1 << 40
# Bytes per write of `copy_range`.
_COPY_BYTES = 16 << 10


class DiskFault(msgspec.Struct, frozen=True):
    """An error that operations on paths with this prefix raise."""

    prefix: str
    # Any of "open", "read", "write", "sync", "rename" and "remove".
    operations: tuple[str, ...]
    error: int = errno.EIO


class FailingCall(msgspec.Struct, frozen=True):
    """A system call that fails, and the share of its data that a failed write keeps."""

    # Zero-based position of the call in `SimDisk.call_log`.
    number: int
    error: int = errno.EIO
    # Share of the bytes that reach the file although the write fails (0 to 1).
    written_share: float = 0.0
    # Whether later calls of the same operation fail too.
    lasts: bool = False


class _SimLock:
    def __init__(self, locks: set[str], path: str) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        self._locks.discard(self._path)


class _SimFileSystem:
    """All files of a simulated disk."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk

    def holds(self, directory: str) -> bool:
        """Return whether the directory exists: the disk has only one file system."""
        return self._disk.is_directory(directory)

    def sync(self) -> None:
        """Make everything durable, unless the sync of a changed file fails."""
        self._disk.sync_everything()

    def close(self) -> None:
        """Do nothing: there is no descriptor."""


class _NameChange:
    """Names that were created, renamed or removed in one operation."""

    __slots__ = ("before", "new", "old")

    def __init__(self, before: dict[str, object], old: str | None, new: str | None) -> None:
        # State before the change: path -> entry.
        self.before = before
        # Old and new name of the directory or file that was renamed; `new` is None after a removal.
        self.old = old
        self.new = new

    def follows(self, change: _NameChange) -> bool:
        """Update this pending change after a later rename or removal has become durable.

        Returns:
            Whether this change still affects any names.
        """
        if change.old is not None:
            inside, new = change.old + "/", change.new
            self.before = {
                path if not path.startswith(inside) else f"{new}/{path[len(inside) :]}": entry
                for path, entry in self.before.items()
                if new is not None or not path.startswith(inside)
            }
        return bool(self.before)


class SimDisk:
    """The file system of one host."""

    def __init__(self, clock: Clock, rng: Rng) -> None:
        self._clock = clock
        self._rng = rng
        self._entries: dict[str, _Entry] = {}
        # Changes of names that are not durable yet, oldest first.
        self._journal: list[_NameChange] = []
        self._locks: set[str] = set()
        # Increases with each crash or kill; handles of an older generation are closed.
        self.generation = 0
        # Limit for the sum of all file sizes; None means no limit.
        self.capacity_bytes: int | None = None
        self.faults: list[DiskFault] = []
        # (operation, path) of each system call so far that can fail; None: calls are not recorded.
        self.call_log: list[tuple[str, str]] | None = None
        self.failing_call: FailingCall | None = None

    def open(self, path: str, create: bool = True, briefly: bool = False) -> File:
        """Open a file for reading and writing. `briefly` has no effect on this disk."""
        path = posixpath.normpath(path)
        self.check("open", path)
        if path not in self._entries:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._need_directory(posixpath.dirname(path))
            self.check("write", path)
            self._change({path: Inode(self.wall_ms())})
        return SimFile(self, path, self._file(path))

    def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        """Return the content of a file, or a part of it."""
        inode = self._file(path)
        self.check("open", posixpath.normpath(path))
        self.check("read", posixpath.normpath(path))
        return bytes(inode.data[start : None if size is None else start + size])

    def copy_range(self, source: str, target: str, size: int) -> int:
        """Replace the content of `target` by the first `size` bytes of `source`, and sync it."""
        content = self.read(source, 0, size)
        file = self.open(target)
        file.truncate(0)
        for start in range(0, len(content), _COPY_BYTES):
            file.append(content[start : start + _COPY_BYTES])
        file.sync()
        file.close()
        return len(content)

    def write_atomically(self, path: str, data: Bytes, sync: bool = True) -> None:
        """Replace the content of a file by writing a temporary file and renaming it.

        With `sync`, a crash leaves either the old or the new content. Without `sync`, a crash may
        also lose data.
        """
        temporary = path + ".tmp"
        file = self.open(temporary)
        file.truncate(0)
        file.append(data)
        if sync:
            file.sync()
        file.close()
        self.rename(temporary, path)
        if sync:
            self.sync_directory(posixpath.dirname(path))

    def absolute(self, path: str) -> str:
        """Return the normalized absolute path; relative paths are below the root."""
        return posixpath.normpath(posixpath.join("/", path))

    def space(self, path: str) -> tuple[int, int]:
        """Return the total bytes and the free bytes."""
        self._need_directory(posixpath.normpath(path))
        total = _SIZE_BYTES if self.capacity_bytes is None else self.capacity_bytes
        return total, min(total, self.free_bytes())

    def exists(self, path: str) -> bool:
        """Return whether the path is a file or directory."""
        path = posixpath.normpath(path)
        return path in self._entries or path in ("/", ".")

    def is_directory(self, path: str) -> bool:
        """Return whether the path is a directory."""
        path = posixpath.normpath(path)
        return path in ("/", ".") or self._entries.get(path, _MISSING) is _DIRECTORY

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        return len(self._file(path).data)

    def stamp(self, path: str) -> tuple[int, int]:
        """Return the size of a file, and the time of its last change in ns."""
        inode = self._file(path)
        return len(inode.data), inode.modified_ms * 1_000_000

    def list(self, directory: str) -> Names:
        """Return the names in a directory, sorted."""
        directory = posixpath.normpath(directory)
        self._need_directory(directory)
        return sorted(
            posixpath.basename(path)
            for path in self._entries
            if posixpath.dirname(path) == ("" if directory == "." else directory)
        )

    def make_directory(self, path: str) -> None:
        """Create the directory and its missing parents."""
        path = posixpath.normpath(path)
        if self.is_directory(path):
            return
        if path in self._entries:
            raise FileExistsError(errno.EEXIST, "a file exists at this path", path)
        self.make_directory(posixpath.dirname(path))
        self._change({path: _DIRECTORY})

    def remove(self, path: str) -> None:
        """Delete a file."""
        self._file(path)
        self.check("remove", posixpath.normpath(path))
        self._change({posixpath.normpath(path): _MISSING})

    def remove_tree(self, path: str) -> None:
        """Delete a directory and its contents."""
        path = posixpath.normpath(path)
        self._change(dict.fromkeys(self._tree(path), _MISSING), path, None)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or directory; replace an existing file with the new name."""
        old, new = posixpath.normpath(old), posixpath.normpath(new)
        if old not in self._entries:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        self._need_directory(posixpath.dirname(new))
        self.check("rename", old)
        tree = self._tree(old)
        changes: dict[str, object] = dict.fromkeys(tree, _MISSING)
        changes.update({new + path[len(old) :]: self._entries[path] for path in tree})
        self._change(changes, old, new)

    def sync_directory(self, path: str) -> None:
        """Make the changes to the names directly in this directory durable."""
        path = posixpath.normpath(path)
        self._need_directory(path)
        self.check("open", path)
        self.check("sync", path)
        parent = "" if path == "." else path
        pending: list[_NameChange] = []
        for change in self._journal:
            if any(posixpath.dirname(name) == parent for name in change.before):
                # A pending change inside a renamed directory follows the rename. A change inside a
                # removed directory no longer matters.
                pending = [other for other in pending if other.follows(change)]
            else:
                pending.append(change)
        self._journal = pending

    def write_back(self, path: str) -> None:
        """Do nothing: write-back does not make data durable on this disk."""
        self._need_directory(posixpath.normpath(path))

    def open_file_system(self, directory: str) -> FileSystem | None:
        """Return all files of this disk."""
        self._need_directory(posixpath.normpath(directory))
        return _SimFileSystem(self)

    def sync_everything(self) -> None:
        """Make all content and all names durable, and raise the faults of changed files."""
        for path, inode in self._entries.items():
            if inode is not None and not inode.is_synced:
                self.check("sync", path)
                inode.sync()
        self._journal.clear()

    def lock(self, path: str) -> FileLock | None:
        """Lock a file. Return None if the lock is held already."""
        path = posixpath.normpath(path)
        self.open(path).close()
        if path in self._locks:
            return None
        self._locks.add(path)
        return _SimLock(self._locks, path)

    def modified_ms(self, path: str) -> int:
        """Return the time of the last change of a file (ms since the epoch)."""
        return self._file(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of the last change of a file (ms since the epoch)."""
        self._file(path).modified_ms = modified_ms

    def crash(self) -> None:
        """Simulate a power loss: close open files and lose unsynced data in part or completely."""
        self.kill()
        kept = self._rng.randint(0, len(self._journal))
        while len(self._journal) > kept:
            self._put(self._journal.pop().before)
        self._journal.clear()
        for path in sorted(self._entries):
            if not self.is_directory(posixpath.dirname(path)):
                # The directory was never durable. Parents sort before their children.
                del self._entries[path]
                continue
            inode = self._entries[path]
            if inode is not None:
                inode.lose_power(self._rng)

    def kill(self) -> None:
        """Simulate the death of the process: close its files and release its locks.

        Written data stays.
        """
        self.generation += 1
        self._locks.clear()

    def flip_bit(self, path: str) -> int:
        """Flip one random bit of a file. Return the position of its byte."""
        data = self._file(path).data
        position = self._rng.randint(0, len(data) - 1)
        data[position] ^= 1 << self._rng.randint(0, 7)
        return position

    def check(self, operation: str, path: str) -> None:
        """Raise the fault that is set for this operation and path, if there is one."""
        for fault in self.faults:
            if operation in fault.operations and path.startswith(fault.prefix):
                raise OSError(fault.error, "simulated fault", path)
        if self.call_log is not None:
            self.call_log.append((operation, path))
            self._fail_by_number(operation, path)

    def _fail_by_number(self, operation: str, path: str) -> None:
        calls, failing = self.call_log, self.failing_call
        if calls is None or failing is None or len(calls) <= failing.number:
            return
        is_failing_call = len(calls) == failing.number + 1
        if is_failing_call or (failing.lasts and calls[failing.number][0] == operation):
            raise OSError(failing.error, "simulated failure of one call", path)

    def written_before_failure(self, size: int) -> int:
        """Return how many of `size` bytes a write that just failed leaves in the file."""
        return int(size * self.failing_call.written_share) if self.failing_call else 0

    def free_bytes(self) -> int:
        """Return the bytes until the disk is full."""
        if self.capacity_bytes is None:
            return 1 << 62
        used = sum(len(inode.data) for inode in self._entries.values() if inode is not None)
        return max(0, self.capacity_bytes - used)

    def wall_ms(self) -> int:
        """Return the current wall time (ms), used as modification time."""
        return self._clock.wall_ms()

    def _file(self, path: str) -> Inode:
        path = posixpath.normpath(path)
        inode = self._entries.get(path)
        if inode is not None:
            return inode
        if path in self._entries:
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        raise FileNotFoundError(errno.ENOENT, "no such file", path)

    def _need_directory(self, path: str) -> None:
        if not self.is_directory(path):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)

    def _tree(self, path: str) -> Names:
        below = path + "/"
        return [name for name in self._entries if name == path or name.startswith(below)]

    def _change(
        self, changes: dict[str, object], old: str | None = None, new: str | None = None
    ) -> None:
        before = {path: self._entries.get(path, _MISSING) for path in changes}
        self._journal.append(_NameChange(before, old, new))
        self._put(changes)

    def _put(self, changes: dict[str, object]) -> None:
        for path, entry in changes.items():
            if entry is _MISSING:
                self._entries.pop(path, None)
            else:
                assert entry is _DIRECTORY or isinstance(entry, Inode)
                self._entries[path] = entry
