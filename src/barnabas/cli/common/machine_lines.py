"""The machines of a cluster with several brokers each, the processes on them, and their state.

A client knows the host of the listener that it uses. Brokers with the same host are on one machine.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.cli.common.printable import counted
from barnabas.cli.common.units import short_time
from barnabas.metadata.machines import ids_by_machine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.client.admin.cluster import ClusterDescription, QuorumDescription
    from barnabas.client.connections.metadata_cache import NodeInfo


def machines_of(brokers: Iterable[NodeInfo]) -> dict[int, str]:
    """Return the machine of each broker: its host at the listener that the client uses.

    The controller compares the hosts of all listeners. A client knows one of them. If that one is
    an address of all machines, for example of a router, the brokers seem to share one machine.
    """
    return {node.id: node.host.lower() for node in brokers}


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine with brokers, a controller, or both."""

    host: str
    # Ids in ascending order.
    brokers: tuple[int, ...]
    controllers: tuple[int, ...]
    # Brokers that do not serve, with the time since their last fetch (ms); None if it is unknown.
    down: Mapping[int, int | None]

    def line(self) -> str:
        """Return "machine host1: brokers 101, 102 · controller 1 · 2 of 2 brokers serve"."""
        parts = [
            f"{kind}{'' if len(ids) == 1 else 's'} {', '.join(map(str, ids))}"
            for kind, ids in (("broker", self.brokers), ("controller", self.controllers))
            if ids
        ]
        if self.brokers:
            serving = len(self.brokers) - len(self.down)
            verb = "serves" if serving == 1 else "serve"
            parts.append(f"{serving} of {counted(len(self.brokers), 'broker')} {verb}")
        parts += [f"broker {broker} is down{_since(ms)}" for broker, ms in self.down.items()]
        return f"machine {self.host}: {' · '.join(parts)}"

    def as_json(self) -> dict[str, Any]:
        """Return the facts ready for JSON; `since_ms` is the time of the last fetch."""
        now = time.time() * 1000
        return {
            "machine": self.host,
            "brokers": list(self.brokers),
            "controllers": list(self.controllers),
            "serving": [broker for broker in self.brokers if broker not in self.down],
            "down": [
                {"broker": broker, "since_ms": None if silent is None else round(now - silent)}
                for broker, silent in self.down.items()
            ],
        }


def shared_machines(
    cluster: ClusterDescription, quorum: QuorumDescription | None, down: Iterable[int] = ()
) -> list[Machine]:
    """Return the machines of a cluster in which some brokers share a machine.

    Args:
        cluster: The registered brokers; fenced ones do not serve.
        quorum: The metadata quorum; None if it is unknown.
        down: Further brokers that do not serve.

    Returns:
        An empty list if each broker has its own machine.
    """
    hosts = ids_by_machine(machines_of((*cluster.brokers, *cluster.fenced)))
    if all(len(ids) == 1 for ids in hosts.values()):
        return []
    controllers = ids_by_machine({} if quorum is None else voter_hosts(quorum))
    stopped = {node.id for node in cluster.fenced}.union(down)
    return [
        Machine(
            host,
            tuple(hosts.get(host, ())),
            tuple(controllers.get(host, ())),
            {node: silent_ms(node, quorum) for node in hosts.get(host, ()) if node in stopped},
        )
        for host in dict.fromkeys([*hosts, *controllers])
    ]


def fetch_time(node: int, found: QuorumDescription) -> int:
    """Return the time of a node's last fetch of the metadata log; -1 if it is unknown."""
    times = {each.node_id: each.last_fetch_timestamp for each in (*found.observers, *found.voters)}
    return times.get(node, -1)


def silent_ms(node: int, found: QuorumDescription | None) -> int | None:
    """Return the time since a node's last fetch of the metadata log, by the leader's clock.

    Returns:
        None if the time is unknown.
    """
    if found is None:
        return None
    if node == found.leader_id:
        return 0
    now, last = fetch_time(found.leader_id, found), fetch_time(node, found)
    return now - last if now >= 0 and last >= 0 else None


def _since(elapsed_ms: int | None) -> str:
    if elapsed_ms is None:
        return ""
    at = time.strftime("%H:%M:%S", time.localtime(time.time() - elapsed_ms / 1000))
    return f" since {at} ({short_time(elapsed_ms)})"


def voter_hosts(quorum: QuorumDescription) -> dict[int, str]:
    """Return the host of each voter whose endpoint is known."""
    return {
        voter.node_id: quorum.endpoints[voter.node_id][0].host.lower()
        for voter in quorum.voters
        if quorum.endpoints.get(voter.node_id)
    }
