"""A cluster of processes on free ports; each node has a server.properties as in Kafka."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from .barnabas_command import barnabas_command
from .broker_process import ServerProcess
from .free_ports import HOST, free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self


# Listener for clients, listener of controllers, and an optional listener between brokers.
CLIENT_LISTENER = "PLAINTEXT"
CONTROLLER_LISTENER = "CONTROLLER"
REPLICATION_LISTENER = "REPLICATION"

Address = tuple[str, int]


@dataclass(frozen=True)
class NodeOptions:
    """Identity, roles and addresses of a node."""

    node_id: int
    # "broker", "controller", or both.
    roles: tuple[str, ...]
    # Addresses by listener name.
    listeners: Mapping[str, Address]
    cluster_id: str
    # Directory of the node: contains `server.properties`, the log file and the data.
    directory: Path
    # Directory that the node removes if the process that started it has ended; None for none.
    orphaned_directory: Path | None = None


class NodeProcess(ServerProcess):
    """A node as a process: `barnabas start FILE --set cluster.id=UUID`.

    Args:
        options: identity, roles and addresses of the node.
        settings: the keys of server.properties. Changes to `node.settings` apply at the next
            start.
    """

    def __init__(self, options: NodeOptions, settings: Mapping[str, str]) -> None:
        super().__init__(options.directory, "node.log")
        self.options = options
        self.node_id = options.node_id
        self.data_directory = options.directory / "data"
        self.properties_file = options.directory / "server.properties"
        self.settings = {**settings, "log.dirs": str(self.data_directory)}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address!r})"

    @property
    def is_broker(self) -> bool:
        """Whether the node accepts clients."""
        return "broker" in self.options.roles

    @property
    def is_controller(self) -> bool:
        """Whether the node is a voter of the metadata quorum."""
        return "controller" in self.options.roles

    @property
    def address(self) -> str:
        """HOST:PORT of the node's own listener, without a relay; for clients if it is a broker."""
        name = CLIENT_LISTENER if self.is_broker else CONTROLLER_LISTENER
        host, port = self.options.listeners[name]
        return f"{host}:{port}"

    def wipe(self) -> None:
        """Delete all stored data; the node must not run."""
        assert not self.is_running, "the directory of a running node cannot be deleted"
        for entry in self.data_directory.iterdir():
            # Keep the directory itself: it may be a mount point.
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def prepare(self) -> None:
        """Write server.properties."""
        lines = [f"{key}={value}" for key, value in self.settings.items()]
        self.properties_file.write_text("\n".join(lines) + "\n")

    def _command(self) -> list[str]:
        command = [*barnabas_command(), "start", str(self.properties_file)]
        command += [
            "--set",
            f"cluster.id={self.options.cluster_id}",
            "--exit-with",
            str(os.getpid()),
        ]
        if self.options.orphaned_directory is not None:
            command += ["--remove-orphaned", str(self.options.orphaned_directory)]
        return command


# First node id of processes that are only controllers.
FIRST_CONTROLLER = 101
_INTERNAL_TOPICS = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")


class Network(Protocol):
    """Relays between nodes, with which a test cuts and delays links (`barnabas.testing.relays`)."""

    @property
    def relays_clients(self) -> bool:
        """Whether clients connect to brokers through relays too."""
        ...

    def relayed(self, node_id: int, listener: str, address: Address) -> Address:
        """Return the address at which other nodes reach a node's listener."""
        ...


class ClusterProcess:
    """Brokers and controllers as local processes; use a `with` block, or `start` and `close`.

    Brokers have the ids 1, 2, ... and are controllers too, unless there are separate
    `controllers`, which have the ids 101, 102, ...

    Args:
        brokers: the number of brokers.
        controllers: the number of separate controllers; 0 makes every broker a controller.
        directory: parent of the nodes' directories; a temporary directory when None.
        settings: broker keys of every node; they override the generated keys.
        network: relays between the nodes; brokers then have a separate listener for replication.
        node_type: class of the nodes' processes; another server's class has the same interface.
    """

    def __init__(
        self,
        brokers: int = 3,
        controllers: int = 0,
        directory: str | Path | None = None,
        settings: Mapping[str, str] | None = None,
        network: Network | None = None,
        node_type: type[NodeProcess] = NodeProcess,
    ) -> None:
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if directory is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="barnabas-cluster-")
            directory = self._temporary.name
        self.directory = Path(directory)
        self.cluster_id = _new_cluster_id()
        self._network = network
        broker_roles = ("broker",) if controllers else ("broker", "controller")
        roles = dict.fromkeys(range(1, brokers + 1), broker_roles)
        for number in range(FIRST_CONTROLLER, FIRST_CONTROLLER + controllers):
            roles[number] = ("controller",)
        hosts = {number: self.host_of(number) for number in roles}
        listeners = _listeners(roles, hosts, separate=network is not None)
        self._reached = {
            number: self._reached_at(number, named) for number, named in listeners.items()
        }
        voters = ",".join(
            f"{number}@{_text(named[CONTROLLER_LISTENER])}"
            for number, named in self._reached.items()
            if CONTROLLER_LISTENER in named
        )
        self.nodes: dict[int, NodeProcess] = {}
        for number, node_roles in roles.items():
            options = NodeOptions(
                number,
                node_roles,
                listeners[number],
                self.cluster_id,
                self.directory / f"node-{number}",
                None if self._temporary is None else self.directory,
            )
            keys = self._node_keys(options, voters)
            keys |= _replication_keys(brokers) | dict(settings or {})
            self.nodes[number] = node_type(options, keys)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.bootstrap!r})"

    def host_of(self, number: int) -> str:
        """Return the host of a node's listeners; a subclass can put nodes on several machines."""
        return HOST

    def node(self, number: int) -> NodeProcess:
        """Return the node with this id."""
        return self.nodes[number]

    @property
    def brokers(self) -> list[NodeProcess]:
        """The nodes that accept clients."""
        return [node for node in self.nodes.values() if node.is_broker]

    @property
    def controllers(self) -> list[NodeProcess]:
        """The voters of the metadata quorum."""
        return [node for node in self.nodes.values() if node.is_controller]

    @property
    def bootstrap(self) -> str:
        """HOST:PORT of all brokers, separated by commas: the value of bootstrap.servers."""
        return ",".join(_text(self._reached[x.node_id][CLIENT_LISTENER]) for x in self.brokers)

    def launch(self) -> None:
        """Start all nodes without waiting; `await_ready` waits."""
        for node in self.nodes.values():
            node.launch()

    def await_ready(self, timeout_s: float | None = None) -> Self:
        """Wait until all nodes are ready; kill all if one is not ready in time.

        Raises:
            BrokerStartError: a node ended or was not ready within `timeout_s`; has the node's log.
        """
        started = time.monotonic()
        try:
            for node in self.nodes.values():
                limit = node.start_timeout_s if timeout_s is None else timeout_s
                node.await_ready(max(0.0, started + limit - time.monotonic()))
        except BaseException:
            self.kill()
            raise
        return self

    def start(self, timeout_s: float | None = None) -> Self:
        """Start all nodes and wait until all are ready.

        Raises:
            BrokerStartError: a node ended or was not ready within `timeout_s`; has the node's log.
        """
        self.launch()
        return self.await_ready(timeout_s)

    def stop(self, timeout_s: float | None = None) -> None:
        """Stop all nodes and wait; kill a node that has not stopped after `timeout_s`.

        Brokers stop before separate controllers, because a controlled shutdown needs a controller.
        If brokers are the controllers, the last brokers stop without one.
        """
        for batch in (self.brokers, self.controllers):
            for node in batch:
                node.terminate()
            for node in batch:
                node.stop(timeout_s)

    def kill(self) -> None:
        """Kill all nodes with SIGKILL."""
        for node in self.nodes.values():
            if node.is_running:
                node.kill()

    def log(self) -> str:
        """Return the last 2,000 characters of each node's log."""
        return "\n".join(
            f"--- node {number}\n{node.log()[-2000:]}" for number, node in self.nodes.items()
        )

    def close(self) -> None:
        """Kill all nodes; remove the directory if it is temporary."""
        for node in self.nodes.values():
            node.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        if not any(node.is_running for node in self.nodes.values()):
            self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _reached_at(self, number: int, named: Mapping[str, Address]) -> dict[str, Address]:
        """Return the addresses at which a node is reached: those of the network's relays."""
        network = self._network
        if network is None:
            return dict(named)
        return {
            name: network.relayed(number, name, address)
            if name != CLIENT_LISTENER or network.relays_clients
            else address
            for name, address in named.items()
        }

    def _node_keys(self, options: NodeOptions, voters: str) -> dict[str, str]:
        """Return the generated keys of a node's server.properties."""
        between = CLIENT_LISTENER if self._network is None else REPLICATION_LISTENER
        names = {CLIENT_LISTENER, CONTROLLER_LISTENER, between}
        keys = {
            "process.roles": ",".join(options.roles),
            "node.id": str(options.node_id),
            "controller.quorum.voters": voters,
            "listeners": _named(options.listeners),
            "controller.listener.names": CONTROLLER_LISTENER,
            "listener.security.protocol.map": ",".join(f"{n}:PLAINTEXT" for n in sorted(names)),
        }
        if "broker" in options.roles:
            keys["inter.broker.listener.name"] = between
        if "broker" in options.roles or self._network is not None:
            keys["advertised.listeners"] = _named(self._reached[options.node_id])
        return keys


def _listeners(
    roles: Mapping[int, tuple[str, ...]], hosts: Mapping[int, str], *, separate: bool
) -> dict[int, dict[str, Address]]:
    """Choose addresses for all listeners; `separate` adds a listener between brokers."""
    names: dict[int, list[str]] = {}
    for number, node_roles in roles.items():
        named = names.setdefault(number, [])
        if "broker" in node_roles:
            named += [CLIENT_LISTENER, REPLICATION_LISTENER] if separate else [CLIENT_LISTENER]
        if "controller" in node_roles:
            named.append(CONTROLLER_LISTENER)
    ports = iter(free_ports(sum(map(len, names.values()))))
    return {
        number: {name: (hosts[number], next(ports)) for name in named}
        for number, named in names.items()
    }


def _replication_keys(brokers: int) -> dict[str, str]:
    """Return replication factors for fewer than three brokers, which Kafka's defaults need."""
    keys: dict[str, str] = {}
    if brokers < 3:
        for topic in _INTERNAL_TOPICS:
            keys[f"{topic}.replication.factor"] = str(brokers)
    if brokers < 2:
        keys["transaction.state.log.min.isr"] = "1"
        keys["share.coordinator.state.topic.min.isr"] = "1"
    return keys


def _named(addresses: Mapping[str, Address]) -> str:
    return ",".join(f"{name}://{_text(address)}" for name, address in addresses.items())


def _text(address: Address) -> str:
    host, port = address
    return f"{host}:{port}"


def _new_cluster_id() -> str:
    while True:
        text = urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        # The command line would parse a value with a leading dash as an option.
        if not text.startswith("-"):
            return text
