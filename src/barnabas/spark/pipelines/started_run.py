"""A run in a process of its own, as the command sees it: its events, and its end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import IO, TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from barnabas.spark.pipelines.project import Project
    from barnabas.spark.pipelines.run_request import RunRequest

# How long Spark may take to stop its queries after SIGTERM.
_STOP_TIMEOUT_S = 20
_LOG = "run.log"


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
