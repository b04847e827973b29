"""A disk in memory that fails as disks do, by the seed.

`crash()` is the loss of power: what was not synced is lost, or kept in part, the last write torn;
names made, renamed or removed without `sync_directory` may come back as they were. `kill()` is the
death of the process: the page cache survives. Faults are set per path: EIO on reads, writes or
syncs, a disk that is full, flipped bits. Or one system call fails, by its number: so a test can let
each call of an operation fail in turn.
"""

from __future__ import annotations

import errno
import posixpath
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from barnabas.sim.file import Inode, SimFile

if TYPE_CHECKING:
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.disk import Bytes, File, FileLock, Names
    from barnabas.runtime.rng import Rng

# A directory is an entry without an inode of its own.
_DIRECTORY = None
_Entry: TypeAlias = "Inode | None"
_MISSING = object()
# What a disk without limit says of its size.
_SIZE_BYTES = 1 << 40


class DiskFault(msgspec.Struct, frozen=True):
    """An error that operations on paths with this prefix meet."""

    prefix: str
    # "open", "read", "write", "sync", "rename" or "remove".
    operations: tuple[str, ...]
    error: int = errno.EIO


class FailingCall(msgspec.Struct, frozen=True):
    """The system call that fails, and what a failed write leaves behind."""

    # Counted by `SimDisk.calls`.
    number: int
    error: int = errno.EIO
    # The share of the bytes that is in the file all the same.
    written_share: float = 0.0
    # Whether calls of the same kind after it fail too.
    lasts: bool = False


class _SimLock:
    __slots__ = ("_locks", "_path")

    def __init__(self, locks: set[str], path: str) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        self._locks.discard(self._path)


class _NameChange:
    """Names that were made, renamed or removed together."""

    __slots__ = ("before", "new", "old")

    def __init__(self, before: dict[str, object], old: str | None, new: str | None) -> None:
        # What was there: path -> entry.
        self.before = before
        # The name that a directory or file had, and the one it has; None: it was removed.
        self.old = old
        self.new = new

    def follows(self, change: _NameChange) -> bool:
        """Take the names that a later change, which is durable now, gave to what is meant here.

        Returns:
            Whether something of this one is left.
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
    """One host's file system."""

    __slots__ = (
        "_clock",
        "_entries",
        "_journal",
        "_locks",
        "_rng",
        "call_log",
        "capacity_bytes",
        "failing_call",
        "faults",
        "generation",
    )

    def __init__(self, clock: Clock, rng: Rng) -> None:
        self._clock = clock
        self._rng = rng
        self._entries: dict[str, _Entry] = {}
        # Changes of names that are not durable, oldest first.
        self._journal: list[_NameChange] = []
        self._locks: set[str] = set()
        # Raised by a crash or kill; older handles are dead.
        self.generation = 0
        # All files together; None is without limit.
        self.capacity_bytes: int | None = None
        self.faults: list[DiskFault] = []
        # System calls so far that can fail, (operation, path) each; None: they are not counted.
        self.call_log: list[tuple[str, str]] | None = None
        self.failing_call: FailingCall | None = None

    def open(self, path: str, create: bool = True, briefly: bool = False) -> File:  # noqa: ARG002
        """Open for reading and writing; this disk has no reserve of descriptors."""
        path = posixpath.normpath(path)
        self.check("open", path)
        if path not in self._entries:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._need_directory(posixpath.dirname(path))
            self.check("write", path)
            self._change({path: Inode(self.wall_ms())})
        return SimFile(self, path, self._file(path))

    def read(self, path: str) -> bytes:
        """The whole content."""
        inode = self._file(path)
        self.check("open", posixpath.normpath(path))
        self.check("read", posixpath.normpath(path))
        return bytes(inode.data)

    def write_atomically(self, path: str, data: Bytes, sync: bool = True) -> None:
        """Replace the content; both steps may be lost, never a mixture when synced."""
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
        """The path in its shortest form; relative ones are below the root."""
        return posixpath.normpath(posixpath.join("/", path))

    def space(self, path: str) -> tuple[int, int]:
        """All bytes, and those that are free."""
        self._need_directory(posixpath.normpath(path))
        total = _SIZE_BYTES if self.capacity_bytes is None else self.capacity_bytes
        return total, min(total, self.room())

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""
        path = posixpath.normpath(path)
        return path in self._entries or path in ("/", ".")

    def is_directory(self, path: str) -> bool:
        """Whether a directory is there."""
        path = posixpath.normpath(path)
        return path in ("/", ".") or self._entries.get(path, _MISSING) is _DIRECTORY

    def size(self, path: str) -> int:
        """Bytes of a file."""
        return len(self._file(path).data)

    def list(self, directory: str) -> Names:
        """Names in a directory, sorted."""
        directory = posixpath.normpath(directory)
        self._need_directory(directory)
        return sorted(
            posixpath.basename(path)
            for path in self._entries
            if posixpath.dirname(path) == ("" if directory == "." else directory)
        )

    def make_directory(self, path: str) -> None:
        """Make it and its parents."""
        path = posixpath.normpath(path)
        if self.is_directory(path):
            return
        if path in self._entries:
            raise FileExistsError(errno.EEXIST, "a file is there", path)
        self.make_directory(posixpath.dirname(path))
        self._change({path: _DIRECTORY})

    def remove(self, path: str) -> None:
        """Delete a file."""
        self._file(path)
        self.check("remove", posixpath.normpath(path))
        self._change({posixpath.normpath(path): _MISSING})

    def remove_tree(self, path: str) -> None:
        """Delete a directory and all in it."""
        path = posixpath.normpath(path)
        self._change(dict.fromkeys(self._tree(path), _MISSING), path, None)

    def rename(self, old: str, new: str) -> None:
        """Rename, replacing a file of the new name."""
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
        """What changed directly in it survives a crash."""
        path = posixpath.normpath(path)
        self._need_directory(path)
        self.check("open", path)
        self.check("sync", path)
        parent = "" if path == "." else path
        waiting: list[_NameChange] = []
        for change in self._journal:
            if any(posixpath.dirname(name) == parent for name in change.before):
                # What waits inside of a directory that moved has moved with it: whatever has its
                # name from now on is another one.
                waiting = [other for other in waiting if other.follows(change)]
            else:
                waiting.append(change)
        self._journal = waiting

    def write_back(self, path: str) -> None:
        """Nothing becomes durable by it."""
        self._need_directory(posixpath.normpath(path))

    def lock(self, path: str) -> FileLock | None:
        """Lock a file; None if held."""
        path = posixpath.normpath(path)
        self.open(path).close()
        if path in self._locks:
            return None
        self._locks.add(path)
        return _SimLock(self._locks, path)

    def modified_ms(self, path: str) -> int:
        """Time of the last change."""
        return self._file(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of the last change."""
        self._file(path).modified_ms = modified_ms

    def crash(self) -> None:
        """Lose power: open files are dead, what was not synced is lost in part or whole."""
        self.kill()
        kept = self._rng.randint(0, len(self._journal))
        while len(self._journal) > kept:
            self._put(self._journal.pop().before)
        self._journal.clear()
        for path in sorted(self._entries):
            if not self.is_directory(posixpath.dirname(path)):
                # Its directory was never durable; parents sort before what is in them.
                del self._entries[path]
                continue
            inode = self._entries[path]
            if inode is not None:
                inode.lose_power(self._rng)

    def kill(self) -> None:
        """The process dies: open files and locks are gone, all that was written is there."""
        self.generation += 1
        self._locks.clear()

    def flip_bit(self, path: str) -> int:
        """Turn one bit of a file over; returns the position of its byte."""
        data = self._file(path).data
        position = self._rng.randint(0, len(data) - 1)
        data[position] ^= 1 << self._rng.randint(0, 7)
        return position

    def check(self, operation: str, path: str) -> None:
        """Raise the fault that lies on this path, if one does."""
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
        is_it = len(calls) == failing.number + 1
        if is_it or (failing.lasts and calls[failing.number][0] == operation):
            raise OSError(failing.error, "simulated failure of one call", path)

    def written_before_failure(self, size: int) -> int:
        """How many of `size` bytes a write leaves behind that has just failed."""
        return int(size * self.failing_call.written_share) if self.failing_call else 0

    def room(self) -> int:
        """Bytes until the disk is full."""
        if self.capacity_bytes is None:
            return 1 << 62
        used = sum(len(inode.data) for inode in self._entries.values() if inode is not None)
        return max(0, self.capacity_bytes - used)

    def wall_ms(self) -> int:
        """Now, for times of change."""
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
