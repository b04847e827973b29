"""Which process a number stands for: numbers are given to other processes after a while."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["is_paused", "process_identity"]

_PROC = Path("/proc")
_BOOT_ID = _PROC / "sys" / "kernel" / "random" / "boot_id"
_ENDED = "ZXx"
# Fields of /proc/PID/stat behind the name: state, and start in ticks since the machine's start.
_STATE, _START = 0, 19


def process_identity(pid: int) -> str | None:
    """What no other process ever has, None if the process has ended.

    On Linux the machine's start and the process's own; elsewhere what `ps` says of its start.
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
    """Whether a process stands still (SIGSTOP)."""
    if _PROC.joinpath("self", "stat").exists():
        fields = _stat(pid)
        return fields is not None and fields[_STATE] in "Tt"
    return _ps(pid).startswith("T")


def _stat(pid: int) -> list[str] | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name may hold anything, parentheses and spaces too.
    return text.rpartition(")")[2].split()


def _ps(pid: int) -> str:
    words = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
