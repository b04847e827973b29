"""Start, supervise and stop the nodes of a local cluster, and show their status."""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.common.machine_lines import shared_machines
from barnabas.cli.common.output import EXIT_FAILED, echo_json, fail
from barnabas.cli.common.printable import echo
from barnabas.cli.common.tables import bad, dim, echo_line, echo_table, good, strong, warn
from barnabas.cli.nodes.cluster_nodes import Node, NodeError
from barnabas.client.errors import ClientError
from barnabas.runtime.process import HANGUP

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from types import FrameType

    from barnabas.cli.common.machine_lines import Machine
    from barnabas.cli.nodes.cluster_nodes import ClusterLayout, NodeState
    from barnabas.client.admin.cluster import ClusterDescription, QuorumDescription
    from barnabas.client.facade import Client

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
_POLL_S = 0.2
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, HANGUP)


class _StopRequestedError(BaseException):
    """A signal that ends the cluster. It must not be caught by `except Exception`."""


def nodes_of(layout: ClusterLayout, directory: Path) -> list[Node]:
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

    def __init__(self, layout: ClusterLayout, directory: Path) -> None:
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


# Short timeouts, so that paused or dead nodes do not delay the status of the others.
_CONFIG = {
    "client_id": "barnabas-cli",
    "request_timeout_ms": 1_500,
    "default_api_timeout_ms": 4_000,
    "socket_connection_setup_timeout_ms": 1_000,
}
_IN_SYNC_TIMEOUT_S = 60.0
_STATES = {"running": good, "starting": warn, "paused": warn, "stopped": dim}


@dataclass(slots=True)
class _ClusterView:
    """The state that the brokers report."""

    cluster: ClusterDescription
    # None if it does not respond.
    quorum: QuorumDescription | None
    # Brokers that serve clients, and registered brokers that are fenced.
    serving: set[int]
    fenced: set[int]
    # By broker: partitions it leads, its replicas, and its replicas out of sync.
    leads: dict[int, int]
    replicas: dict[int, int]
    lagging: dict[int, int]
    # Number of partitions without a leader.
    offline: int

    @property
    def controller(self) -> int | None:
        """Leader of the metadata quorum; None if there is none or it is unknown."""
        return _leader(self.quorum)

    def machines(self, ended: Iterable[int]) -> list[Machine]:
        """Return the machines; empty if each broker has its own.

        Args:
            ended: Nodes whose processes do not run, which the brokers may not know yet.
        """
        return shared_machines(self.cluster, self.quorum, ended)


def echo_status(layout: ClusterLayout, nodes: Sequence[Node], *, as_json: bool) -> bool:
    """Print the state of nodes. Return whether the cluster is healthy."""
    states = {node.id: node.state() for node in nodes}
    view = _request_view(layout) if any(state.is_alive for state in states.values()) else None
    rows = [_node_json(node, states[node.id], view) for node in nodes]
    ended = [node.id for node in nodes if states[node.id].name != "running"]
    machines = [] if view is None else view.machines(ended)
    is_healthy = all(row["well"] for row in rows) and (view is not None and not view.offline)
    if as_json:
        echo_json(
            {
                "cluster_id": layout.cluster_id,
                "bootstrap": layout.bootstrap,
                "controller": None if view is None else view.controller,
                "offline_partitions": None if view is None else view.offline,
                "well": is_healthy,
                "machines": [machine.as_json() for machine in machines],
                "nodes": rows,
            }
        )
        return is_healthy
    _echo_head(layout, rows, view)
    for machine in machines:
        echo_line(warn(machine.line()) if machine.down else machine.line())
    echo_table(
        ("node", "role", "state", "pid", "port", "leads", "replicas", "behind", "up"),
        [_row(row) for row in rows],
    )
    if sys.stdout.isatty() and view is not None:
        echo_line(dim(f"* acts as controller; clients: {layout.bootstrap}"))
    return is_healthy


def _echo_head(
    layout: ClusterLayout, rows: Sequence[dict[str, Any]], view: _ClusterView | None
) -> None:
    if view is None:
        echo_line(strong(f"cluster {layout.cluster_id}"), ": ", bad("does not answer"))
        return
    controller: object = view.controller if view.controller is not None else bad("none")
    offline: object = good(0) if not view.offline else bad(view.offline)
    # The controller learns only after a moment that a process has ended or is paused.
    serving = sum(
        row["state"] == "running" and row["broker"] is not None and row["broker"]["serving"]
        for row in rows
    )
    echo_line(
        strong(f"cluster {layout.cluster_id}"),
        ": controller ",
        controller,
        f", {serving} of {layout.brokers} brokers serve, leaderless ",
        offline,
    )


def _node_json(node: Node, state: NodeState, view: _ClusterView | None) -> dict[str, Any]:
    plan = node.plan
    broker = None
    if view is not None and plan.is_broker:
        broker = {
            "serving": node.id in view.serving,
            "fenced": node.id in view.fenced,
            "leads": view.leads.get(node.id, 0),
            "replicas": view.replicas.get(node.id, 0),
            "out_of_sync": view.lagging.get(node.id, 0),
        }
    is_healthy = state.name == "running" and (
        broker is None or (bool(broker["serving"]) and not broker["out_of_sync"])
    )
    return {
        "node": node.id,
        "roles": list(plan.roles),
        "state": state.name,
        "pid": state.pid,
        "since_ms": state.since_ms,
        "address": plan.address,
        "port": plan.port or plan.controller_port,
        "metrics": plan.metrics_address or None,
        "active_controller": view is not None and view.controller == node.id,
        "broker": broker,
        "well": is_healthy,
    }


def _row(row: dict[str, Any]) -> list[object]:
    roles = "both" if len(row["roles"]) > 1 else row["roles"][0]
    # The active controller is marked.
    controllers = f"{roles}*" if row["active_controller"] else roles
    state: object = _STATES.get(row["state"], bad)(row["state"])
    broker = row["broker"]
    if row["state"] == "running" and broker is not None and not broker["serving"]:
        state = bad("fenced" if broker["fenced"] else "unregistered")
    up = None if row["since_ms"] is None else _span(time.time() * 1000 - row["since_ms"])
    cells: list[object] = [row["node"], controllers, state, row["pid"], row["port"]]
    if broker is None:
        cells += [dim(None)] * 3
    else:
        behind = broker["out_of_sync"]
        cells += [broker["leads"], broker["replicas"], warn(behind) if behind else good(0)]
    return [*cells, up if up is not None else dim(None)]


def _span(elapsed_ms: float) -> str:
    seconds = int(elapsed_ms / 1000)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def _client(layout: ClusterLayout) -> Client:
    from barnabas.client.facade import Client

    return Client(layout.bootstrap, **_CONFIG)


def _request_view(layout: ClusterLayout) -> _ClusterView | None:
    with _client(layout) as client:
        try:
            cluster = client.describe_cluster()
            topics = client.admin.describe_topic_partitions()
        except ClientError:
            return None
        view = _ClusterView(
            cluster=cluster,
            quorum=_quorum(client),
            serving={broker.id for broker in cluster.brokers},
            fenced={broker.id for broker in cluster.fenced},
            leads={},
            replicas={},
            lagging={},
            offline=0,
        )
    for topic in topics.values():
        if isinstance(topic, ClientError):
            continue
        for state in topic.partitions.values():
            view.offline += state.leader < 0
            _count(view.leads, state.leader)
            for replica in state.replicas:
                _count(view.replicas, replica)
                if replica not in state.isr:
                    _count(view.lagging, replica)
    return view


def _count(counts: dict[int, int], node: int) -> None:
    counts[node] = counts.get(node, 0) + 1


def _quorum(client: Client) -> QuorumDescription | None:
    try:
        return client.admin.describe_quorum()
    except ClientError:
        return None


def _leader(quorum: QuorumDescription | None) -> int | None:
    return quorum.leader_id if quorum is not None and quorum.leader_id >= 0 else None


def active_controller(layout: ClusterLayout) -> int:
    """Return the leader of the metadata quorum; end the command if there is none."""
    with _client(layout) as client:
        found = _leader(_quorum(client))
    if found is None:
        fail("there is no active controller, or the cluster does not answer")
    return found


def leader_of_partition(layout: ClusterLayout, spec: str) -> int:
    """Return the broker that leads TOPIC:PARTITION; end the command if there is none."""
    topic, _, number = spec.rpartition(":")
    if not topic or not number.isdigit():
        raise click.UsageError(f"--leader-of {spec}: write TOPIC:PARTITION")
    with _client(layout) as client:
        try:
            partition = client.describe_topics([topic])[topic].partitions.get(int(number))
        except ClientError as error:
            fail(str(error))
    if partition is None or partition.leader < 0:
        fail(f"{spec}: no such partition" if partition is None else f"{spec} has no leader")
    return partition.leader


def await_in_sync(layout: ClusterLayout, node: int) -> bool:
    """Wait up to a minute until all replicas of a node are in sync. Return whether they are."""
    deadline = time.monotonic() + _IN_SYNC_TIMEOUT_S
    while time.monotonic() < deadline:
        view = _request_view(layout)
        if view is not None and not view.lagging.get(node) and not view.offline:
            return True
        time.sleep(_POLL_S)
    echo(f"node {node} has replicas that are not in sync yet", err=True)
    return False
