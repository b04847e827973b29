"""Lets one run at a time use a project's storage.

Two processes may still write when a run was killed: that of the run, which holds the lock, and its
Java, which ends a moment later because its standard input ends. Its id is in the lock's file.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from barnabas.spark.pipelines.errors import ProjectError

if TYPE_CHECKING:
    from collections.abc import Callable

_WAIT_S = 30.0
_PAUSE_S = 0.1


class RunLock:
    """The lock of a project, held until it is released or the process ends.

    Args:
        directory: where runs take notes.
        on_wait: called once if another run has to end first.
    """

    def __init__(self, directory: Path, on_wait: Callable[[], None]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = (directory / "run.lock").open("a+")
        self._on_wait = on_wait

    def acquire(self) -> Self:
        """Wait for the end of an earlier run, at most half a minute.

        Raises:
            ProjectError: the earlier run goes on.
        """
        deadline = time.monotonic() + _WAIT_S
        while (blocker := self._blocker()) is not None:
            self._on_wait()
            self._on_wait = _do_nothing
            if time.monotonic() >= deadline:
                raise ProjectError(f"the pipeline is running already ({blocker}): stop that run")
            time.sleep(_PAUSE_S)
        return self

    def release(self) -> None:
        """Let other processes run the pipeline."""
        self._file.close()

    def note_java(self, process_id: int) -> None:
        """Note the Java process that writes for this run."""
        self._file.seek(0)
        self._file.truncate()
        self._file.write(str(process_id))
        self._file.flush()

    def _blocker(self) -> str | None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return "another process holds its lock"
        self._file.seek(0)
        text = self._file.read()
        if text.isdigit() and is_java(int(text)):
            return f"Java process {text} of an earlier run has not ended"
        return None


def is_running(directory: Path) -> bool:
    """Return whether a process runs the pipeline."""
    path = directory / "run.lock"
    if not path.exists():
        return False
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        text = file.read()
    return text.isdigit() and is_java(int(text))


def is_java(process_id: int) -> bool:
    """Return whether the process exists and is Spark's Java.

    Ids of ended processes are given to others.
    """
    try:
        os.kill(process_id, 0)
        return b"org.apache.spark" in Path(f"/proc/{process_id}/cmdline").read_bytes()
    except OSError:
        return False


def _do_nothing() -> None:
    """Nothing is left to say."""
