"""System calls that not all operating systems have, each with a substitute.

Linux has all of them. macOS lacks `fdatasync`, `prctl`, `syncfs` and, before macOS 11, `pwritev`.
Windows lacks many more. Only clients and tools run there, so calls of brokers have no substitute
there. The available calls are determined when this module is loaded.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
import select
import socket
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_os: Any = os
_select: Any = select
_fcntl: Any
_resource: Any
try:
    import fcntl as _fcntl
    import resource as _resource
except ImportError:
    _fcntl = _resource = None

# False on Windows.
_IS_POSIX = _fcntl is not None
# Whether a broker can run: it needs locks of files, and writes at positions.
CAN_RUN_BROKER = _IS_POSIX
# The error where it cannot.
NO_BROKER = (
    "a broker needs Linux or macOS: on Windows, run it in WSL and connect to it from Windows"
)
# Flags of all files: Windows would otherwise convert line ends.
BINARY: int = getattr(_os, "O_BINARY", 0)
# Flag of reads that never wait for the writer of a pipe. Regular files are read as without it.
NO_WAIT: int = getattr(_os, "O_NONBLOCK", 0)
# Flags of files that are written anew: no symbolic link is followed, and no pipe is waited for.
NEW_FILE: int = BINARY | NO_WAIT | getattr(_os, "O_NOFOLLOW", 0)
# Whether directories can be opened, and so be synced.
HAS_OPEN_DIRECTORIES = hasattr(_os, "O_DIRECTORY")
_SMALLEST_IOV_MAX = 16


def _iov_max() -> int:
    try:
        return int(_os.sysconf("SC_IOV_MAX"))
    except (AttributeError, OSError, ValueError):
        return _SMALLEST_IOV_MAX


# Maximum number of buffers in one vectored write: 1024 on Linux and macOS, 16 by POSIX.
IOV_MAX = _iov_max()

_FDATASYNC = getattr(_os, "fdatasync", None)
# macOS: an fsync that reaches the medium, and not only the drive's cache.
_FULL_SYNC: int | None = getattr(_fcntl, "F_FULLFSYNC", None)
_PWRITEV = getattr(_os, "pwritev", None)
_SENDFILE = getattr(_os, "sendfile", None)
_COPY_FILE_RANGE = getattr(_os, "copy_file_range", None)
_KQUEUE: Any = getattr(_select, "kqueue", None)
_POLL: Any = getattr(_select, "poll", None)
_PEER_ENDED: int | None = getattr(_select, "POLLRDHUP", None)
# Other systems have these locks, too, but with another struct flock.
_HAS_OFD_LOCKS = sys.platform == "linux" and hasattr(_fcntl, "F_OFD_SETLK")
# Linux's struct flock: type, whence, start, length, pid. Zeros mean the whole file; pid must be 0.
_FLOCK = struct.Struct("hhqqi")
_PR_SET_PDEATHSIG = 1
# Limits to try: two for Linux, then the maximum of macOS for an infinite hard limit (OPEN_MAX).
_LIMITS = (1 << 20, 1 << 16, 10_240)

# Whether slices of files can be sent without a copy.
HAS_SENDFILE = _SENDFILE is not None

# Bytes per system call of `copy_data`.
_COPY_BYTES = 16 << 20
_BUFFER_BYTES = 1 << 20
# Errors of a call that the system or one of the two file systems does not support.
_NOT_SUPPORTED = (errno.ENOSYS, errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM)


def sync_data(descriptor: int) -> None:
    """Flush a file's data and length to the device.

    Raises:
        OSError: the device reports an error; data written since the last sync may be lost.
    """
    if _FDATASYNC is not None:
        _FDATASYNC(descriptor)
    elif _FULL_SYNC is not None:
        try:
            _fcntl.fcntl(descriptor, _FULL_SYNC)
        except OSError as error:
            # Some file systems, for example network file systems, do not support this call.
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                raise
            os.fsync(descriptor)
    else:
        os.fsync(descriptor)


def write_vector(
    descriptor: int, buffers: Sequence[bytes | bytearray | memoryview], position: int
) -> int:
    """Write buffers at a position; returns the number of bytes written, perhaps not all.

    Raises:
        OSError: nothing could be written.
    """
    if _PWRITEV is not None:
        written: int = _PWRITEV(descriptor, buffers, position)
        return written
    return os.pwrite(descriptor, b"".join(buffers), position)


def _seek_and_read(descriptor: int, size: int, position: int) -> bytes:
    os.lseek(descriptor, position, os.SEEK_SET)
    return os.read(descriptor, size)


# Read up to `size` bytes of a file at a position: (descriptor, size, position) -> bytes. Without
# pread, only one thread may read a descriptor.
read_at: Callable[[int, int, int], bytes] = getattr(_os, "pread", _seek_and_read)


def send_file(out: int, file: int, position: int, length: int) -> int:
    """Send bytes of a file to a socket; returns the number of bytes sent, 0 at the end of the file.

    Available only if `HAS_SENDFILE`.

    Raises:
        BlockingIOError: the socket's buffer is full.
        OSError: the socket or the file fails.
    """
    assert _SENDFILE is not None, "check HAS_SENDFILE first"
    sent: int = _SENDFILE(out, file, position, length)
    return sent


def _copy_by_sendfile(source: int, target: int, size: int) -> int:
    assert _SENDFILE is not None
    sent: int = _SENDFILE(target, source, None, size)
    return sent


def _copy_by_buffer(source: int, target: int, size: int) -> int:
    content = os.read(source, min(size, _BUFFER_BYTES))
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(target, rest) :]
    return len(content)


def _ways_to_copy() -> list[Callable[[int, int, int], int]]:
    ways: list[Callable[[int, int, int], int]] = [_copy_by_buffer]
    if _SENDFILE is not None and sys.platform == "linux":
        # Elsewhere sendfile needs a socket.
        ways.insert(0, _copy_by_sendfile)
    if _COPY_FILE_RANGE is not None:
        ways.insert(0, _COPY_FILE_RANGE)
    return ways


def copy_data(source: int, target: int, size: int) -> int:
    """Copy bytes between the positions of two files, in the kernel if it can.

    Returns:
        The number of bytes copied, which is smaller if the source ends.

    Raises:
        OSError: a part may have been written.
    """
    ways = _ways_to_copy()
    copied = 0
    while copied < size:
        try:
            count = ways[0](source, target, min(size - copied, _COPY_BYTES))
        except OSError as error:
            if len(ways) == 1 or error.errno not in _NOT_SUPPORTED:
                raise
            count = 0
        if count:
            copied += count
        elif len(ways) == 1:
            break
        else:
            # Some file systems return 0 instead of an error. Only a read shows the end.
            ways.pop(0)
    return copied


def has_peer_ended(descriptor: int) -> bool:
    """Return whether the peer of a TCP socket has closed, or the connection is broken.

    With poll on Linux and kqueue on macOS this is known even if received bytes are unread.
    """
    if _PEER_ENDED is not None:
        poller = _POLL()
        poller.register(descriptor, _PEER_ENDED)
        return bool(poller.poll(0))
    if _KQUEUE is not None:
        return _has_ended_by_kqueue(descriptor)
    try:
        duplicate = socket.fromfd(descriptor, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        # No descriptor is free.
        return False
    with duplicate:
        duplicate.setblocking(False)
        try:
            return not duplicate.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True


def _has_ended_by_kqueue(descriptor: int) -> bool:
    try:
        queue = _KQUEUE()
    except OSError:
        # No descriptor is free.
        return False
    try:
        wanted = _select.kevent(descriptor, _select.KQ_FILTER_READ, _select.KQ_EV_ADD)
        return any(event.flags & _select.KQ_EV_EOF for event in queue.control([wanted], 1, 0))
    finally:
        queue.close()


def has_reader_ended(descriptor: int) -> bool:
    """Return whether the reader of a pipe has closed it; False if the system cannot tell."""
    if _POLL is None:
        return False
    poller = _POLL()
    poller.register(descriptor, 0)
    # Linux reports POLLERR, macOS reports POLLHUP.
    return any(event & (_select.POLLERR | _select.POLLHUP) for _, event in poller.poll(0))


def has_input(descriptor: int, timeout_s: float) -> bool:
    """Wait until a file, pipe or terminal has input or has ended; return whether it has.

    Windows can only wait for sockets. There this returns False at once: a read has to wait.
    """
    if not _IS_POSIX:
        return False
    return bool(select.select([descriptor], [], [], timeout_s)[0])


def try_lock(descriptor: int) -> bool:
    """Lock a whole file for its open file description, also against others in this process.

    On Linux the lock excludes the POSIX lock that a JVM takes. Elsewhere it is a BSD lock, which
    excludes a JVM only if the system combines both kinds.

    Returns:
        False if another description holds the lock.

    Raises:
        OSError: the file cannot be locked; ENOTSUP on Windows.
    """
    if not _IS_POSIX:
        raise OSError(errno.ENOTSUP, "Python has no such locks on Windows")
    try:
        if _HAS_OFD_LOCKS:
            wanted = _FLOCK.pack(_fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            _fcntl.fcntl(descriptor, _fcntl.F_OFD_SETLK, wanted)
        else:
            _fcntl.flock(descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def is_locked(descriptor: int) -> bool:
    """Return whether another open file description holds the lock of a file."""
    if not _IS_POSIX:
        return False
    if _HAS_OFD_LOCKS:
        wanted = _FLOCK.pack(_fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = _fcntl.fcntl(descriptor, _fcntl.F_OFD_GETLK, wanted)
        return bool(_FLOCK.unpack(answer[: _FLOCK.size])[0] != _fcntl.F_UNLCK)
    try:
        _fcntl.flock(descriptor, _fcntl.LOCK_SH | _fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return True
        raise
    _fcntl.flock(descriptor, _fcntl.LOCK_UN)
    return False


def sync_file_system(descriptor: int) -> None:
    """Write back all cached data of an open directory's file system.

    Raises:
        OSError: a write failed; see `reports_failed_writes` for when this is reported.
    """
    call = _libc_call("syncfs")
    if call is None:
        os.sync()
    elif call(descriptor):
        import ctypes

        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def request_parent_death_signal(number: int) -> bool:
    """Ask the kernel to send a signal when the parent process ends.

    Without this support, a process has to check itself whether its parent still runs. The first
    call imports ctypes, which takes 3 ms.

    Args:
        number: the signal.

    Returns:
        Whether the kernel supports this.
    """
    call = _libc_call("prctl")
    if call is None:
        return False
    return bool(call(_PR_SET_PDEATHSIG, number, 0, 0, 0) == 0)


def count_preemptions() -> int:
    """Return how often the kernel has taken the processor from the calling thread for another one.

    macOS counts for all threads of the process. Windows does not tell: there the number is 0.
    """
    if _resource is None:
        return 0
    usage = _resource.getrusage(getattr(_resource, "RUSAGE_THREAD", _resource.RUSAGE_SELF))
    return int(usage.ru_nivcsw)


def open_files_limits() -> tuple[int | None, int | None]:
    """Return the soft and the hard limit of open files; None for no limit."""
    if _resource is None:
        return None, None
    infinite = _resource.RLIM_INFINITY
    soft, hard = _resource.getrlimit(_resource.RLIMIT_NOFILE)
    return None if soft == infinite else soft, None if hard == infinite else hard


def raise_open_files_limit() -> tuple[int | None, OSError | ValueError | None]:
    """Raise the limit of open files as far as the system allows.

    Returns:
        The new limit (None for no limit), and the error that kept it below the hard limit (None
        without an error).
    """
    if _resource is None:
        return None, None
    soft, hard = _resource.getrlimit(_resource.RLIMIT_NOFILE)
    infinite = _resource.RLIM_INFINITY
    reason: OSError | ValueError | None = None
    # macOS reports an infinite hard limit, but refuses to set it.
    for wanted in (hard, *_LIMITS):
        is_more = soft != infinite and (wanted == infinite or wanted > soft)
        if not is_more or (hard not in (infinite, wanted) and wanted > hard):
            continue
        try:
            _resource.setrlimit(_resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError) as error:
            reason = reason or error
        else:
            soft = wanted
            break
    return None if soft == infinite else soft, reason


def limit_memory(size: int) -> None:
    """Limit the address space of the process, so that an allocation above it fails.

    Args:
        size: the limit in bytes; a lower limit of the system stays. Systems without such a limit
            (macOS, Windows) ignore it.
    """
    if _resource is None:
        return
    soft, hard = _resource.getrlimit(_resource.RLIMIT_AS)
    if soft == _resource.RLIM_INFINITY or soft > size:
        with contextlib.suppress(ValueError, OSError):
            _resource.setrlimit(_resource.RLIMIT_AS, (size, hard))


def set_allocator_option(option: int, value: int) -> bool:
    """Set an option of glibc's allocator (mallopt); return whether the C library knows it."""
    call = _libc_call("mallopt")
    return call is not None and call(option, value) == 1


def _libc_call(name: str) -> Any:
    """Return a function of the C library; None if it has no such function."""
    import ctypes

    try:
        return getattr(ctypes.CDLL(None, use_errno=True), name)
    except (AttributeError, OSError):
        return None


_MOUNTS = Path("/proc/self/mountinfo")
_TYPES = frozenset({"ext4", "xfs"})
_FIRST_RELEASE = (5, 8)


def reports_failed_writes(path: str) -> bool:
    """Return whether a sync of the file system of `path` reports every failed write.

    Linux does so from 5.8 on (`syncfs`), but only for file systems that keep their own files. An
    overlay has its files in another file system, and one in user space may not pass the call on.
    """
    if not sys.platform.startswith("linux") or _release(os.uname().release) < _FIRST_RELEASE:
        return False
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace")
        return file_system_type(Path(path).stat().st_dev, mounts) in _TYPES
    except OSError:
        return False


def file_system_type(device: int, mounts: str) -> str | None:
    """Return the type of the mounted file system with that device number, None if unknown.

    Args:
        device: number of the device, as in the status of a file.
        mounts: content of `/proc/self/mountinfo`.
    """
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        mount, _, system = line.partition(" - ")
        fields = mount.split()
        if len(fields) > 2 and fields[2] == wanted and system:
            return system.split()[0]
    return None


def _release(name: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", name)[:2])


# Blocks of 32 MiB and more do not affect glibc's threshold.
_BLOCK_BYTES = 16 << 20
# Options of glibc's mallopt, and the variables by which users set them.
_TRIM_THRESHOLD = (-1, "MALLOC_TRIM_THRESHOLD_")
_MMAP_THRESHOLD = (-3, "MALLOC_MMAP_THRESHOLD_")
_ARENA_MAX = (-8, "MALLOC_ARENA_MAX")


def untouched_memory(size: int) -> memoryview:
    """Return memory that is filled with zeros and takes no page before a page is first used.

    A `bytearray` writes all its zeros, so an idle process would hold each buffer as a whole.
    """
    if not hasattr(mmap, "MAP_PRIVATE"):
        # On Windows, memory is private.
        return memoryview(mmap.mmap(-1, size))
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def keep_freed_memory(block_bytes: int = _BLOCK_BYTES) -> None:
    """Make the C allocator keep up to twice the block's size of freed memory.

    glibc returns the end of the heap to the kernel as soon as 128 KiB of it are free. A consumer
    frees megabytes at every poll, a producer at every acknowledged batch, and a broker after every
    large request. All need the memory again at once. Each page then causes a page fault again,
    which took an eighth of a consumer's time, and a quarter of a broker's that receives large
    batches by TLS.

    glibc raises the threshold to twice the size of a large block that is freed, because the program
    will probably use such a block again, so this frees a block. The block is not used, so it costs
    two system calls and no memory. That is all that a client may do in a process that it does not
    own. This has no effect if the user has set the thresholds (MALLOC_TRIM_THRESHOLD_), or with
    other allocators.
    """
    # The zeros come from the kernel; only one page is written.
    bytes(block_bytes)


def limit_freed_memory(kept_bytes: int, block_bytes: int) -> None:
    """Make the process keep up to `kept_bytes` of freed memory, in one heap for all threads.

    glibc has a heap for each thread, each keeps up to the threshold, and the largest block that was
    ever freed decides it, up to 64 MiB. A server owns its process, and sets the limits. Other
    allocators keep their limits, and so does each limit that the user has set by an environment
    variable. Call this before the process starts threads.

    Args:
        kept_bytes: Largest size of the free end of the heap.
        block_bytes: Larger blocks come from the kernel, and return to it when they are freed.
    """
    if "GLIBC_TUNABLES" in os.environ:
        return
    for (option, variable), value in (
        (_TRIM_THRESHOLD, kept_bytes),
        (_MMAP_THRESHOLD, block_bytes),
        (_ARENA_MAX, 1),
    ):
        if variable not in os.environ:
            set_allocator_option(option, value)
