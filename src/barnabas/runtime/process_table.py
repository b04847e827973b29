"""The system's list of processes: on Linux in /proc, elsewhere by the command `ps`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_PROC = Path("/proc")
_BOOT_ID = _PROC / "sys" / "kernel" / "random" / "boot_id"
_ENDED = "ZXx"
# Fields of /proc/PID/stat after the name: state, and start time in ticks since boot.
_STATE, _START = 0, 19
# Fields with the addresses at which the arguments of a process begin and end.
_ARGUMENTS_START, _ARGUMENTS_END = 45, 46


def process_identity(pid: int) -> str | None:
    """Return an identity that no other process has; None if the process has ended.

    On Linux it consists of the boot id and the start time of the process. Elsewhere it is the start
    time that `ps` prints.
    """
    if _has_proc():
        fields = _stat(pid)
        if fields is None or fields[_STATE] in _ENDED:
            return None
        return f"{_BOOT_ID.read_text().strip()} {fields[_START]}"
    state, _, started = _ps(pid, "stat=,lstart=").partition(" ")
    if not state or state[0] in _ENDED:
        return None
    return started.strip()


def is_paused(pid: int) -> bool:
    """Return whether a process is stopped by a signal (SIGSTOP)."""
    if _has_proc():
        fields = _stat(pid)
        return fields is not None and fields[_STATE] in "Tt"
    return _ps(pid, "stat=").startswith("T")


def command_line(pid: int) -> str:
    """Return the command of a process with its arguments; empty if the process has ended."""
    if not _has_proc():
        return _ps(pid, "command=")
    try:
        content = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ""
    return content.replace(b"\0", b" ").decode(errors="replace").strip()


def set_process_title(title: str) -> None:
    """Show `title` as the command line of this process.

    The title is cut to the length of the command line with which the interpreter was started. Only
    Linux can do this; other systems keep the command line.
    """
    fields = _stat(os.getpid())
    if fields is None:
        return
    start, end = int(fields[_ARGUMENTS_START]), int(fields[_ARGUMENTS_END])
    if start < end:
        import ctypes

        # The last byte stays 0. Otherwise the kernel would show the variables, too.
        cut = title.encode()[: end - start - 1]
        ctypes.memmove(start, cut.ljust(end - start, b"\0"), end - start)


def _has_proc() -> bool:
    return _PROC.joinpath("self", "stat").exists()


def _stat(pid: int) -> list[str] | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    # The name may contain any characters, including parentheses and spaces.
    return text.rpartition(")")[2].split()


def _ps(pid: int, columns: str) -> str:
    # Without -ww, some systems cut long lines.
    words = ["ps", "-ww", "-o", columns, "-p", str(pid)]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
