"""The processes of the example: each has a log file, and can be killed with all its children."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class ExampleError(Exception):
    """A step of the example failed; the message names the step and the log."""


def renew(output: Path) -> None:
    """Delete the output of an earlier run, and create the directory.

    Raises:
        ExampleError: the directory has files of somebody else.
    """
    marker = output / ".change-data-capture"
    if output.exists() and not marker.exists():
        raise ExampleError(f"{output} was not written by this example: choose another --output")
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    marker.touch()


class Process:
    """A command in a process group of its own, with its output in `LOGS/NAME.log`.

    Args:
        name: of the log file.
        command: all words.
        logs: the directory of the log file; output is appended to it.
        user: the user that runs it, None for the present one.
        environment: additional variables.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        logs: Path,
        user: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = logs / f"{name}.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
                **identity(user),
            )

    def check(self) -> None:
        """Raise ExampleError if it has ended by itself."""
        status = self._process.poll()
        if status is not None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            raise ExampleError(f"{self.name} ended with status {status}; {self.log} ends:\n{tail}")

    def kill(self) -> None:
        """kill -9 of the process and of all that it started."""
        self._signal(signal.SIGKILL)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Ask it to end, and kill it if it has not ended after ten seconds."""
        self._signal(number)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()

    def _signal(self, number: int) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, number)
            if number == signal.SIGKILL:
                self._process.wait()


def identity(user: str | None) -> dict[str, Any]:
    """Return the arguments of `subprocess` that run a command as a user."""
    return {} if user is None else {"user": user, "group": user, "extra_groups": []}


def wait_until(condition: Callable[[], T], what: str, seconds: float, *processes: Process) -> T:
    """Call a function until it returns a true value, and return that.

    Raises:
        ExampleError: the time is over, or one of the processes has ended.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        for process in processes:
            process.check()
        if time.monotonic() > deadline:
            raise ExampleError(f"{what}: not after {seconds:.0f} s")
        time.sleep(0.1)
