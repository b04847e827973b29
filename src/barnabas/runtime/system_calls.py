"""The door to system calls that only some systems have, each with what takes its place elsewhere.

Linux has all of them. macOS lacks `fdatasync`, `prctl`, `syncfs` and, before macOS 11, `pwritev`;
its locks of open file descriptions are not in Python. What a system has is looked up when this
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
    "sync_data",
    "sync_file_system",
    "write_vector",
]

_os: Any = os
_fcntl: Any = fcntl

_FDATASYNC = getattr(_os, "fdatasync", None)
# macOS: an fsync that reaches the medium and not only the drive's cache.
_FULL_SYNC: int | None = getattr(_fcntl, "F_FULLFSYNC", None)
_PWRITEV = getattr(_os, "pwritev", None)
_SENDFILE = getattr(_os, "sendfile", None)
_SET_LOCK: int | None = getattr(_fcntl, "F_OFD_SETLK", None)
_GET_LOCK: int | None = getattr(_fcntl, "F_OFD_GETLK", None)
# Linux's struct flock: type, whence, start, length, pid; whole file, pid must be 0.
_FLOCK = struct.Struct("hhqqi")
_PR_SET_PDEATHSIG = 1
# What macOS takes where the hard limit is infinite (OPEN_MAX), after what Linux may take.
_LIMITS = (1 << 20, 1 << 16, 10_240)

# Whether slices of files can be sent without a copy.
HAS_SENDFILE = _SENDFILE is not None


def sync_data(descriptor: int) -> None:
    """Flush a file's data and length to the device.

    Raises:
        OSError: the device reports an error; what was written since the last sync may be lost.
    """
    if _FDATASYNC is not None:
        _FDATASYNC(descriptor)
    elif _FULL_SYNC is not None:
        try:
            fcntl.fcntl(descriptor, _FULL_SYNC)
        except OSError as error:
            # Some file systems, those of a network for instance, do not have it.
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                raise
            os.fsync(descriptor)
    else:
        os.fsync(descriptor)


def write_vector(
    descriptor: int, buffers: Sequence[bytes | bytearray | memoryview], position: int
) -> int:
    """Write several buffers at a position; return how many bytes were written, perhaps not all.

    Raises:
        OSError: nothing could be written.
    """
    if _PWRITEV is not None:
        written: int = _PWRITEV(descriptor, buffers, position)
        return written
    return os.pwrite(descriptor, b"".join(buffers), position)


def send_file(out: int, file: int, position: int, length: int) -> int:
    """Send bytes of a file to a socket; return how many were sent, 0 at the end of the file.

    Only where `HAS_SENDFILE`.

    Raises:
        BlockingIOError: the socket's buffer is full.
        OSError: the socket or the file fails.
    """
    assert _SENDFILE is not None, "look at HAS_SENDFILE first"
    sent: int = _SENDFILE(out, file, position, length)
    return sent


def lock(descriptor: int) -> None:
    """Lock a whole file for its open file description, which excludes a second one here too.

    On Linux the lock excludes the POSIX lock that a JVM takes. Elsewhere it is a BSD lock, which
    excludes a JVM only where the system joins both kinds.

    Raises:
        OSError: EAGAIN or EACCES if another description holds it.
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
    """Ask the system to write back what it holds of the file system of an open directory."""
    call = _libc_call("syncfs")
    if call is None:
        os.sync()
    else:
        call(descriptor)


def request_parent_death_signal(number: int) -> bool:
    """Ask the kernel for a signal when the parent process ends; return whether the kernel can.

    Elsewhere a process has to look for itself whether its parent still runs. The first call imports
    ctypes, which takes 3 ms.

    Args:
        number: the signal.
    """
    call = _libc_call("prctl")
    if call is None:
        return False
    return bool(call(_PR_SET_PDEATHSIG, number, 0, 0, 0) == 0)


def raise_open_files_limit() -> tuple[int | None, OSError | ValueError | None]:
    """Take as many descriptors as the system gives.

    Returns:
        How many files may be open now, None for no limit; and why it is not the hard limit, None if
        it is.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    infinite = resource.RLIM_INFINITY
    reason: OSError | ValueError | None = None
    # macOS shows an infinite hard limit and refuses it.
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


def _libc_call(name: str) -> Any:
    """Return a function of the C library; None if it has no such function."""
    import ctypes

    try:
        return getattr(ctypes.CDLL(None, use_errno=True), name)
    except (AttributeError, OSError):
        return None
