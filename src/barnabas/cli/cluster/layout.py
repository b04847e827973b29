"""What a cluster on this machine consists of, and the server.properties of each of its nodes.

Kept as `cluster.json` in the cluster's directory; the properties are as Kafka has them, so that the
directory can be taken elsewhere.
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
# Ids of controllers that are no brokers.
FIRST_CONTROLLER = 101
# Controllers listen so much above the brokers, metrics above the controllers.
_APART = 100
_REPLICAS_MAX = 3
_INTERNAL_TOPICS = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
_CLIENTS = "PLAINTEXT"
_CONTROLLERS = "CONTROLLER"


class LayoutError(Exception):
    """A directory that holds no cluster, or another than was asked for."""


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """One process."""

    id: int
    roles: tuple[str, ...]
    # 0 where it has no such listener.
    port: int
    controller_port: int
    metrics_port: int

    @property
    def is_broker(self) -> bool:
        """Whether clients can use it."""
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        """Whether it is a voter of the metadata quorum."""
        return "controller" in self.roles

    @property
    def address(self) -> str:
        """HOST:PORT for clients, or for other controllers where it is no broker."""
        return f"{HOST}:{self.port or self.controller_port}"

    @property
    def metrics_address(self) -> str:
        """HOST:PORT of its metrics, empty if it has none."""
        return f"{HOST}:{self.metrics_port}" if self.metrics_port else ""


@dataclass(frozen=True, slots=True)
class Layout:
    """All of a cluster but its processes."""

    cluster_id: str
    nodes: tuple[NodeLayout, ...]
    # Keys of every node, over those that are written anyway.
    settings: Mapping[str, str]

    @property
    def bootstrap(self) -> str:
        """What clients call bootstrap.servers."""
        return ",".join(node.address for node in self.nodes if node.is_broker)

    @property
    def brokers(self) -> int:
        """How many nodes are brokers."""
        return sum(node.is_broker for node in self.nodes)

    @property
    def controllers(self) -> int:
        """How many nodes are nothing but controllers."""
        return sum(not node.is_broker for node in self.nodes)

    def properties(self, node: NodeLayout, data_directory: Path) -> str:
        """The text of a node's server.properties."""
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
        # Colons need no escape in values, and people read this.
        return format_properties(keys).replace("\\:", ":")

    def write(self, directory: Path) -> None:
        """Keep it in a directory."""
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
    """As many replicas as is usual, or as there are brokers; all but one have to be in sync."""
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
    """A cluster that is not there yet.

    Args:
        brokers: with the ids 1, 2, ...; controllers too if there are no others.
        controllers: nodes that are nothing else, with the ids 101, 102, ...
        base_port: of the first broker; 0 takes any free ports for all.
        settings: for every node.
        metrics: whether each node answers for its metrics.
    """
    its_roles = ("broker",) if controllers else ("broker", "controller")
    roles: dict[int, tuple[str, ...]] = dict.fromkeys(range(1, brokers + 1), its_roles)
    roles |= dict.fromkeys(range(FIRST_CONTROLLER, FIRST_CONTROLLER + controllers), ("controller",))
    free = iter(free_ports(3 * len(roles))) if base_port == 0 else None
    nodes = []
    for index, (number, its) in enumerate(roles.items()):
        first, second, third = (
            next(free) if free is not None else base_port + index + _APART * kind
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
        # A word that begins with a dash would be taken for an option.
        if not text.startswith("-"):
            return text


def read_layout(directory: Path) -> Layout:
    """The cluster that a directory holds.

    Raises:
        LayoutError: it holds none.
    """
    path = directory / FILE
    try:
        found = json.loads(path.read_text())
        nodes = tuple(
            NodeLayout(**{**node, "roles": tuple(node["roles"])}) for node in found["nodes"]
        )
        return Layout(found["cluster_id"], nodes, found["settings"])
    except FileNotFoundError:
        hint = "`barnabas cluster start` makes one there; --directory names another"
        raise LayoutError(f"{directory} holds no cluster; {hint}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LayoutError(f"{path} cannot be read: {error!r}") from None
