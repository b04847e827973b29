"""System calls that not all operating systems have, each with a substitute.

Linux has all of them. macOS lacks `fdatasync`, `prctl`, `syncfs` and, before macOS 11, `pwritev`.
Python has no locks of open file descriptions on macOS. The available calls are determined when this
module is loaded.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import resource
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


_os: Any = os
_fcntl: Any = fcntl

_FDATASYNC = getattr(_os, "fdatasync", None)
# macOS: an fsync that reaches the medium, and not only the drive's cache.
_FULL_SYNC: int | None = getattr(_fcntl, "F_FULLFSYNC", None)
_PWRITEV = getattr(_os, "pwritev", None)
_SENDFILE = getattr(_os, "sendfile", None)
_SET_LOCK: int | None = getattr(_fcntl, "F_OFD_SETLK", None)
_GET_LOCK: int | None = getattr(_fcntl, "F_OFD_GETLK", None)
# Linux's struct flock: type, whence, start, length, pid. Zeros mean the whole file; pid must be 0.
_FLOCK = struct.Struct("hhqqi")
_PR_SET_PDEATHSIG = 1
# Limits to try: two for Linux, then the maximum of macOS for an infinite hard limit (OPEN_MAX).
_LIMITS = (1 << 20, 1 << 16, 10_240)

# Whether slices of files can be sent without a copy.
HAS_SENDFILE = _SENDFILE is not None


def sync_data(descriptor: int) -> None:
    """Flush a file's data and length to the device.

    Raises:
        OSError: the device reports an error; data written since the last sync may be lost.
    """
    if _FDATASYNC is not None:
        _FDATASYNC(descriptor)
    elif _FULL_SYNC is not None:
        try:
            fcntl.fcntl(descriptor, _FULL_SYNC)
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


def lock(descriptor: int) -> None:
    """Lock a whole file for its open file description, also against others in this process.

    On Linux the lock excludes the POSIX lock that a JVM takes. Elsewhere it is a BSD lock, which
    excludes a JVM only if the system combines both kinds.

    Raises:
        OSError: EAGAIN or EACCES if another description holds the lock.
    """
    if _SET_LOCK is None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        fcntl.fcntl(descriptor, _SET_LOCK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))


def is_locked(descriptor: int) -> bool:
    """Return whether another open file description holds the lock of a file."""
    if _GET_LOCK is not None:
        wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(descriptor, _GET_LOCK, wanted)
        return bool(_FLOCK.unpack(answer[: _FLOCK.size])[0] != fcntl.F_UNLCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return True
        raise
    fcntl.flock(descriptor, fcntl.LOCK_UN)
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


def raise_open_files_limit() -> tuple[int | None, OSError | ValueError | None]:
    """Raise the limit of open files as far as the system allows.

    Returns:
        The new limit (None for no limit), and the error that kept it below the hard limit (None
        without an error).
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    infinite = resource.RLIM_INFINITY
    reason: OSError | ValueError | None = None
    # macOS reports an infinite hard limit, but refuses to set it.
    for wanted in (hard, *_LIMITS):
        is_more = soft != infinite and (wanted == infinite or wanted > soft)
        if not is_more or (hard not in (infinite, wanted) and wanted > hard):
            continue
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError) as error:
            reason = reason or error
        else:
            soft = wanted
            break
    return None if soft == infinite else soft, reason


def limit_memory(size: int) -> None:
    """Limit the address space of the process, so that an allocation above it fails.

    Args:
        size: the limit in bytes; a lower limit of the system stays.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY or soft > size:
        resource.setrlimit(resource.RLIMIT_AS, (size, hard))


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
