"""Processor time of the processes of a Spark session, by what they do.

Spark's Python processes come and go: a query has one of its own, and a daemon forks workers and
never waits for them. So a thread looks at the processes all the time, and the last value of each
counts after its end.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple, Self

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# A process that lives for less than this time may be missed.
_PAUSE_S = 0.02
# Modules that Spark's Python processes run: a part of the command line, and what it is for.
_KINDS = {
    "pyspark-shell": "Java",
    "python_streaming_source_runner": "stream's process",
    "pyspark.worker": "tasks",
    "pyspark.sql.worker": "planning",
}


class _Stat(NamedTuple):
    parent: int
    # Start since the boot, in ticks; process ids are used again.
    started: str
    cpu_s: float


class SparkProcesses:
    """Watches the processes below this one, within a `with` block."""

    def __init__(self) -> None:
        # By process id and start: what the process does, and its processor time so far.
        self._seen: dict[tuple[int, str], tuple[str, float]] = {}
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def cpu_seconds(self) -> Counter[str]:
        """Return the processor time so far, by kind of process."""
        self._look()
        found: Counter[str] = Counter()
        with self._lock:
            for kind, used in self._seen.values():
                found[kind] += used
        return found

    def _watch(self) -> None:
        while not self._is_over.is_set():
            self._look()
            time.sleep(_PAUSE_S)

    def _look(self) -> None:
        stats, children = {}, {}
        for entry in os.listdir("/proc"):
            if entry.isdigit() and (stat := _stat(int(entry))) is not None:
                stats[int(entry)] = stat
                children.setdefault(stat.parent, []).append(int(entry))
        pending = list(children.get(os.getpid(), ()))
        with self._lock:
            while pending:
                process = pending.pop()
                pending += children.get(process, ())
                key = process, stats[process].started
                kind = self._seen.get(key, ("", 0.0))[0] or _kind(process)
                # Spark's scripts become Java, and brokers are no part of Spark.
                if kind:
                    self._seen[key] = kind, stats[process].cpu_s


def _stat(process: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return None
    # The name, in parentheses, may contain spaces.
    fields = text[text.rindex(")") + 2 :].split()
    return _Stat(int(fields[1]), fields[19], (int(fields[11]) + int(fields[12])) / _TICKS_PER_S)


def _kind(process: int) -> str:
    """Return what a process of Spark does; an empty string for other processes."""
    try:
        command = Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""
    return next((kind for part, kind in _KINDS.items() if part in command), "")
