"""Lines about machines that run several brokers."""

from __future__ import annotations

from barnabas.cli.common.machine_lines import machine_lines
from barnabas.client.admin.cluster import QuorumDescription, QuorumReplica, VoterEndpoint
from barnabas.client.connections.metadata_cache import NodeInfo


def quorum(**hosts: str) -> QuorumDescription:
    """Return a quorum with voters 1, 2, … on hosts."""
    ids = range(1, len(hosts) + 1)
    return QuorumDescription(
        1,
        1,
        0,
        tuple(QuorumReplica(each, 0, 0, 0) for each in ids),
        (),
        {
            each: (VoterEndpoint("CONTROLLER", host, 9093),)
            for each, host in zip(ids, hosts.values(), strict=True)
        },
    )


def test_each_machine_has_a_line_with_its_brokers_and_controllers() -> None:
    brokers = [NodeInfo(201, "HOST2", 9092), NodeInfo(102, "host1", 9094)]
    brokers += [NodeInfo(101, "host1", 9092), NodeInfo(202, "host2", 9094)]
    assert machine_lines(brokers, quorum(a="host1", b="host2", c="host3")) == [
        "node host1: brokers 101, 102 · controller 1",
        "node host2: brokers 201, 202 · controller 2",
        "node host3: controller 3",
    ]


def test_a_controller_on_an_unknown_machine_is_left_out() -> None:
    brokers = [NodeInfo(101, "host1", 9092), NodeInfo(102, "host1", 9093)]
    assert machine_lines(brokers, None) == ["node host1: brokers 101, 102"]


def test_brokers_on_machines_of_their_own_have_no_lines() -> None:
    brokers = [NodeInfo(1, "host1", 9092), NodeInfo(2, "host2", 9092)]
    assert machine_lines(brokers, quorum(a="host1")) == []
