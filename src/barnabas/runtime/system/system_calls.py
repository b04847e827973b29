"""System calls that not all operating systems have, each with a substitute.

Linux has all of them. macOS lacks `fdatasync`, `prctl`, `syncfs` and, before macOS 11, `pwritev`.
Python has no locks of open file descriptions on macOS. The available calls are determined when this
module is loaded.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "HAS_SENDFILE",
    "is_locked",
    "lock",
    "raise_open_files_limit",
    "request_parent_death_signal",
    "send_file",
    "set_allocator_option",
    "sync_data",
    "sync_file_system",
    "write_vector",
]

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
        OSError: a write failed; see `file_systems.reports_failed_writes` for when this is reported.
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
