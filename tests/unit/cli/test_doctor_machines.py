"""`barnabas doctor` and `migrate check` for machines with several brokers or voters."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli.doctor.diagnosis import Diagnosis
from barnabas.cli.doctor.directory import examine_properties
from barnabas.cli.doctor.machines import (
    examine_racks_of_machines,
    examine_replica_machines,
    examine_voter_machines,
)
from barnabas.client.admin.cluster import (
    ClusterDescription,
    QuorumDescription,
    QuorumReplica,
    VoterEndpoint,
)
from barnabas.client.connections.metadata_cache import NodeInfo, PartitionInfo, TopicInfo
from barnabas.server.configs.configuration import read_configuration
from barnabas.server.configs.endpoints import shared_voter_machines


def cluster(*hosts: str, rack: str | None = None) -> ClusterDescription:
    """Return a cluster with a broker on each host, with the ids 0, 1, and so on."""
    nodes = tuple(NodeInfo(number, host, 9092, rack) for number, host in enumerate(hosts))
    return ClusterDescription("c", 0, nodes, ())


def notes_about(replicas: tuple[int, ...], *hosts: str) -> list[str]:
    diagnosis = Diagnosis()
    partition = PartitionInfo(0, replicas[0], 1, replicas, replicas)
    topics = {"t": TopicInfo("t", bytes(16), False, {0: partition})}
    examine_replica_machines(cluster(*hosts), topics, diagnosis)
    return [each.what for each in diagnosis.findings]


def test_replicas_on_one_machine_are_reported_while_another_machine_has_none() -> None:
    (note,) = notes_about((0, 1), "host1", "HOST1", "host2")
    assert note.endswith("though another machine has none: t-0")
    assert notes_about((0, 2), "host1", "host1", "host2") == []
    assert notes_about((0, 1, 2), "host1", "host1", "host2") == []
    assert notes_about((0, 1), "host1", "host1", "host1") == []


def test_brokers_of_a_machine_without_a_rack_are_reported() -> None:
    diagnosis = Diagnosis()
    examine_racks_of_machines(cluster("host1", "host1", "host2"), diagnosis)
    (found,) = diagnosis.findings
    assert found.what.startswith("brokers 0, 1 share host1, and have no broker.rack")
    assert "set broker.rack=host1" in found.remedy
    fine = Diagnosis()
    examine_racks_of_machines(cluster("host1", "host1", "host2", rack="r"), fine)
    examine_racks_of_machines(cluster("host1", "host1"), fine)
    assert fine.findings == []


@pytest.mark.parametrize(
    ("hosts", "shared"),
    [
        (["host1", "host2", "host3"], 0),
        (["host1", "host1", "host1"], 0),
        (["host1", "host1", "host2"], 1),
    ],
)
def test_voters_that_share_a_machine_are_reported(hosts: list[str], shared: int) -> None:
    assert len(shared_voter_machines(dict(enumerate(hosts)))) == shared
    diagnosis = Diagnosis()
    voters = tuple(QuorumReplica(voter, 0, 0, 0) for voter in range(len(hosts)))
    endpoints = {
        voter: (VoterEndpoint("CONTROLLER", host, 9093),) for voter, host in enumerate(hosts)
    }
    examine_voter_machines(QuorumDescription(0, 1, 1, voters, (), endpoints), diagnosis)
    assert len(diagnosis.findings) == shared


def test_a_node_warns_at_its_start_that_voters_share_a_machine(
    caplog: pytest.LogCaptureFixture,
) -> None:
    read_configuration(PROPERTIES)
    assert "voters 1, 2 of the metadata quorum share host1" in caplog.text


PROPERTIES = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.quorum.voters": "1@host1:9093,2@host1:9094,3@host2:9093",
    "listeners": "CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
}


def test_the_voters_of_a_file_that_share_a_machine_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    lines = [f"{key}={value}\n" for key, value in PROPERTIES.items()]
    file.write_text("".join(lines) + f"log.dirs={tmp_path}\n")
    diagnosis = Diagnosis()
    examine_properties(str(file), diagnosis)
    assert any("voters 1, 2 of the metadata quorum" in each.what for each in diagnosis.findings)
