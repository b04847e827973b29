"""Which file systems report a failed write of any file when all their files are synced at once.

Linux does so from 5.8 on (`syncfs`), but only for file systems that keep their own files. An
overlay has its files in another file system, and one in user space may not pass the call on.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_TYPES = frozenset({"ext4", "xfs"})
_FIRST_RELEASE = (5, 8)


def reports_failed_writes(path: str) -> bool:
    """Return whether a sync of the file system of `path` reports every failed write."""
    if not sys.platform.startswith("linux") or _release(os.uname().release) < _FIRST_RELEASE:
        return False
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace")
        return type_of(Path(path).stat().st_dev, mounts) in _TYPES
    except OSError:
        return False


def type_of(device: int, mounts: str) -> str | None:
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
