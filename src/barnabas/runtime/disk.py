"""The interface to files. The broker accesses all its files through this module.

The simulated implementation (`sim.disk`) loses unsynced data, tears writes, fills up and flips
bits. Paths are plain strings. Every failure is an `OSError`.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from barnabas.runtime import file_calls, system_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Bytes: TypeAlias = bytes | bytearray | memoryview
Names: TypeAlias = list[str]

_NS_PER_MS = 1_000_000
_DIRECTORY_MODE = 0o700
# Number of reserved descriptors that are released at a time; removing a directory takes three.
_RESERVE_STEP = 4
_RESERVE_PATH = os.devnull
_T = TypeVar("_T")
# A tuple, because a union expression would be created again for each call of isinstance.
_IN_MEMORY = (bytes, bytearray, memoryview)


def is_out_of_descriptors(error: object) -> bool:
    """Return whether an operation failed only because no descriptor was free (EMFILE, ENFILE).

    The disk itself is intact, and the same operation may be retried.
    """
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


class File(Protocol):
    """An open file. Only one object at a time may write to a path."""

    @property
    def path(self) -> str:
        """The path with which the file was opened."""
        ...

    def append(self, data: Bytes | Sequence[Bytes]) -> int:
        """Write at the end, in one system call if possible; returns the number of bytes written.

        A short write is continued. After an `OSError`, a part of the data may have been written.
        """
        ...

    def write_at(self, data: Bytes, position: int) -> None:
        """Overwrite from `position` on. The file grows if necessary."""
        ...

    def read_at(self, size: int, position: int) -> bytes:
        """Return up to `size` bytes from `position`; fewer at the end of the file."""
        ...

    def size(self) -> int:
        """Return the size of the file, bytes."""
        ...

    def truncate(self, size: int) -> None:
        """Truncate the file, or extend it with zeros, to `size` bytes."""
        ...

    def sync(self) -> None:
        """Return when all written data survives a power failure. Blocks."""
        ...

    def close(self) -> None:
        """Close the descriptor; a second call has no effect."""
        ...

    def fileno(self) -> int:
        """Return the descriptor for sendfile; -1 if there is none (simulation)."""
        ...


class FileLock(Protocol):
    """A lock that is held."""

    def release(self) -> None:
        """Release the lock."""
        ...


class FileSystem(Protocol):
    """An open file system, whose files are all synced in one operation."""

    def holds(self, directory: str) -> bool:
        """Return whether a directory is in this file system, and not behind a link or a mount."""
        ...

    def sync(self) -> None:
        """Return when everything that was written survives a power failure. Blocks.

        Raises:
            OSError: a write has failed since the file system was opened, of any of its files.
        """
        ...

    def close(self) -> None:
        """Close the descriptor; a second call has no effect."""
        ...


class Disk(Protocol):
    """Files and directories."""

    def open(self, path: str, create: bool = True, briefly: bool = False) -> File:
        """Open for reading and writing. Raises FileNotFoundError if absent and not `create`.

        Args:
            path: the path of the file.
            create: whether a missing file is created.
            briefly: whether the caller closes the file before it returns. Then reserved descriptors
                may be used, as in all other operations of a disk.
        """
        ...

    def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        """Return the content of a file, or `size` bytes from `start`; fewer at the end."""
        ...

    def copy_range(self, source: str, target: str, size: int) -> int:
        """Replace the content of `target` by the first `size` bytes of `source`, and sync it.

        The system copies the bytes itself where it can. The name of a new file becomes durable
        only with `sync_directory`. After an `OSError`, a part may have been written.

        Returns:
            The number of bytes copied, which is smaller if the source is shorter.
        """
        ...

    def write_atomically(self, path: str, data: Bytes, sync: bool = True) -> None:
        """Replace the content of a file.

        After a crash, the file has either the old or the new content, never a mixture.
        """
        ...

    def absolute(self, path: str) -> str:
        """Return the absolute, normalized path."""
        ...

    def space(self, path: str) -> tuple[int, int]:
        """Return (total, free) bytes of the file system of a path; free for this process."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        ...

    def is_directory(self, path: str) -> bool:
        """Return whether a directory exists."""
        ...

    def size(self, path: str) -> int:
        """Return the size of a file, bytes."""
        ...

    def stamp(self, path: str) -> tuple[int, int]:
        """Return the size of a file, and the time of its last change in ns: it tells versions."""
        ...

    def list(self, directory: str) -> Names:
        """Return the names in a directory, sorted."""
        ...

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, for this user only; no error if it exists."""
        ...

    def remove(self, path: str) -> None:
        """Delete a file."""
        ...

    def remove_tree(self, path: str) -> None:
        """Delete a directory with its content; no error if it is absent."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing a file with the new name."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and deletions in a directory survive a power failure."""
        ...

    def write_back(self, path: str) -> None:
        """Make the file system of `path` write all its cached data to the device. Blocks.

        This makes the following syncs faster, but replaces none of them: only they report errors of
        the device.
        """
        ...

    def open_file_system(self, directory: str) -> FileSystem | None:
        """Open the file system of a directory; None if its sync would not report failed writes."""
        ...

    def lock(self, path: str) -> FileLock | None:
        """Lock a file (created if absent) against other openers; None if it is locked already."""
        ...

    def modified_ms(self, path: str) -> int:
        """Return the time of the last change, wall clock ms."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of the last change, where Kafka stores a segment's largest timestamp."""
        ...


class FileSlice:
    """A range of bytes in a file, which is sent with sendfile or copied only when it is sent."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: File, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"FileSlice({self.file.path!r}, {self.position}, {self.length})"

    def read(self) -> bytes:
        """Return the bytes; fewer than the length if the file was truncated meanwhile."""
        return self.file.read_at(self.length, self.position)


class RealFile:
    """A file of the operating system. It tracks the size itself, which saves a system call."""

    __slots__ = ("_descriptor", "_reserve", "_size", "path")

    def __init__(self, path: str, create: bool, reserve: _Reserve | None = None) -> None:
        """Open the file.

        Args:
            path: the path of the file.
            create: whether a missing file is created.
            reserve: refilled when the file is closed; None if the file used no reserved descriptor.
        """
        self._reserve = reserve
        flags = os.O_RDWR | system_calls.BINARY | (os.O_CREAT if create else 0)
        self.path = path
        self._descriptor = os.open(path, flags, file_calls.FILE_MODE)
        self._size = os.fstat(self._descriptor).st_size

    def append(self, data: Bytes | Sequence[Bytes]) -> int:
        """Write at the end; returns the number of bytes written."""
        start = self._size
        if isinstance(data, _IN_MEMORY):
            written = os.pwrite(self._descriptor, data, start)
            self._size = start + written
            if written < len(data):
                self.write_at(memoryview(data)[written:], self._size)
        else:
            for first in range(0, len(data), system_calls.IOV_MAX):
                self._append_vector(data[first : first + system_calls.IOV_MAX])
        return self._size - start

    def write_at(self, data: Bytes, position: int) -> None:
        """Overwrite from `position` on."""
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._descriptor, rest, position)
            position += written
            rest = rest[written:]
        self._size = max(self._size, position)

    def read_at(self, size: int, position: int) -> bytes:
        """Return up to `size` bytes from `position`."""
        return system_calls.read_at(self._descriptor, size, position)

    def size(self) -> int:
        """Return the size of the file, bytes."""
        return self._size

    def truncate(self, size: int) -> None:
        """Truncate or extend the file to `size` bytes."""
        os.ftruncate(self._descriptor, size)
        self._size = size

    def sync(self) -> None:
        """Flush data and length to the device."""
        system_calls.sync_data(self._descriptor)

    def close(self) -> None:
        """Close the descriptor, and refill the reserve if there is one."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            if self._reserve is not None:
                self._reserve.refill()

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def _append_vector(self, buffers: Sequence[Bytes]) -> None:
        expected = sum(map(len, buffers))
        written = system_calls.write_vector(self._descriptor, buffers, self._size)
        self._size += written
        if written < expected:
            self.write_at(memoryview(b"".join(buffers))[written:], self._size)


class _RealLock:
    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Close the file description, which releases its lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class _RealFileSystem:
    """An open directory. The kernel reports failed writes from its opening on."""

    __slots__ = ("_descriptor", "_device")

    def __init__(self, directory: str) -> None:
        self._descriptor = file_calls.open_directory(directory)
        self._device = os.fstat(self._descriptor).st_dev

    def holds(self, directory: str) -> bool:
        """Return whether a directory is on the same device."""
        return os.stat(directory).st_dev == self._device

    def sync(self) -> None:
        """Call syncfs."""
        system_calls.sync_file_system(self._descriptor)

    def close(self) -> None:
        """Close the descriptor."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class _Reserve:
    """Open descriptors that are closed when the process has no free descriptor left.

    Any thread may use it, because adding to a list and removing from it are atomic.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._descriptors: list[int] = []
        self.refill()

    def refill(self) -> None:
        """Open the missing descriptors, as far as the process has free ones."""
        while len(self._descriptors) < self._size and self._add():
            pass

    def run(self, operation: Callable[[], _T]) -> _T:
        """Run an operation that closes all its descriptors, using the reserve if necessary."""
        try:
            return operation()
        except OSError as error:
            if not is_out_of_descriptors(error) or not self.release():
                raise
        try:
            return operation()
        finally:
            self.refill()

    def release(self) -> bool:
        """Close four reserved descriptors; returns False if none was left."""
        count = 0
        while self._descriptors and count < _RESERVE_STEP:
            os.close(self._descriptors.pop())
            count += 1
        return count > 0

    def close(self) -> None:
        """Close all descriptors. The reserve stays empty."""
        self._size = 0
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _add(self) -> bool:
        try:
            self._descriptors.append(os.open(_RESERVE_PATH, os.O_RDONLY))
        except OSError:
            return False
        return True


class RealDisk:
    """The file system of the operating system."""

    def __init__(self, reserve_size: int = 0) -> None:
        """Create the disk with `reserve_size` descriptors in reserve for short operations."""
        self._reserve = _Reserve(reserve_size)

    def close(self) -> None:
        """Close the reserve of descriptors. Files can still be opened."""
        self._reserve.close()

    def open(self, path: str, create: bool = True, briefly: bool = False) -> File:
        """Open for reading and writing."""
        try:
            return RealFile(path, create)
        except OSError as error:
            if not briefly or not is_out_of_descriptors(error) or not self._reserve.release():
                raise
        try:
            return RealFile(path, create, self._reserve)
        except BaseException:
            self._reserve.refill()
            raise

    def read(self, path: str, start: int = 0, size: int | None = None) -> bytes:
        """Return the content of a file, or a part of it."""
        return self._reserve.run(lambda: file_calls.read_file(path, start, size))

    def copy_range(self, source: str, target: str, size: int) -> int:
        """Replace the content of `target` by the first `size` bytes of `source`, and sync it."""
        return self._reserve.run(lambda: file_calls.copy_file(source, target, size))

    def write_atomically(self, path: str, data: Bytes, sync: bool = True) -> None:
        """Write a temporary file, sync it, rename it, and sync the directory."""
        self._reserve.run(lambda: self._write_atomically(path, data, sync))

    def _write_atomically(self, path: str, data: Bytes, sync: bool) -> None:
        temporary = path + ".tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | system_calls.NEW_FILE
        descriptor = os.open(temporary, flags, file_calls.FILE_MODE)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if sync:
                system_calls.sync_data(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
        if sync:
            self.sync_directory(os.path.dirname(path) or ".")

    def absolute(self, path: str) -> str:
        """Return the absolute, normalized path."""
        return os.path.abspath(path)

    def space(self, path: str) -> tuple[int, int]:
        """Return (total, free) bytes of the file system; free for this process."""
        import shutil  # pulls in the compression modules, and few callers need this

        found = shutil.disk_usage(path)
        return found.total, found.free

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists."""
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        """Return whether a directory exists."""
        return os.path.isdir(path)

    def size(self, path: str) -> int:
        """Return the size of a file, bytes."""
        return os.stat(path).st_size

    def stamp(self, path: str) -> tuple[int, int]:
        """Return the size of a file, and the time of its last change in ns."""
        found = os.stat(path)
        return found.st_size, found.st_mtime_ns

    def list(self, directory: str) -> Names:
        """Return the names in a directory, sorted."""
        return self._reserve.run(lambda: sorted(os.listdir(directory)))

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents; those that exist keep their mode."""
        try:
            os.mkdir(path, _DIRECTORY_MODE)
        except FileNotFoundError:
            parent = os.path.dirname(path.rstrip("/"))
            if not parent:
                raise
            self.make_directory(parent)
            # Another process may create the same directory at this moment.
            self.make_directory(path)
        except FileExistsError:
            if not self.is_directory(path):
                raise

    def remove(self, path: str) -> None:
        """Delete a file."""
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        """Delete a directory with its content."""
        import shutil  # pulls in the compression modules, and deleting is rare

        if os.path.isdir(path):
            self._reserve.run(lambda: shutil.rmtree(path))

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing a file with the new name."""
        os.replace(old, new)

    def sync_directory(self, path: str) -> None:
        """Flush the directory's entries to the device."""
        self._reserve.run(lambda: file_calls.sync_directory(path))

    def write_back(self, path: str) -> None:
        """Call syncfs, or sync on systems without it. Errors of either call are ignored."""

        def sync() -> None:
            descriptor = file_calls.open_directory(path)
            try:
                with contextlib.suppress(OSError):
                    system_calls.sync_file_system(descriptor)
            finally:
                os.close(descriptor)

        self._reserve.run(sync)

    def open_file_system(self, directory: str) -> FileSystem | None:
        """Open the file system of a directory; None unless it is a known one of Linux."""
        if not system_calls.reports_failed_writes(directory):
            return None
        try:
            return _RealFileSystem(directory)
        except OSError:
            return None

    def lock(self, path: str) -> FileLock | None:
        """Lock a file; None if it is locked already.

        The lock belongs to the open file description. It excludes a second opener in this process,
        and the POSIX lock that a JVM broker takes on the same file.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, file_calls.FILE_MODE)
        is_ours = False
        try:
            is_ours = system_calls.try_lock(descriptor)
        finally:
            if not is_ours:
                os.close(descriptor)
        return _RealLock(descriptor) if is_ours else None

    def modified_ms(self, path: str) -> int:
        """Return the time of the last change, wall clock ms."""
        return os.stat(path).st_mtime_ns // _NS_PER_MS

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of the last change."""
        moment = modified_ms * _NS_PER_MS
        os.utime(path, ns=(moment, moment))
