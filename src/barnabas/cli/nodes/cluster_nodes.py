"""The nodes of a local cluster: their layout, files and processes.

The layout is stored as `cluster.json` in the cluster's directory. The properties of the nodes use
Kafka's keys, so the directory can be used elsewhere. The directory of a node contains its complete
state: `server.properties`, `process.json` (the process, and the last request to it), `node.out`
(the ready line), `node.log` and `data`. The commands therefore need not be the parent of the
process: any terminal can start, signal and end it.
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

from barnabas.cli.nodes.registry_child import LISTENER_KEY, PREFIX
from barnabas.protocol.primitives import uuid_to_string
from barnabas.runtime.process_table import is_paused, process_identity
from barnabas.settings.properties import format_properties
from barnabas.testing.free_ports import HOST, free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILE = "cluster.json"
# First id of the nodes that are only controllers.
FIRST_CONTROLLER = 101
# Offset between the ports of brokers and controllers, and of controllers and metrics.
_PORT_STEP = 100
_REPLICAS_MAX = 3
_INTERNAL_TOPICS = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
_CLIENTS = "PLAINTEXT"
_CONTROLLERS = "CONTROLLER"
# Keys whose value belongs to one node.
_OF_ONE_NODE = frozenset(
    {
        *("node.id", "broker.id", "process.roles", "listeners", "advertised.listeners"),
        *("log.dir", "log.dirs", "metadata.log.dir", "metrics.listener"),
    }
)


class LayoutError(Exception):
    """A directory that does not contain a readable cluster layout."""


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """The layout of one node (one process)."""

    id: int
    roles: tuple[str, ...]
    # 0 where the node does not have this listener.
    port: int
    controller_port: int
    metrics_port: int

    @property
    def is_broker(self) -> bool:
        """Whether the node serves clients."""
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        """Whether the node is a voter of the metadata quorum."""
        return "controller" in self.roles

    @property
    def address(self) -> str:
        """HOST:PORT for clients; for other controllers if the node is not a broker."""
        return f"{HOST}:{self.port or self.controller_port}"

    @property
    def metrics_address(self) -> str:
        """HOST:PORT of the metrics listener; empty if there is none."""
        return f"{HOST}:{self.metrics_port}" if self.metrics_port else ""


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """The nodes and settings of a cluster, without its processes."""

    cluster_id: str
    nodes: tuple[NodeLayout, ...]
    # Broker keys for every node; they override the generated ones.
    settings: Mapping[str, str]

    @property
    def bootstrap(self) -> str:
        """The value of bootstrap.servers for clients."""
        return ",".join(node.address for node in self.nodes if node.is_broker)

    @property
    def brokers(self) -> int:
        """Number of nodes that are brokers."""
        return sum(node.is_broker for node in self.nodes)

    @property
    def controllers(self) -> int:
        """Number of nodes that are only controllers."""
        return sum(not node.is_broker for node in self.nodes)

    def properties(self, node: NodeLayout, data_directory: Path) -> str:
        """Return the text of a node's server.properties."""
        keys = {
            "process.roles": ",".join(node.roles),
            "node.id": str(node.id),
            "controller.quorum.voters": ",".join(
                f"{each.id}@{HOST}:{each.controller_port}"
                for each in self.nodes
                if each.is_controller
            ),
            "listeners": ",".join(_listeners(node)),
            "controller.listener.names": _CONTROLLERS,
            "listener.security.protocol.map": f"{_CONTROLLERS}:PLAINTEXT,{_CLIENTS}:PLAINTEXT",
            "log.dirs": str(data_directory),
        }
        if node.is_broker:
            keys["inter.broker.listener.name"] = _CLIENTS
            keys["advertised.listeners"] = f"{_CLIENTS}://{HOST}:{node.port}"
        if node.metrics_port:
            keys["metrics.listener"] = node.metrics_address
        keys |= _replication(self.brokers) | self._settings_of(node)
        # Values need no escaped colons, and people read this file.
        return format_properties(keys).replace("\\:", ":")

    def _settings_of(self, node: NodeLayout) -> dict[str, str]:
        """Return the broker keys of a node. The registries of the brokers have one port each."""
        if not node.is_broker:
            return {
                key: value for key, value in self.settings.items() if not key.startswith(PREFIX)
            }
        found = dict(self.settings)
        address, colon, port = found.get(LISTENER_KEY, "").rpartition(":")
        if port.isdigit() and int(port):
            index = [each.id for each in self.nodes if each.is_broker].index(node.id)
            found[LISTENER_KEY] = f"{address}{colon}{int(port) + index}"
        return found

    def write(self, directory: Path) -> None:
        """Write the layout to a directory."""
        text = json.dumps(asdict(self), indent=2) + "\n"
        (directory / FILE).write_text(text)


def node_keys(settings: Mapping[str, str], nodes: int) -> list[str]:
    """Return the keys of settings that several nodes must not share."""
    return sorted(_OF_ONE_NODE.intersection(settings)) if nodes > 1 else []


def _listeners(node: NodeLayout) -> list[str]:
    found = []
    if node.is_broker:
        found.append(f"{_CLIENTS}://{HOST}:{node.port}")
    if node.is_controller:
        found.append(f"{_CONTROLLERS}://{HOST}:{node.controller_port}")
    return found


def _replication(brokers: int) -> dict[str, str]:
    """Return the replication keys: at most three replicas, all but one of them in sync."""
    replicas = min(brokers, _REPLICAS_MAX)
    in_sync = str(max(1, replicas - 1))
    keys = {"default.replication.factor": str(replicas), "min.insync.replicas": in_sync}
    for topic in _INTERNAL_TOPICS:
        keys[f"{topic}.replication.factor"] = str(replicas)
        if topic != "offsets.topic":
            keys[f"{topic}.min.isr"] = in_sync
    return keys


def new_layout(
    brokers: int, controllers: int, base_port: int, settings: Mapping[str, str], *, metrics: bool
) -> ClusterLayout:
    """Return the layout of a new cluster.

    Args:
        brokers: Number of brokers, with the ids 1, 2, ... They are also controllers if
            `controllers` is 0.
        controllers: Number of nodes that are only controllers, with the ids 101, 102, ...
        base_port: Port of the first broker; 0 takes any free ports for all listeners.
        settings: Broker keys for every node.
        metrics: Whether each node has a metrics listener.
    """
    broker_roles = ("broker",) if controllers else ("broker", "controller")
    roles: dict[int, tuple[str, ...]] = dict.fromkeys(range(1, brokers + 1), broker_roles)
    roles |= dict.fromkeys(range(FIRST_CONTROLLER, FIRST_CONTROLLER + controllers), ("controller",))
    free = iter(free_ports(3 * len(roles))) if base_port == 0 else None
    nodes = []
    for index, (number, its) in enumerate(roles.items()):
        first, second, third = (
            next(free) if free is not None else base_port + index + _PORT_STEP * kind
            for kind in range(3)
        )
        nodes.append(
            NodeLayout(
                number,
                its,
                first if "broker" in its else 0,
                second if "controller" in its else 0,
                third if metrics else 0,
            )
        )
    return ClusterLayout(_new_cluster_id(), tuple(nodes), dict(settings))


def _new_cluster_id() -> str:
    while True:
        text = uuid_to_string(os.urandom(16))
        # An id that begins with a dash would be parsed as an option.
        if not text.startswith("-"):
            return text


def read_layout(directory: Path) -> ClusterLayout:
    """Read the layout of the cluster in a directory.

    Raises:
        LayoutError: The directory does not contain a readable layout.
    """
    path = directory / FILE
    try:
        found = json.loads(path.read_text())
        nodes = tuple(
            NodeLayout(**{**node, "roles": tuple(node["roles"])}) for node in found["nodes"]
        )
        return ClusterLayout(found["cluster_id"], nodes, found["settings"])
    except FileNotFoundError:
        hint = "`barnabas cluster start` creates one; --directory selects another directory"
        raise LayoutError(f"{directory} contains no cluster; {hint}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LayoutError(f"{path} cannot be read: {error!r}") from None


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

    def __init__(self, layout: ClusterLayout, plan: NodeLayout, cluster_directory: Path) -> None:
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
