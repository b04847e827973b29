"""Start the nodes of a cluster, supervise them, and stop them in order."""

from __future__ import annotations

import signal
import sys
import time
from typing import TYPE_CHECKING

from barnabas.cli.cluster.node import Node, NodeError
from barnabas.cli.common.output import EXIT_FAILED
from barnabas.cli.common.printable import echo
from barnabas.cli.common.tables import dim, echo_line, warn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import FrameType

    from barnabas.cli.cluster.layout import Layout

__all__ = ["Supervisor", "nodes_of", "stop_nodes"]

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
_POLL_S = 0.2
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _StopRequestedError(BaseException):
    """A signal that ends the cluster. It must not be caught by `except Exception`."""


def nodes_of(layout: Layout, directory: Path) -> list[Node]:
    """Return all nodes of a cluster, brokers first."""
    return [Node(layout, plan, directory) for plan in layout.nodes]


def stop_nodes(nodes: Sequence[Node], timeout_s: float = STOP_TIMEOUT_S) -> list[int]:
    """Stop the running nodes: first the brokers, which need a controller to stop cleanly.

    Nodes that only control stop afterwards. Brokers that are also controllers stop together. One
    after the other, the last broker would have no quorum for its controlled shutdown.

    Returns:
        Ids of the nodes that did not stop in time and were killed.
    """
    killed = []
    for wave in (
        [node for node in nodes if node.plan.is_broker],
        [node for node in nodes if not node.plan.is_broker],
    ):
        asked = [node for node in wave if node.terminate()]
        deadline = time.monotonic() + timeout_s
        for node in asked:
            if not node.await_end(deadline):
                node.kill()
                node.await_end(time.monotonic() + timeout_s)
                killed.append(node.id)
    return killed


class Supervisor:
    """One run of `barnabas cluster start`.

    Args:
        layout: The nodes to run.
        directory: The directory of the cluster.
    """

    def __init__(self, layout: Layout, directory: Path) -> None:
        self._layout = layout
        self._directory = directory
        self._nodes = nodes_of(layout, directory)
        self._width = max(len(str(node.id)) for node in self._nodes)
        # Number of bytes of each node's log that were shown.
        self._shown = {node.id: _size(node.log_file) for node in self._nodes}

    def run(self, *, detach: bool) -> int:
        """Start the nodes and supervise them until a signal; with `detach`, only start them.

        Returns:
            The exit status.
        """
        before = {number: signal.signal(number, _on_stop) for number in _STOP_SIGNALS}
        try:
            if not self._start():
                return EXIT_FAILED
            return 0 if detach else self._watch()
        except _StopRequestedError:
            for number in _STOP_SIGNALS:
                # Ignore further signals while the nodes stop.
                signal.signal(number, signal.SIG_IGN)
            return self._stop()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _start(self) -> bool:
        """Start all nodes and wait until they are ready. Return whether they are."""
        deadline = time.monotonic() + START_TIMEOUT_S
        launched = []
        try:
            # Start controllers first, because brokers register with them.
            for node in sorted(self._nodes, key=lambda each: each.plan.is_broker):
                if not node.state().is_alive:
                    node.launch()
                    launched.append(node)
            for node in self._nodes:
                if node.state().name != "paused":
                    node.await_ready(deadline)
        except NodeError as error:
            echo(f"error: {error}", err=True)
            echo(f"the logs are in {self._directory}/node-*/node.log", err=True)
            stop_nodes(launched)
            return False
        echo(f"ready {self._layout.bootstrap}")
        sys.stdout.flush()
        return True

    def _watch(self) -> int:
        """Show the logs and state changes of nodes until a signal arrives or no node is left.

        Nodes that `barnabas cluster kill` has ended stay down until `barnabas cluster restart`.

        Returns:
            The exit status: a failure if all nodes ended and not all by request.
        """
        states = {node.id: node.state() for node in self._nodes}
        while not all(state.name in ("stopped", "died") for state in states.values()):
            time.sleep(_POLL_S)
            for node in self._nodes:
                self._show_log(node)
                before, state = states[node.id], node.state()
                states[node.id] = state
                if state.name != before.name and {state.name, before.name} != {
                    "starting",
                    "running",
                }:
                    self._print_event(node, warn(_end_message(node, state.name)))
                elif state.pid != before.pid:
                    self._print_event(node, dim(f"started again, process {state.pid}"))
        echo("all nodes have ended", err=True)
        stopped = all(state.name == "stopped" for state in states.values())
        return 0 if stopped else EXIT_FAILED

    def _stop(self) -> int:
        killed = stop_nodes(self._nodes)
        for node in self._nodes:
            self._show_log(node)
        if killed:
            names = ", ".join(map(str, killed))
            echo(f"node {names} did not stop in time and was killed", err=True)
        echo("stopped", err=True)
        return 0

    def _show_log(self, node: Node) -> None:
        """Print the new lines of a node's log."""
        shown = self._shown[node.id]
        size = _size(node.log_file)
        if size <= shown:
            return
        with node.log_file.open("rb") as log:
            log.seek(shown)
            # Leave an incomplete line for the next call.
            lines, end, _rest = log.read(size - shown).rpartition(b"\n")
        self._shown[node.id] = shown + len(lines) + len(end)
        for line in lines.decode(errors="replace").splitlines():
            self._print_event(node, line)

    def _print_event(self, node: Node, what: object) -> None:
        echo_line(dim(f"node {node.id:<{self._width}} | "), what)
        sys.stdout.flush()


def _on_stop(_number: int, _frame: FrameType | None) -> None:
    raise _StopRequestedError


def _end_message(node: Node, name: str) -> str:
    status = node.exit_status()
    if name == "died" and status is not None:
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        return f"ended {how}; `barnabas cluster restart {node.id}` starts it again"
    return {"running": "runs", "starting": "starts"}.get(name, name)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
