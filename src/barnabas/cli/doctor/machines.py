"""Checks of machines that run several brokers or voters: if one dies, all on it die at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.advice import Advice
from barnabas.cli.common.machine_lines import machines_of, shared_machines, voter_hosts
from barnabas.cli.common.named_brokers import named_brokers
from barnabas.cli.common.printable import counted, some
from barnabas.cli.partitions.planning import sharing_machines
from barnabas.client.topic_partition import TopicPartition
from barnabas.metadata.machines import ids_by_machine
from barnabas.server.configs.endpoints import shared_voter_machines

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.client.admin.cluster import ClusterDescription, QuorumDescription
    from barnabas.client.admin.topics import TopicState
    from barnabas.client.connections.metadata_cache import TopicInfo


def examine_machines(
    cluster: ClusterDescription,
    quorum: QuorumDescription | None,
    down: Collection[int],
    diagnosis: Diagnosis,
) -> None:
    """Report each machine with its brokers, if some brokers share a machine.

    Args:
        cluster: The brokers in the response of one of them.
        quorum: The metadata quorum; None if it is unknown.
        down: Ids of brokers that do not serve.
    """
    diagnosis.machines = shared_machines(cluster, quorum, down)
    for machine in diagnosis.machines:
        if machine.down:
            diagnosis.note(machine.line())
        else:
            diagnosis.ok(machine.line())


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
    diagnosis.note(
        f"{counted(len(sharing), 'partition')} with replicas that share a machine, though another "
        f"machine has none: {some(sharing)}",
        f"{Advice.REBALANCE.text()} moves them apart",
    )


def examine_racks_of_machines(cluster: ClusterDescription, diagnosis: Diagnosis) -> None:
    """Report brokers without a rack that share a machine.

    Apache Kafka's controllers know racks only: they may place all replicas on one machine.
    """
    nodes = (*cluster.brokers, *cluster.fenced)
    without_rack = {node.id for node in nodes if node.rack is None}
    machines = ids_by_machine(machines_of(nodes))
    if len(machines) == 1:
        return
    for machine, ids in machines.items():
        if len(ids) > 1 and not without_rack.isdisjoint(ids):
            diagnosis.note(
                f"{named_brokers(ids)} share {machine}, and have no "
                "broker.rack: a controller of Apache Kafka may place all replicas of a partition "
                "there",
                f"while controllers of Apache Kafka run, set broker.rack={machine} for them",
            )


def examine_voter_machines(quorum: QuorumDescription | None, diagnosis: Diagnosis) -> None:
    """Report voters that share a machine, though the voters are on several machines."""
    hosts = {} if quorum is None else voter_hosts(quorum)
    for what, remedy in shared_voter_machines(hosts):
        diagnosis.note(what, remedy)
