"""The identity of a process, because the system reuses process ids."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["is_paused", "process_identity"]

_PROC = Path("/proc")
_BOOT_ID = _PROC / "sys" / "kernel" / "random" / "boot_id"
_ENDED = "ZXx"
# Fields of /proc/PID/stat after the name: state, and start time in ticks since boot.
_STATE, _START = 0, 19


def process_identity(pid: int) -> str | None:
    """Return an identity that no other process has; None if the process has ended.

    On Linux it consists of the boot id and the start time of the process. Elsewhere it is the start
    time that `ps` prints.
    """
    if _PROC.joinpath("self", "stat").exists():
        fields = _stat(pid)
        if fields is None or fields[_STATE] in _ENDED:
            return None
        return f"{_BOOT_ID.read_text().strip()} {fields[_START]}"
    state, _, started = _ps(pid).partition(" ")
    if not state or state[0] in _ENDED:
        return None
    return started.strip()


def is_paused(pid: int) -> bool:
    """Return whether a process is stopped by a signal (SIGSTOP)."""
    if _PROC.joinpath("self", "stat").exists():
        fields = _stat(pid)
        return fields is not None and fields[_STATE] in "Tt"
    return _ps(pid).startswith("T")


def _stat(pid: int) -> list[str] | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name may contain any characters, including parentheses and spaces.
    return text.rpartition(")")[2].split()


def _ps(pid: int) -> str:
    words = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
