"""The machines of a cluster with several brokers each, and the processes on them, as lines of text.

A client knows the host of the listener that it uses. Brokers with the same host are on one machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.machines import ids_by_machine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.client.admin.cluster import QuorumDescription
    from barnabas.client.connections.metadata_cache import NodeInfo


def machines_of(brokers: Iterable[NodeInfo]) -> dict[int, str]:
    """Return the machine of each broker: its host at the listener that the client uses.

    The controller compares the hosts of all listeners. A client knows one of them. If that one is
    an address of all machines, for example of a router, the brokers seem to share one machine.
    """
    return {node.id: node.host.lower() for node in brokers}


def machine_lines(brokers: Iterable[NodeInfo], quorum: QuorumDescription | None) -> list[str]:
    """Return a line for each machine, for example "node host1: brokers 101, 102 · controller 1".

    Args:
        brokers: all registered brokers.
        quorum: the metadata quorum; None if it is unknown.

    Returns:
        No lines if no two brokers share a host.
    """
    hosts = ids_by_machine(machines_of(brokers))
    if all(len(ids) == 1 for ids in hosts.values()):
        return []
    controllers = ids_by_machine({} if quorum is None else voter_hosts(quorum))
    lines = []
    for host in dict.fromkeys([*hosts, *controllers]):
        parts = [
            f"{kind}{'' if len(ids) == 1 else 's'} {', '.join(map(str, ids))}"
            for kind, ids in (("broker", hosts.get(host)), ("controller", controllers.get(host)))
            if ids
        ]
        lines.append(f"node {host}: {' · '.join(parts)}")
    return lines


def voter_hosts(quorum: QuorumDescription) -> dict[int, str]:
    """Return the host of each voter whose endpoint is known."""
    return {
        voter.node_id: quorum.endpoints[voter.node_id][0].host.lower()
        for voter in quorum.voters
        if quorum.endpoints.get(voter.node_id)
    }
