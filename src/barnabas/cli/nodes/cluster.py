"""`barnabas cluster`: start, inspect and fault-test a cluster of local processes."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.common.output import (
    EXIT_FAILED,
    echo_json,
    fail,
    json_option,
    key_values,
    option_record,
    problem,
)
from barnabas.cli.common.printable import echo
from barnabas.cli.common.tables import header_option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.cli.nodes.cluster_nodes import ClusterLayout, Node


EXAMPLES = """\b
Examples:
  barnabas cluster start --brokers 3
  barnabas cluster start --brokers 3 --controllers 3 --detach
  barnabas cluster status
  barnabas cluster kill 2
  barnabas cluster kill --leader-of orders:0
  barnabas cluster restart 2
  barnabas cluster stop

\b
The commands work from any terminal with the same --directory, which records the processes of the
nodes. A command only signals a process that is still the recorded one.
"""
DEFAULT_DIRECTORY = "barnabas-cluster"
_KILL_TIMEOUT_S = 10.0


@click.group(epilog=EXAMPLES)
def cluster() -> None:
    """Run a cluster of processes on this machine, and inject faults."""


_directory_option = click.option(
    "-d",
    "--directory",
    default=DEFAULT_DIRECTORY,
    show_default=True,
    envvar="BARNABAS_CLUSTER",
    show_envvar=True,
    metavar="DIR",
    help="The cluster's directory.",
)


class _NodeChoice(NamedTuple):
    """The nodes that a command applies to."""

    numbers: Sequence[int]
    directory: str
    leader_of: str | None
    controller: bool

    @property
    def is_empty(self) -> bool:
        """Whether the user has named no node."""
        return not (self.numbers or self.leader_of or self.controller)

    def nodes(self, *, all_by_default: bool = False) -> list[Node]:
        """Return the chosen nodes."""
        from barnabas.cli.nodes.cluster_supervisor import active_controller, leader_of_partition

        layout, nodes = _nodes(self.directory)
        wanted = list(self.numbers)
        if self.leader_of is not None:
            wanted.append(leader_of_partition(layout, self.leader_of))
        if self.controller:
            wanted.append(active_controller(layout))
        if not wanted and not all_by_default:
            raise click.UsageError("give NODE..., --leader-of or --controller")
        return _nodes_by_id(nodes, wanted)


_node_options = option_record(
    "choice",
    _NodeChoice,
    click.argument("numbers", nargs=-1, type=int, metavar="[NODE...]"),
    _directory_option,
    click.option(
        "--leader-of", metavar="TOPIC:PARTITION", help="The broker that leads this partition."
    ),
    click.option("--controller", is_flag=True, help="The active controller."),
    json_option(),
)


@cluster.command(
    "start",
    epilog="""\b
Examples:
  barnabas cluster start --brokers 3
  barnabas cluster start --brokers 3 --controllers 3 --base-port 19092 --detach
  barnabas cluster start --set num.partitions=6 --metrics

\b
Prints "ready HOST:PORT,..." on standard output when all nodes answer. Ctrl-C, SIGTERM and closing
the terminal stop all nodes; with --detach, they run until `barnabas cluster stop`. Brokers have the
ids 1, 2, ..., separate controllers 101, 102, ... Brokers listen at the base port and the following
ones, controllers at base port + 100, metrics listeners at base port + 200. With
--set barnabas.registry.listener=127.0.0.1:8081, each broker has a registry, and the ports count up.
""",
)
@click.option(
    "-n", "--brokers", type=click.IntRange(1, 50), help="Number of brokers.  [default: 3]"
)
@click.option(
    "-c",
    "--controllers",
    type=click.IntRange(0, 9),
    help="Number of separate controllers.  [default: 0, the brokers are controllers]",
)
@_directory_option
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A broker key for every node. May be repeated.",
)
@click.option(
    "-p",
    "--base-port",
    type=click.IntRange(0, 65_000),
    help="Port of the first broker; 0 takes any free ports.  [default: 9092]",
)
@click.option("--metrics", is_flag=True, help="Give every node a metrics listener.")
@click.option(
    "--detach", is_flag=True, help="Exit when the cluster is ready, and leave it running."
)
def start_cluster(
    brokers: int | None,
    controllers: int | None,
    directory: str,
    settings: Sequence[str],
    base_port: int | None,
    metrics: bool,
    detach: bool,
) -> None:
    """Start a cluster, or its stopped nodes, and run until it is stopped.

    If the directory already contains a cluster, its nodes and ports do not change.
    """
    from barnabas.cli.nodes.cluster_nodes import FILE, LayoutError, new_layout, read_layout
    from barnabas.cli.nodes.cluster_supervisor import Supervisor
    from barnabas.runtime.system_calls import CAN_RUN_BROKER, NO_BROKER

    if not CAN_RUN_BROKER:
        raise click.ClickException(NO_BROKER)
    place = Path(directory)
    given = key_values(settings, "--set")
    try:
        if (place / FILE).exists():
            layout = read_layout(place)
            _refuse_change(layout, brokers, controllers, base_port)
            layout = _with_settings(layout, given)
        else:
            place.mkdir(parents=True, exist_ok=True)
            port = 9092 if base_port is None else base_port
            layout = new_layout(brokers or 3, controllers or 0, port, given, metrics=metrics)
        _refuse_shared(layout)
        layout.write(place)
    except (LayoutError, OSError) as error:
        fail(str(error))
    sys.exit(Supervisor(layout, place).run(detach=detach))


def _refuse_change(
    layout: ClusterLayout, brokers: int | None, controllers: int | None, base_port: int | None
) -> None:
    """Refuse options that differ from the cluster in the directory."""
    first = next(node.port for node in layout.nodes if node.is_broker)
    for name, wanted, there in (
        ("--brokers", brokers, layout.brokers),
        ("--controllers", controllers, layout.controllers),
        ("--base-port", base_port or None, first),
    ):
        if wanted is not None and wanted != there:
            raise click.UsageError(
                f"{name} {wanted}: the directory contains a cluster with {there}; omit "
                "the option, or use another --directory"
            )


def _refuse_shared(layout: ClusterLayout) -> None:
    """Refuse keys that would give all nodes one address, directory or id."""
    from barnabas.cli.nodes.cluster_nodes import node_keys

    shared = node_keys(layout.settings, len(layout.nodes))
    if shared:
        raise click.UsageError(
            f"--set {shared[0]}: each of the {len(layout.nodes)} nodes needs its own value, which "
            "the command chooses (--base-port, --directory, --metrics)"
        )


def _with_settings(layout: ClusterLayout, given: dict[str, str]) -> ClusterLayout:
    return replace(layout, settings={**layout.settings, **given})


@cluster.command("status", epilog="\b\nExamples:\n  barnabas cluster status --json\n")
@click.argument("numbers", nargs=-1, type=int, metavar="[NODE...]")
@_directory_option
@header_option
@json_option()
def cluster_status(numbers: Sequence[int], directory: str, as_json: bool) -> None:
    """Show each node's process, and the cluster's view of it.

    Exit status 1: a node does not run, or the cluster does not see it as active.
    """
    from barnabas.cli.nodes.cluster_supervisor import echo_status

    layout, nodes = _nodes(directory)
    if not echo_status(layout, _nodes_by_id(nodes, numbers), as_json=as_json):
        sys.exit(EXIT_FAILED)


def _nodes(directory: str) -> tuple[ClusterLayout, list[Node]]:
    from barnabas.cli.nodes.cluster_nodes import LayoutError, read_layout
    from barnabas.cli.nodes.cluster_supervisor import nodes_of

    place = Path(directory)
    try:
        layout = read_layout(place)
    except LayoutError as error:
        fail(str(error))
    return layout, nodes_of(layout, place)


def _nodes_by_id(nodes: Sequence[Node], numbers: Sequence[int]) -> list[Node]:
    known = {node.id: node for node in nodes}
    for number in numbers:
        if number not in known:
            there = ", ".join(map(str, known))
            raise click.UsageError(f"there is no node {number}; the nodes are {there}")
    return [known[number] for number in dict.fromkeys(numbers)] if numbers else list(nodes)


def _apply_to_nodes(
    nodes: Sequence[Node], act: Callable[[Node], bool], done: str, *, as_json: bool
) -> None:
    """Perform an action on each node and print the result; exit with status 1 on a failure."""
    failed = False
    for node in nodes:
        worked = act(node)
        failed = failed or not worked
        if as_json:
            echo_json({"node": node.id, "done": done if worked else None})
        elif worked:
            echo(f"{done} node {node.id}")
        else:
            problem(f"node {node.id} does not run")
    if failed:
        sys.exit(EXIT_FAILED)


@cluster.command(
    "kill",
    epilog="\b\nExamples:\n  barnabas cluster kill 2\n  barnabas cluster kill --controller\n",
)
@_node_options
def kill_nodes(choice: _NodeChoice, as_json: bool) -> None:
    """Kill nodes at once (kill -9)."""

    def kill(node: Node) -> bool:
        return node.kill() and node.await_end(time.monotonic() + _KILL_TIMEOUT_S)

    _apply_to_nodes(choice.nodes(), kill, "killed", as_json=as_json)


@cluster.command("pause", epilog="\b\nExamples:\n  barnabas cluster pause --leader-of orders:0\n")
@_node_options
def pause_nodes(choice: _NodeChoice, as_json: bool) -> None:
    """Pause nodes (SIGSTOP): their connections stay open, but they do not answer."""
    _apply_to_nodes(choice.nodes(), lambda node: node.pause(), "paused", as_json=as_json)


@cluster.command("resume", epilog="\b\nExamples:\n  barnabas cluster resume 2\n")
@_node_options
def resume_nodes(choice: _NodeChoice, as_json: bool) -> None:
    """Resume paused nodes; without NODE, all paused nodes."""
    nodes = choice.nodes(all_by_default=True)
    if choice.is_empty:
        nodes = [node for node in nodes if node.state().name == "paused"]
    _apply_to_nodes(nodes, lambda node: node.resume(), "resumed", as_json=as_json)


@cluster.command(
    "stop", epilog="\b\nExamples:\n  barnabas cluster stop\n  barnabas cluster stop 3\n"
)
@_node_options
def stop_cluster(choice: _NodeChoice, as_json: bool) -> None:
    """Stop nodes cleanly; without NODE, all nodes in order."""
    from barnabas.cli.nodes.cluster_supervisor import stop_nodes

    nodes = choice.nodes(all_by_default=True)
    ran = [node for node in nodes if node.state().is_alive]
    killed = stop_nodes(ran)
    for node in ran:
        how = "killed" if node.id in killed else "stopped"
        if as_json:
            echo_json({"node": node.id, "done": how})
        else:
            late = ": it did not stop in time" if node.id in killed else ""
            echo(f"{how} node {node.id}{late}")
    if not ran and not as_json:
        echo("nothing runs")
    if killed:
        sys.exit(EXIT_FAILED)


@cluster.command(
    "restart", epilog="\b\nExamples:\n  barnabas cluster restart 2\n  barnabas cluster restart\n"
)
@_node_options
def restart_nodes(choice: _NodeChoice, as_json: bool) -> None:
    """Restart nodes one by one; without NODE, all nodes.

    After each node, the command waits until the node is ready and its replicas are in sync. This
    keeps a leader available for each partition. Stopped nodes are started.
    """
    from barnabas.cli.nodes.cluster_nodes import NodeError
    from barnabas.cli.nodes.cluster_supervisor import START_TIMEOUT_S, await_in_sync, stop_nodes

    layout, _ = _nodes(choice.directory)
    nodes = choice.nodes(all_by_default=True)
    down = [node for node in nodes if not node.state().is_alive]
    try:
        # Start the nodes that are down first and together: the others may wait for them.
        for node in down:
            node.launch()
        for node in down:
            node.await_ready(time.monotonic() + START_TIMEOUT_S)
        for node in nodes:
            if node not in down:
                stop_nodes([node])
                node.launch()
                node.await_ready(time.monotonic() + START_TIMEOUT_S)
                await_in_sync(layout, node.id)
            if as_json:
                echo_json({"node": node.id, "done": "restarted"})
            else:
                echo(f"{'started' if node in down else 'restarted'} node {node.id}")
    except NodeError as error:
        fail(str(error))
