"""The number of processor cores that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc/self/cgroup")
_CGROUPS = Path("/sys/fs/cgroup")


def usable_cores(groups_file: Path = _PROC, root: Path = _CGROUPS) -> int:
    """Return the number of cores by affinity and by the limits of control groups, at least 1.

    Args:
        groups_file: the control groups of this process, as Linux lists them.
        root: the directory where control groups are mounted.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    limit = _group_limit(groups_file, root)
    # A part of a core is not enough for one more process.
    return max(1, cores if limit is None else min(cores, int(limit)))


def _group_limit(groups_file: Path, root: Path) -> float | None:
    """Return the smallest limit of the control groups of this process; None without a limit."""
    limits = []
    for line in _read(groups_file).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0":
            # Version 2: one tree. A group is limited by the groups above it, too.
            limits += [_limit(_read(each / "cpu.max").split()) for each in _upwards(root, path)]
        elif "cpu" in controllers.split(","):
            mounted = root / "cpu"
            for each in _upwards(mounted, path):
                quota, period = each / "cpu.cfs_quota_us", each / "cpu.cfs_period_us"
                limits.append(_limit([*_read(quota).split(), *_read(period).split()]))
    known = [each for each in limits if each is not None]
    return min(known, default=None)


def _upwards(root: Path, path: str) -> list[Path]:
    """Return the directories of a group and of the groups above it, up to the root."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    return [root.joinpath(*parts[:length]) for length in range(len(parts) + 1)]


def _limit(words: list[str]) -> float | None:
    """Return the cores of a quota and a period; None without a limit or without a file."""
    if len(words) != 2 or not all(word.isdigit() for word in words) or int(words[1]) == 0:
        return None
    return int(words[0]) / int(words[1])


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
