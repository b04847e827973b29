"""A cluster of processes whose links a test can cut, stall and delay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .admin_requests import AdminEndpoint, AdminRequests
from .broker_process import BrokerDiedError
from .cluster_process import CLIENT_LISTENER, ClusterProcess
from .relays import CLIENTS, Relays

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .cluster_process import NodeProcess

__all__ = ["CLIENTS", "RelayedCluster"]


class RelayedCluster(ClusterProcess):
    """A `ClusterProcess` with a relay in front of each listener.

    A link is a pair of node ids in either order: `(1, 2)`. `CLIENTS` in place of an id stands for
    all clients: `(CLIENTS, 2)`. A thread of this process moves the bytes.

    Args:
        brokers: the number of brokers; their ids are 1, 2, ...
        controllers: the number of separate controllers, with ids from 101; 0 makes each broker a
            controller too.
        directory: parent of the nodes' directories; a temporary directory when None.
        settings: broker keys of each node.
    """

    def __init__(
        self,
        brokers: int = 3,
        controllers: int = 0,
        directory: str | Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.relays = Relays(relays_clients=True)
        try:
            super().__init__(brokers, controllers, directory, settings, self.relays)
        except BaseException:
            self.relays.close()
            raise
        self.relays.pids = self._pids

    def cut(self, link: tuple[int, int]) -> None:
        """Close all connections of a link, and every new one, until `heal`."""
        self.relays.cut(*self._checked(link))

    def stall(self, link: tuple[int, int]) -> None:
        """Stop all bytes of a link until `heal`; connections stay open without an error."""
        self.relays.stall(*self._checked(link))

    def slow(self, link: tuple[int, int], delay_ms: float) -> None:
        """Delay all bytes of a link by `delay_ms` in each direction, until `heal`.

        Raises:
            ValueError: `delay_ms` is negative.
        """
        if delay_ms < 0:
            raise ValueError(f"delay_ms is {delay_ms}, which is less than 0")
        self.relays.delay(*self._checked(link), delay_ms)

    def isolate(self, node_id: int) -> None:
        """Cut the links between a node and all other nodes; clients still reach it."""
        for other in self.nodes:
            if other != node_id:
                self.cut((node_id, other))

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; its partitions have leaders when this returns.

        Args:
            name: the topic's name.
            partitions: the number of partitions.
            replication_factor: -1 puts a replica on each broker, up to three.
            configs: keys of the topic, such as `retention.ms`.

        Raises:
            AdminRequestError: the topic exists already, or a broker refused it.
        """
        factor = min(3, len(self.brokers)) if replication_factor < 0 else replication_factor
        with AdminRequests(self.admin_endpoints()[0]) as requests:
            requests.create_topics([name], partitions, factor, configs)

    def admin_endpoints(self) -> list[AdminEndpoint]:
        """Return the listeners of the running brokers that permit to create topics."""
        return [
            AdminEndpoint(*node.options.listeners[CLIENT_LISTENER])
            for node in self.running_brokers()
        ]

    def running_brokers(self) -> list[NodeProcess]:
        """Return the brokers that run and are not paused."""
        running = [node for node in self.brokers if node.is_running and not node.is_paused]
        assert running, "no broker is running"
        return running

    def heal(self) -> None:
        """Remove the faults of all links; held bytes pass now."""
        self.relays.heal()

    def restore(self) -> None:
        """Undo all faults: heal the links, resume paused nodes, start nodes that have ended.

        Raises:
            BrokerDiedError: a node had ended by itself; it runs again.
            BrokerStartError: a node could not be started.
        """
        self.heal()
        died = [node for node in self.nodes.values() if node.has_died]
        logs = "".join(f"\n--- node {node.node_id}\n{node.log()}" for node in died)
        ended = [node for node in self.nodes.values() if not node.is_running]
        for node in self.nodes.values():
            node.resume()
        for node in ended:
            node.launch()
        for node in ended:
            node.await_ready()
        if died:
            raise BrokerDiedError(f"nodes ended by themselves{logs}")

    def close(self) -> None:
        """Kill all nodes, stop the relays, and remove the directory if it is temporary."""
        super().close()
        self.relays.close()

    def _checked(self, link: tuple[int, int]) -> tuple[int, int]:
        """Check a link and return it.

        Raises:
            ValueError: an end of the link is not a node, or both ends are the same.
        """
        one, other = link
        known = {CLIENTS, *self.nodes}
        if one == other or not {one, other} <= known:
            ids = ", ".join(map(str, self.nodes))
            raise ValueError(
                f"{link} is not a link between two different ends: CLIENTS or the nodes {ids}"
            )
        return one, other

    def _pids(self) -> dict[int, int]:
        return {number: node.pid for number, node in self.nodes.items() if node.is_running}
