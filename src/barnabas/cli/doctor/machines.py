"""Checks of machines that run several brokers or voters: if one dies, all on it die at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.advice import Advice
from barnabas.cli.common.printable import counted
from barnabas.cli.doctor.diagnosis import named_brokers
from barnabas.cli.partitions.planning import machines_of, sharing_machines
from barnabas.client.topic_partition import TopicPartition
from barnabas.server.configs.endpoints import shared_voter_machines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.client.admin.cluster import ClusterDescription, QuorumDescription
    from barnabas.client.admin.topics import TopicState
    from barnabas.client.connections.metadata_cache import NodeInfo, TopicInfo

_SHOWN = 5


def by_machine(nodes: Iterable[NodeInfo]) -> dict[str, list[NodeInfo]]:
    """Return the brokers of each machine, in the order of their ids."""
    nodes = sorted(nodes, key=lambda node: node.id)
    found: dict[str, list[NodeInfo]] = {}
    for broker, machine in machines_of(nodes).items():
        found.setdefault(machine, []).extend(node for node in nodes if node.id == broker)
    return found


def examine_replica_machines(
    cluster: ClusterDescription,
    topics: Mapping[str, TopicInfo] | Mapping[str, TopicState],
    diagnosis: Diagnosis,
) -> None:
    """Report partitions with replicas that share a machine, though another machine has none."""
    machines = machines_of((*cluster.brokers, *cluster.fenced))
    replicas = {
        TopicPartition(name, number): partition.replicas
        for name, topic in topics.items()
        for number, partition in topic.partitions.items()
    }
    sharing = sharing_machines(replicas, machines, [node.id for node in cluster.brokers])
    if not sharing:
        return
    more = f" and {len(sharing) - _SHOWN} more" if len(sharing) > _SHOWN else ""
    names = ", ".join(map(str, sharing[:_SHOWN])) + more
    diagnosis.note(
        f"{counted(len(sharing), 'partition')} with replicas that share a machine, though another "
        f"machine has none: {names}",
        f"{Advice.REBALANCE.text()} moves them apart",
    )


def examine_racks_of_machines(cluster: ClusterDescription, diagnosis: Diagnosis) -> None:
    """Report brokers without a rack that share a machine.

    Apache Kafka's controllers know racks only: they may place all replicas on one machine.
    """
    machines = by_machine((*cluster.brokers, *cluster.fenced))
    if len(machines) == 1:
        return
    for machine, nodes in machines.items():
        if len(nodes) > 1 and any(node.rack is None for node in nodes):
            diagnosis.note(
                f"{named_brokers([node.id for node in nodes])} share {machine}, and have no "
                "broker.rack: a controller of Apache Kafka may place all replicas of a partition "
                "there",
                f"while controllers of Apache Kafka run, set broker.rack={machine} for them",
            )


def examine_voter_machines(quorum: QuorumDescription | None, diagnosis: Diagnosis) -> None:
    """Report voters that share a machine, though the voters are on several machines."""
    hosts = {
        voter: endpoints[0].host
        for voter, endpoints in (quorum.endpoints if quorum is not None else {}).items()
        if endpoints
    }
    for what, remedy in shared_voter_machines(hosts):
        diagnosis.note(what, remedy)
