"""One node of a cluster on this machine: a process that any terminal may start, signal and end.

Its directory has all there is to know: `server.properties`, `process.json` (which process, and what
was last asked of it), `node.out` (the ready line), `node.log`, `data`. Nobody need be its parent.
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
    """Why a node did not do what was asked."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """What has become of a node."""

    # "running", "starting", "paused", "stopped", "killed" or "died".
    name: str
    # Of the process that runs; None if none does.
    pid: int | None = None
    # When it was started, ms since 1970.
    since_ms: int | None = None

    @property
    def is_alive(self) -> bool:
        """Whether there is a process."""
        return self.pid is not None


@dataclass(frozen=True, slots=True)
class _Kept:
    """What process.json holds."""

    pid: int
    identity: str
    started_ms: int
    # "start", "stop" or "kill".
    asked: str


class Node:
    """A node by its place in the layout and its directory."""

    def __init__(self, layout: Layout, plan: NodeLayout, cluster_directory: Path) -> None:
        self._layout = layout
        self.plan = plan
        self.directory = cluster_directory / f"node-{plan.id}"
        self.log_file = self.directory / "node.log"
        self._properties = self.directory / "server.properties"
        self._process_file = self.directory / "process.json"
        self._output = self.directory / "node.out"
        # Our own child, if this process has started it: it must be reaped.
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def id(self) -> int:
        """The node id."""
        return self.plan.id

    def state(self) -> NodeState:
        """What has become of it."""
        if self._child is not None:
            self._child.poll()
        kept = self._read()
        if kept is None:
            return NodeState("stopped")
        if process_identity(kept.pid) != kept.identity:
            return NodeState({"start": "died", "stop": "stopped"}.get(kept.asked, "killed"))
        name = "running" if self._is_ready() else "starting"
        if is_paused(kept.pid):
            name = "paused"
        return NodeState(name, kept.pid, kept.started_ms)

    def launch(self) -> None:
        """Start its process; does not wait (`await_ready` does).

        Raises:
            NodeError: it runs already.
        """
        if self.state().is_alive:
            raise NodeError(f"node {self.id} runs already")
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
                # Ctrl-C in our terminal is for us: we stop the nodes in order.
                start_new_session=True,
            )
        pid = self._child.pid
        identity = process_identity(pid)
        if identity is None:
            raise NodeError(f"node {self.id} ended at once\n{self.log_end()}")
        self._write(_Kept(pid, identity, int(time.time() * 1000), "start"))

    def await_ready(self, deadline: float) -> None:
        """Wait until it serves; `deadline` is monotonic.

        Raises:
            NodeError: it ended, or is not ready in time; with the end of its log.
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
        """Ask it to stop; whether there was anything to stop."""
        if not self._signal(signal.SIGTERM, "stop"):
            return False
        # A process that stands still takes it only when it goes on.
        self._signal(signal.SIGCONT, None)
        return True

    def kill(self) -> bool:
        """End it at once, as kill -9 does; whether there was anything to end."""
        return self._signal(signal.SIGKILL, "kill")

    def pause(self) -> bool:
        """Have it stand still: its connections stay, it answers nothing."""
        return self._signal(signal.SIGSTOP, None) and self._await_paused(wanted=True)

    def resume(self) -> bool:
        """Let it go on."""
        return self._signal(signal.SIGCONT, None) and self._await_paused(wanted=False)

    def _await_paused(self, *, wanted: bool) -> bool:
        """Wait until the system has done what the signal says; whether it has."""
        deadline = time.monotonic() + _SIGNAL_TIMEOUT_S
        while (self.state().name == "paused") is not wanted:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def await_end(self, deadline: float) -> bool:
        """Wait until its process has ended; whether it has."""
        while self.state().is_alive:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_S)
        return True

    def exit_status(self) -> int | None:
        """How our own child ended, negative by a signal; None for one of another's."""
        return None if self._child is None else self._child.poll()

    def log_end(self) -> str:
        """The last lines of its log."""
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
        """Signal the process if it is ours still, and note what was asked of it."""
        kept = self._read()
        if kept is None or process_identity(kept.pid) != kept.identity:
            return False
        if asked is not None:
            self._write(_Kept(kept.pid, kept.identity, kept.started_ms, asked))
        with contextlib.suppress(ProcessLookupError):
            os.kill(kept.pid, number)
        return True

    def _read(self) -> _Kept | None:
        try:
            return _Kept(**json.loads(self._process_file.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def _write(self, kept: _Kept) -> None:
        # Others read it at any time.
        temporary = self._process_file.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(asdict(kept)))
        temporary.replace(self._process_file)
