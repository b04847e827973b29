"""The layout of a local cluster, and the server.properties of each of its nodes.

The layout is stored as `cluster.json` in the cluster's directory. The properties use Kafka's keys,
so the directory can be used elsewhere.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from barnabas.protocol.primitives import uuid_to_string
from barnabas.settings.properties import format_properties
from barnabas.testing.free_ports import HOST, free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Layout", "LayoutError", "NodeLayout", "new_layout", "read_layout"]

FILE = "cluster.json"
# First id of the nodes that are only controllers.
FIRST_CONTROLLER = 101
# Offset between the ports of brokers and controllers, and of controllers and metrics.
_PORT_STEP = 100
_REPLICAS_MAX = 3
_INTERNAL_TOPICS = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
_CLIENTS = "PLAINTEXT"
_CONTROLLERS = "CONTROLLER"


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
class Layout:
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
        keys |= _replication(self.brokers) | dict(self.settings)
        # Values need no escaped colons, and people read this file.
        return format_properties(keys).replace("\\:", ":")

    def write(self, directory: Path) -> None:
        """Write the layout to a directory."""
        text = json.dumps(asdict(self), indent=2) + "\n"
        (directory / FILE).write_text(text)


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
) -> Layout:
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
    return Layout(_new_cluster_id(), tuple(nodes), dict(settings))


def _new_cluster_id() -> str:
    while True:
        text = uuid_to_string(os.urandom(16))
        # An id that begins with a dash would be parsed as an option.
        if not text.startswith("-"):
            return text


def read_layout(directory: Path) -> Layout:
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
        return Layout(found["cluster_id"], nodes, found["settings"])
    except FileNotFoundError:
        hint = "`barnabas cluster start` creates one; --directory selects another directory"
        raise LayoutError(f"{directory} contains no cluster; {hint}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LayoutError(f"{path} cannot be read: {error!r}") from None
