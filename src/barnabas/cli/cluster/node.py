"""One node of a local cluster: a process that any terminal can start, signal and end.

The node's directory contains its complete state: `server.properties`, `process.json` (the process,
and the last request to it), `node.out` (the ready line), `node.log` and `data`. The commands
therefore need not be the parent of the process.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from barnabas.cli.cluster.identity import is_paused, process_identity

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.cli.cluster.layout import Layout, NodeLayout

__all__ = ["Node", "NodeError", "NodeState"]

_POLL_S = 0.05
_SIGNAL_TIMEOUT_S = 5.0
_LOG_LINES = 15


class NodeError(Exception):
    """The reason why a request to a node failed."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """The state of a node."""

    # "running", "starting", "paused", "stopped", "killed" or "died".
    name: str
    # Id of the running process; None if no process runs.
    pid: int | None = None
    # Start time of the process (ms since 1970).
    since_ms: int | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.pid is not None


@dataclass(frozen=True, slots=True)
class _ProcessRecord:
    """The content of process.json."""

    pid: int
    identity: str
    started_ms: int
    # Last request: "start", "stop" or "kill".
    asked: str


class Node:
    """A node, identified by its layout and its directory."""

    def __init__(self, layout: Layout, plan: NodeLayout, cluster_directory: Path) -> None:
        self._layout = layout
        self.plan = plan
        self.directory = cluster_directory / f"node-{plan.id}"
        self.log_file = self.directory / "node.log"
        self._properties = self.directory / "server.properties"
        self._process_file = self.directory / "process.json"
        self._output = self.directory / "node.out"
        # The child process if this process started it; it must be reaped.
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def id(self) -> int:
        """The node id."""
        return self.plan.id

    def state(self) -> NodeState:
        """Return the current state of the node."""
        if self._child is not None:
            self._child.poll()
        kept = self._read()
        while kept is not None and process_identity(kept.pid) != kept.identity:
            # Another command may have ended the process after this read its record.
            before, kept = kept, self._read()
            if kept == before:
                return NodeState({"start": "died", "stop": "stopped"}.get(kept.asked, "killed"))
        if kept is None:
            return NodeState("stopped")
        name = "running" if self._is_ready() else "starting"
        if is_paused(kept.pid):
            name = "paused"
        return NodeState(name, kept.pid, kept.started_ms)

    def launch(self) -> None:
        """Start the process without waiting; `await_ready` waits.

        Raises:
            NodeError: The node runs already, or its process ended at once.
        """
        if self.state().is_alive:
            raise NodeError(f"node {self.id} is already running")
        self.directory.mkdir(parents=True, exist_ok=True)
        text = self._layout.properties(self.plan, (self.directory / "data").absolute())
        self._properties.write_text(text)
        words = [sys.executable, "-m", "barnabas.cli.main", "start", self._properties.name]
        words += ["--set", f"cluster.id={self._layout.cluster_id}"]
        with self._output.open("wb") as output, self.log_file.open("ab") as log:
            self._child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                cwd=self.directory,
                # Ctrl-C must only reach this command, which stops the nodes in order.
                start_new_session=True,
            )
        pid = self._child.pid
        identity = process_identity(pid)
        if identity is None:
            raise NodeError(f"node {self.id} ended at once\n{self.log_end()}")
        self._write(_ProcessRecord(pid, identity, int(time.time() * 1000), "start"))

    def await_ready(self, deadline: float) -> None:
        """Wait until the node is ready; `deadline` is in seconds of the monotonic clock.

        Raises:
            NodeError: The process ended or is not ready in time. The message contains the end of
                the log.
        """
        while True:
            state = self.state()
            if not state.is_alive:
                raise NodeError(f"node {self.id} ended\n{self.log_end()}")
            if state.name == "running":
                return
            if time.monotonic() >= deadline:
                raise NodeError(f"node {self.id} is not ready in time\n{self.log_end()}")
            time.sleep(_POLL_S)

    def terminate(self) -> bool:
        """Request a clean stop. Return whether the process was running."""
        if not self._signal(signal.SIGTERM, "stop"):
            return False
        # A paused process handles the signal only after it continues.
        self._signal(signal.SIGCONT, None)
        return True

    def kill(self) -> bool:
        """Kill the process at once (kill -9). Return whether the process was running."""
        return self._signal(signal.SIGKILL, "kill")

    def pause(self) -> bool:
        """Pause the process: it keeps its connections but does not respond. Return the success."""
        return self._signal(signal.SIGSTOP, None) and self._await_paused(wanted=True)

    def resume(self) -> bool:
        """Resume the process. Return the success."""
        return self._signal(signal.SIGCONT, None) and self._await_paused(wanted=False)

    def _await_paused(self, *, wanted: bool) -> bool:
        """Wait until the process is paused or resumed. Return whether it happened in time."""
        deadline = time.monotonic() + _SIGNAL_TIMEOUT_S
        while (self.state().name == "paused") is not wanted:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def await_end(self, deadline: float) -> bool:
        """Wait until the process has ended. Return whether it ended before the deadline."""
        while self.state().is_alive:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def exit_status(self) -> int | None:
        """Return the exit status of the child process, negative for a signal.

        None if the process runs, or if it is not a child of this process.
        """
        return None if self._child is None else self._child.poll()

    def log_end(self) -> str:
        """Return the last lines of the node's log."""
        try:
            lines = self.log_file.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(lines[-_LOG_LINES:])

    def _is_ready(self) -> bool:
        try:
            return self._output.read_bytes().startswith(b"ready")
        except OSError:
            return False

    def _signal(self, number: signal.Signals, asked: str | None) -> bool:
        """Send a signal if the recorded process still exists, and record the request."""
        kept = self._read()
        if kept is None or process_identity(kept.pid) != kept.identity:
            return False
        if asked is not None:
            self._write(_ProcessRecord(kept.pid, kept.identity, kept.started_ms, asked))
        with contextlib.suppress(ProcessLookupError):
            os.kill(kept.pid, number)
        return True

    def _read(self) -> _ProcessRecord | None:
        try:
            return _ProcessRecord(**json.loads(self._process_file.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def _write(self, kept: _ProcessRecord) -> None:
        # Replace the file atomically, because other commands may read it at any time.
        temporary = self._process_file.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(asdict(kept)))
        temporary.replace(self._process_file)
