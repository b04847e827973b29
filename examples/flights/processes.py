"""The demo's processes beside the broker: the stream of events, and the pipeline.

Each is an ordinary command that could run in a terminal of its own, and can be killed.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path


class DemoError(Exception):
    """A step of the demo failed; the message names the step and the log."""


class Process:
    """A command with its output in a file (errors) and in a queue of lines (standard output)."""

    def __init__(self, name: str, command: list[str], logs: Path) -> None:
        self.name = name
        self.log = logs / f"{name}.log"
        self.lines: queue.Queue[str] = queue.Queue()
        with self.log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                # A separate process group: a kill includes the children (the JVM, its workers).
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.put(line.rstrip("\n"))

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def exit_status(self) -> int | None:
        """Its exit status, None while it runs."""
        return self._process.poll()

    def check(self) -> None:
        """Raises DemoError if it ended with an error."""
        status = self.exit_status()
        if status:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            raise DemoError(
                f"{self.name} ended with status {status}; the end of {self.log}:\n{tail}"
            )

    def kill(self) -> None:
        """kill -9 of the process and all that it started."""
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        """Terminate the process, and kill it after five seconds."""
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self.kill()

    def _signal(self, number: int) -> None:
        if self.exit_status() is None:
            os.killpg(self.pid, number)
            if number == signal.SIGKILL:
                self._process.wait()


def start_producer(logs: Path, bootstrap: str, seconds: float) -> Process:
    """The stream of events into the topics."""
    module = [sys.executable, "-m", "examples.flights.produce"]
    return Process("producer", [*module, "--bootstrap", bootstrap, "--seconds", str(seconds)], logs)


def start_pipeline(logs: Path, bootstrap: str, output: Path, jars: str) -> Process:
    """The Spark pipeline; its standard output is a JSON line a batch.

    Args:
        jars: of Spark's own connector, which is to be used then.
    """
    command = [sys.executable, "-m", "examples.flights.pipeline", "--bootstrap", bootstrap]
    command += ["--output", str(output)]
    if jars:
        command += ["--format", "kafka", "--jars", jars]
    return Process("pipeline", command, logs)


def batches(pipeline: Process) -> list[dict[str, object]]:
    """The progress lines that came since the last call."""
    found = []
    while not pipeline.lines.empty():
        line = pipeline.lines.get()
        if line.startswith("{"):
            found.append(json.loads(line))
    return found
