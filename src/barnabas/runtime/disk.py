"""The door to files. Everything that the broker keeps goes through here.

The simulated twin (`sim.disk`) loses what was not synced, tears writes, fills up and flips bits.
Paths are plain strings. Every failure is an `OSError`.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from barnabas.runtime import system_calls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Bytes: TypeAlias = bytes | bytearray | memoryview
Names: TypeAlias = list[str]

_NS_PER_MS = 1_000_000
# Linux takes at most this many buffers in one vectored write.
_IOV_MAX = 1024
_FILE_MODE = 0o644
# So many descriptors of the reserve are given up at once: removing a directory takes three.
_RESERVE_STEP = 4
_RESERVE_PATH = "/dev/null"
_T = TypeVar("_T")
# A tuple, since a union written in place is built anew at each look.
_IN_MEMORY = (bytes, bytearray, memoryview)


def is_out_of_descriptors(error: object) -> bool:
    """Return whether an operation failed only because no descriptor was free (EMFILE, ENFILE).

    The disk is in order, and the same operation may be tried again.
    """
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


class File(Protocol):
    """One open file; one object at a time writes to a path."""

    @property
    def path(self) -> str:
        """Where it was opened."""
        ...

    def append(self, data: Bytes | Sequence[Bytes]) -> int:
        """Write at the end, one system call where it can; returns the number of bytes written.

        A short write is continued inside; after an `OSError` the file may have grown by a part.
        """
        ...

    def write_at(self, data: Bytes, position: int) -> None:
        """Overwrite from `position` on; the file grows where needed."""
        ...

    def read_at(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; shorter at the end of the file."""
        ...

    def size(self) -> int:
        """Bytes in the file."""
        ...

    def truncate(self, size: int) -> None:
        """Cut (or grow with zeros) to `size` bytes."""
        ...

    def sync(self) -> None:
        """Return when all that was written survives the loss of power. Blocks."""
        ...

    def close(self) -> None:
        """Give the descriptor back; a second call does nothing."""
        ...

    def fileno(self) -> int:
        """The descriptor for sendfile; -1 when there is none (simulation)."""
        ...


class FileLock(Protocol):
    """A held lock."""

    def release(self) -> None:
        """Let others have it."""
        ...


class Disk(Protocol):
    """A file system."""

    def open(self, path: str, create: bool = True, briefly: bool = False) -> File:
        """Open for reading and writing. Raises FileNotFoundError when absent and not `create`.

        Args:
            briefly: the caller closes the file before it returns; then a reserve of descriptors
                may be used. All other operations of a disk use it too.
        """
        ...

    def read(self, path: str) -> bytes:
        """The whole content."""
        ...

    def write_atomically(self, path: str, data: Bytes, sync: bool = True) -> None:
        """Replace the content: after a crash the old or the new is there, never a mixture."""
        ...

    def absolute(self, path: str) -> str:
        """The path from the root on, in its shortest form."""
        ...

    def space(self, path: str) -> tuple[int, int]:
        """Bytes of the file system that a path lies on: all, and free for this process."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""
        ...

    def is_directory(self, path: str) -> bool:
        """Whether a directory is there."""
        ...

    def size(self, path: str) -> int:
        """Bytes of a file."""
        ...

    def list(self, directory: str) -> Names:
        """Names in a directory, sorted."""
        ...

    def make_directory(self, path: str) -> None:
        """Make it and its parents; no error when it exists."""
        ...

    def remove(self, path: str) -> None:
        """Delete a file."""
        ...

    def remove_tree(self, path: str) -> None:
        """Delete a directory and all in it; no error when it is absent."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename, replacing a file of the new name."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make creations, renames and deletions in it survive the loss of power."""
        ...

    def write_back(self, path: str) -> None:
        """Have the file system of `path` write out all that it keeps in memory. Blocks.

        It makes many syncs that follow cheap, and takes the place of none of them: an error of the
        device is found by them.
        """
        ...

    def lock(self, path: str) -> FileLock | None:
        """Lock a file (made when absent) against other processes and openers; None if held."""
        ...

    def modified_ms(self, path: str) -> int:
        """Time of the last change, wall clock."""
        ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of the last change (Kafka keeps a segment's largest timestamp there)."""
        ...


class FileSlice:
    """Bytes still in a file: what a fetch answers with, sent by sendfile or copied late."""

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
        """Copy it out; shorter than its length when the file was cut meanwhile."""
        return self.file.read_at(self.length, self.position)


class RealFile:
    """A file of the operating system. The size is counted here, not asked for on each append."""

    __slots__ = ("_descriptor", "_reserve", "_size", "path")

    def __init__(self, path: str, create: bool, reserve: _Reserve | None = None) -> None:
        """`reserve` is refilled when the file is closed."""
        self._reserve = reserve
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self.path = path
        self._descriptor = os.open(path, flags, _FILE_MODE)
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
            for first in range(0, len(data), _IOV_MAX):
                self._append_vector(data[first : first + _IOV_MAX])
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
        """Up to `size` bytes from `position`."""
        return os.pread(self._descriptor, size, position)

    def size(self) -> int:
        """Bytes in the file."""
        return self._size

    def truncate(self, size: int) -> None:
        """Cut or grow to `size` bytes."""
        os.ftruncate(self._descriptor, size)
        self._size = size

    def sync(self) -> None:
        """Flush data and length to the device."""
        system_calls.sync_data(self._descriptor)

    def close(self) -> None:
        """Give the descriptor back."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            if self._reserve is not None:
                self._reserve.refill()

    def fileno(self) -> int:
        """The descriptor."""
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
        """Closing the description drops its lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class _Reserve:
    """Open descriptors that are given up while the process has no other free ones.

    Any thread may call it: taking one from a list and adding one are atomic.
    """

    __slots__ = ("_descriptors", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._descriptors: list[int] = []
        self.refill()

    def refill(self) -> None:
        """Open again as many as are missing, as far as there are free ones."""
        while len(self._descriptors) < self._size and self._add():
            pass

    def run(self, operation: Callable[[], _T]) -> _T:
        """Run an operation that closes all that it opens, with the reserve if it must be."""
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
        """Close a quarter of the reserve; returns False if there was none left."""
        count = 0
        while self._descriptors and count < _RESERVE_STEP:
            os.close(self._descriptors.pop())
            count += 1
        return count > 0

    def close(self) -> None:
        """Close all descriptors; the reserve stays empty."""
        self._size = 0
        while self._descriptors:
            os.close(self._descriptors.pop())

    def _add(self) -> bool:
        try:
            self._descriptors.append(os.open(_RESERVE_PATH, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            return False
        return True


class RealDisk:
    """The operating system's file system."""

    __slots__ = ("_reserve",)

    def __init__(self, reserve_size: int = 0) -> None:
        """`reserve_size`: descriptors kept for short operations when the process has no others."""
        self._reserve = _Reserve(reserve_size)

    def close(self) -> None:
        """Close the reserve of descriptors; files can still be opened."""
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

    def read(self, path: str) -> bytes:
        """The whole content."""

        def read() -> bytes:
            with open(path, "rb") as file:  # noqa: PTH123 - paths are strings here
                return file.read()

        return self._reserve.run(read)

    def write_atomically(self, path: str, data: Bytes, sync: bool = True) -> None:
        """Write beside it, sync, rename over it, sync the directory."""
        self._reserve.run(lambda: self._write_atomically(path, data, sync))

    def _write_atomically(self, path: str, data: Bytes, sync: bool) -> None:
        temporary = path + ".tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, _FILE_MODE)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            if sync:
                system_calls.sync_data(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)  # noqa: PTH105 - paths are strings here
        if sync:
            self.sync_directory(os.path.dirname(path) or ".")  # noqa: PTH120

    def absolute(self, path: str) -> str:
        """The path from the root on, in its shortest form."""
        return os.path.abspath(path)  # noqa: PTH100 - paths are strings here

    def space(self, path: str) -> tuple[int, int]:
        """Bytes of the file system: all, and free for this process."""
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""
        return os.path.exists(path)  # noqa: PTH110

    def is_directory(self, path: str) -> bool:
        """Whether a directory is there."""
        return os.path.isdir(path)  # noqa: PTH112

    def size(self, path: str) -> int:
        """Bytes of a file."""
        return os.stat(path).st_size  # noqa: PTH116

    def list(self, directory: str) -> Names:
        """Names in a directory, sorted."""
        return self._reserve.run(lambda: sorted(os.listdir(directory)))  # noqa: PTH208

    def make_directory(self, path: str) -> None:
        """Make it and its parents."""
        os.makedirs(path, exist_ok=True)  # noqa: PTH103

    def remove(self, path: str) -> None:
        """Delete a file."""
        os.remove(path)  # noqa: PTH107

    def remove_tree(self, path: str) -> None:
        """Delete a directory and all in it."""
        import shutil  # pulls in the compression modules, and deleting is rare

        if os.path.isdir(path):  # noqa: PTH112
            self._reserve.run(lambda: shutil.rmtree(path))

    def rename(self, old: str, new: str) -> None:
        """Rename, replacing a file of the new name."""
        os.replace(old, new)  # noqa: PTH105

    def sync_directory(self, path: str) -> None:
        """Flush the directory's entries to the device."""
        self._reserve.run(lambda: _sync_directory(path))

    def write_back(self, path: str) -> None:
        """Call syncfs, or sync where there is none; no error of it counts."""

        def sync() -> None:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                system_calls.sync_file_system(descriptor)
            finally:
                os.close(descriptor)

        self._reserve.run(sync)

    def lock(self, path: str) -> FileLock | None:
        """Lock a file; None if held.

        The lock belongs to the open file description, so that it excludes a second opener in this
        process as well as the POSIX lock that a JVM broker takes on the same file.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
        try:
            system_calls.lock(descriptor)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return None
            raise
        return _RealLock(descriptor)

    def modified_ms(self, path: str) -> int:
        """Time of the last change, wall clock."""
        return os.stat(path).st_mtime_ns // _NS_PER_MS  # noqa: PTH116

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of the last change."""
        moment = modified_ms * _NS_PER_MS
        os.utime(path, ns=(moment, moment))


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
