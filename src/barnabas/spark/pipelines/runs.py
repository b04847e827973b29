"""The process of a run as the command sees it: its request, its events, and the project's lock."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import IO, TYPE_CHECKING, Any, Self

from barnabas.runtime.process_table import command_line
from barnabas.runtime.system_calls import is_locked, try_lock
from barnabas.spark.pipelines.project import ProjectError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from barnabas.spark.pipelines.project import Project

# How long Spark may take to stop its queries after SIGTERM.
_STOP_TIMEOUT_S = 20
_LOG = "run.log"
_WAIT_S = 30.0
_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The options of a run."""

    # Path of the specification.
    spec: str
    # Spark's master.
    master: str = "local[*]"
    # Settings with which Spark starts; they override ours.
    settings: dict[str, str] = field(default_factory=dict)
    # Only these datasets; all if empty.
    refresh: tuple[str, ...] = ()
    # These tables anew, and no others.
    full_refresh: tuple[str, ...] = ()
    # Check the definitions, and do not run them.
    check_only: bool = False
    # Flows that run although they changed.
    accepted: tuple[str, ...] = ()
    # Run again after this pause, until stopped. None for one run.
    every_s: float | None = None
    # Host and port at which the metrics of the flows are served. None to serve none.
    metrics: tuple[str, int] | None = None

    def to_json(self) -> str:
        """Return the request on one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> RunRequest:
        """Return the request of `to_json`."""
        value = json.loads(line)
        for name in ("refresh", "full_refresh", "accepted"):
            value[name] = tuple(value[name])
        if value["metrics"] is not None:
            value["metrics"] = tuple(value["metrics"])
        return cls(**value)


def log_path(project: Project) -> Path:
    """Return the file with what Spark and the definitions print."""
    return project.notes / _LOG


class StartedRun:
    """A process that runs a pipeline; a context, which ends the process.

    Args:
        project: the project.
        request: what to run.
    """

    def __init__(self, project: Project, request: RunRequest) -> None:
        project.notes.mkdir(parents=True, exist_ok=True)
        with log_path(project).open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "barnabas.spark.pipelines.run_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=project.directory,
                # A process group of its own: Ctrl-C goes to the command only.
                start_new_session=True,
            )
        # It stays open: its end tells the process that the command has ended.
        self._input: IO[str] = _piped(self._process.stdin)
        self._output: IO[str] = _piped(self._process.stdout)
        with contextlib.suppress(BrokenPipeError):
            self._input.write(request.to_json() + "\n")
            self._input.flush()

    @property
    def process_id(self) -> int:
        """The id of the process and of its group."""
        return self._process.pid

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events until the process ends."""
        for line in self._output:
            with contextlib.suppress(ValueError):
                # A line that a kill cut is no event.
                yield json.loads(line)

    def wait(self) -> int:
        """Return the exit status of the process."""
        return self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._process.poll() is None:
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_TIMEOUT_S)
        # Java may outlive the process that started it.
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._input.close()
        self._output.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _piped(file: IO[str] | None) -> IO[str]:
    assert file is not None, "the process was started with pipes"
    return file


class RunLock:
    """The lock of a project, held until it is released or the process ends.

    Two processes may still write when a run was killed: that of the run, which holds the lock, and
    its Java, which ends a moment later because its standard input ends. Its id is in the lock's
    file.

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
            if not try_lock(self._file.fileno()):
                return "another process holds its lock"
        except OSError as error:
            raise ProjectError(f"{self._file.name} cannot be locked: {error}") from None
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
        if is_locked(file.fileno()):
            return True
        text = file.read()
    return text.isdigit() and is_java(int(text))


def is_java(process_id: int) -> bool:
    """Return whether the process exists and is Spark's Java.

    Ids of ended processes are given to others.
    """
    try:
        os.kill(process_id, 0)
    except OSError:
        return False
    return "org.apache.spark" in command_line(process_id)


def _do_nothing() -> None:
    """Nothing is left to say."""
