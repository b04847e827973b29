"""Several nodes in one simulated world, each on a separate host, and their clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.network.channel import Channel, ChannelDependencies
from barnabas.network.framed_protocol import new_receive_buffer
from barnabas.server.configs.configuration import read_configuration
from barnabas.server.process.node import Node
from barnabas.sim.world import SimWorld
from barnabas.waiting.timing_wheel import TimingWheel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.network.network_error import NetworkError
    from barnabas.protocol.schema import Message

CLIENT_PORT, CONTROLLER_PORT = 9092, 9093
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
TIMEOUT_MS = 30_000
LIMIT_MS = 120_000.0


class SimulatedCluster:
    """Nodes by id, with their roles; `start` waits until all are ready."""

    def __init__(self, roles: Mapping[int, str], seed: int = 1, **settings: str) -> None:
        self.world = SimWorld(seed)
        self.roles = dict(roles)
        self.settings = {key.replace("_", "."): value for key, value in settings.items()}
        self.nodes: dict[int, Node] = {}
        self.ready: set[int] = set()
        self.failures: dict[int, BaseException] = {}
        self._clients: dict[tuple[int, int], tuple[Channel, list[NetworkError]]] = {}
        self._connections = 0

    def properties(self, node_id: int) -> dict[str, str]:
        """Return the node's server.properties."""
        roles = self.roles[node_id]
        listeners = []
        if "broker" in roles:
            listeners.append(f"PLAINTEXT://node-{node_id}:{CLIENT_PORT}")
        if "controller" in roles:
            listeners.append(f"CONTROLLER://node-{node_id}:{CONTROLLER_PORT}")
        voters = [each for each, its in self.roles.items() if "controller" in its]
        given = {
            "process.roles": roles,
            "node.id": str(node_id),
            "cluster.id": CLUSTER_ID,
            "listeners": ",".join(listeners),
            "controller.quorum.voters": ",".join(
                f"{each}@node-{each}:{CONTROLLER_PORT}" for each in voters
            ),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": "/data",
            **self.settings,
        }
        # An empty value removes the key.
        return {key: value for key, value in given.items() if value}

    def launch(self, node_id: int) -> None:
        """Start or restart a node without waiting."""
        host = self.world.host(f"node-{node_id}")
        if node_id in self.nodes:
            host.start()
        self.ready.discard(node_id)
        node = Node(
            read_configuration(self.properties(node_id)),
            host.runtime,
            lambda _: self.ready.add(node_id),
            lambda error: self.failures.setdefault(node_id, error),
        )
        self.nodes[node_id] = node
        node.start()

    def start(self) -> SimulatedCluster:
        """Start all nodes, and wait until they are ready."""
        for node_id in self.roles:
            self.launch(node_id)
        self.until(lambda: self.ready == set(self.roles))
        return self

    def stop(self, node_id: int) -> None:
        """Stop a node cleanly, and end its process."""
        stopped: list[bool] = []
        self.nodes[node_id].stop(lambda: stopped.append(True))
        self.until(lambda: bool(stopped))
        self.kill(node_id)

    def kill(self, node_id: int) -> None:
        """Kill a node (kill -9)."""
        self.ready.discard(node_id)
        self.world.host(f"node-{node_id}").kill()
        for key in [key for key in self._clients if key[0] == node_id]:
            del self._clients[key]

    def until(self, predicate: Callable[[], bool], limit_ms: float = LIMIT_MS) -> None:
        """Advance virtual time until the condition holds."""
        assert self.world.run_until(predicate, limit_ms), (self.ready, self.failures)

    @property
    def active(self) -> int:
        """The node with the active controller; waits until there is one."""

        def found() -> list[int]:
            return [
                node_id
                for node_id in self.ready
                if (controller := self.nodes[node_id].controller) is not None
                and controller.controller.is_active
            ]

        self.until(lambda: bool(found()))
        return found()[0]

    def image(self, node_id: int) -> Any:
        """Return the cluster image of a node."""
        return self.nodes[node_id].shared.cluster.image

    def live_brokers(self, node_id: int) -> set[int]:
        """Return the unfenced brokers in the image of a node."""
        return {each.id for each in self.image(node_id).brokers.values() if not each.fenced}

    def ask(self, node_id: int, request: Message, version: int, port: int = CLIENT_PORT) -> Any:
        """Send a request to a node, advance virtual time, and return the response."""
        outcome = self.send(node_id, request, version, port)
        self.until(lambda: bool(outcome))
        response, error = outcome[0]
        assert error is None, error
        return response

    def send(
        self, node_id: int, request: Message, version: int, port: int = CLIENT_PORT
    ) -> list[tuple[Any, NetworkError | None]]:
        """Send a request to a node; the outcome is added to the returned list."""
        outcome: list[tuple[Any, NetworkError | None]] = []
        channel = self._channel(node_id, port)
        channel.send(request, version, lambda *result: outcome.append(result), TIMEOUT_MS)
        return outcome

    def disconnect(self, node_id: int, port: int = CLIENT_PORT) -> None:
        """Close the client's connection to a node."""
        channel, _ = self._clients.pop((node_id, port))
        channel.close()

    def _channel(self, node_id: int, port: int) -> Channel:
        known = self._clients.get((node_id, port))
        if known is not None and not known[1]:
            return known[0]
        self._connections += 1
        runtime = self.world.host(f"client-{self._connections}").runtime
        wheel = TimingWheel(runtime.clock, runtime.timer)
        dependencies = ChannelDependencies(
            runtime.clock, runtime.timer, runtime.sockets, wheel, new_receive_buffer()
        )
        closed: list[NetworkError] = []
        channel = Channel(dependencies, "client", lambda _, error: closed.append(error))
        connected: list[NetworkError | None] = []
        channel.connect(f"node-{node_id}", port, TIMEOUT_MS, connected.append)
        self.until(lambda: bool(connected))
        assert connected == [None]
        self._clients[node_id, port] = channel, closed
        return channel


def three_nodes(seed: int = 1, **settings: str) -> SimulatedCluster:
    """Return three ready brokers that are also controllers."""
    return SimulatedCluster(dict.fromkeys((1, 2, 3), "broker,controller"), seed, **settings).start()
