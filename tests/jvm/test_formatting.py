"""`barnabas format` and `kafka-storage format` write equal directories, which both brokers open.

In a quorum of three, Kafka runs on a directory that Barnabas formatted, and Barnabas on one of each
kind. In a quorum of one, each broker runs on the other's directory. `kafka-storage info` prints the
same for directories of both.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.primitives import uuid_to_string
from barnabas.raft.log.snapshot import BOOTSTRAP_SNAPSHOT, read_snapshot
from barnabas.raft.voter_set import VoterHistory, VoterSet
from barnabas.runtime.disk import RealDisk
from barnabas.testing.cluster_process import NodeProcess
from jvm.barnabas_formatting import format_by_barnabas
from jvm.java import run_java
from jvm.joint_quorum import CLUSTER_ID, KAFKA_ID, JointQuorum
from jvm.kafka_node import KafkaNode
from selection import nightly_unless

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.conformance

FORMATTED_BY_KAFKA = 1


def initial_controllers(quorum: JointQuorum) -> str:
    return ",".join(
        f"{node_id}@{node.address}:{uuid_to_string(bytes([9] * 15 + [node_id]))}"
        for node_id, node in quorum.nodes.items()
    )


def format_by_kafka(node: NodeProcess, *words: str) -> None:
    """Format by Kafka's tool, which reads only the properties file of the node."""
    node.directory.mkdir(parents=True, exist_ok=True)
    NodeProcess.prepare(node)
    kafka = KafkaNode(node.options, node.settings)
    kafka.settings["log.dirs"] = node.settings["log.dirs"]
    kafka.format_options = words
    kafka.format()


def content(node: NodeProcess) -> tuple[dict[str, str], int, VoterSet, dict[str, int]]:
    """Return meta.properties, and the contents of the checkpoint."""
    lines = (node.data_directory / "meta.properties").read_text().splitlines()
    meta = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
    history = VoterHistory(VoterSet())
    directory = str(node.data_directory / "__cluster_metadata-0")
    snapshot = read_snapshot(RealDisk(), directory, BOOTSTRAP_SNAPSHOT, history)
    features = {record.name: record.feature_level for record, _ in snapshot.records}
    return meta, history.kraft_version, history.last, features


def test_voters_formatted_by_either_broker_form_one_quorum(tmp_path: Path) -> None:
    quorum = JointQuorum(tmp_path, dynamic=True)
    words = ("--initial-controllers", initial_controllers(quorum))
    for node_id, node in quorum.nodes.items():
        by = format_by_kafka if node_id == FORMATTED_BY_KAFKA else format_by_barnabas
        by(node, *words)
    contents = [content(node) for node in quorum.nodes.values()]
    assert all(each[1:] == contents[0][1:] for each in contents)
    assert [each[0]["node.id"] for each in contents] == ["1", "2", "3"]
    assert all(each[0].keys() == contents[0][0].keys() for each in contents)
    assert contents[0][2].ids == (1, 2, KAFKA_ID)
    try:
        for node in quorum.nodes.values():
            node.launch()
        quorum.await_voters({1, 2, KAFKA_ID})
        quorum.await_equal_logs()
    finally:
        for node in quorum.nodes.values():
            node.close()


@pytest.mark.parametrize(
    "option",
    nightly_unless("--standalone".__eq__, ["--standalone", "--no-initial-controllers"]),
)
def test_a_checkpoint_has_the_same_content_from_either_broker(tmp_path: Path, option: str) -> None:
    ours, theirs = (JointQuorum(tmp_path / name, dynamic=True).nodes[2] for name in ("us", "kafka"))
    format_by_barnabas(ours, option)
    format_by_kafka(theirs, option)
    (_, level, voters, features), (_, kafkas_level, kafkas_voters, kafkas_features) = (
        content(ours),
        content(theirs),
    )
    assert (level, features) == (kafkas_level, kafkas_features)
    assert voters.ids == kafkas_voters.ids
    assert [(v.min_version, v.max_version) for v in voters] == [
        (v.min_version, v.max_version) for v in kafkas_voters
    ]


@pytest.mark.parametrize("formatted_by", ["us", "Kafka"])
def test_a_standalone_voter_runs_on_a_directory_formatted_by_the_other(
    tmp_path: Path, formatted_by: str
) -> None:
    quorum = JointQuorum(tmp_path, dynamic=True)
    by_us = formatted_by == "us"
    node_id = KAFKA_ID if by_us else FORMATTED_BY_KAFKA
    node = quorum.nodes[node_id]
    (format_by_barnabas if by_us else format_by_kafka)(node, "--standalone")
    directory_id = quorum.directory_id(node_id)
    try:
        node.start()
        quorum.await_voters({node_id})
        assert quorum.directory_id(node_id) == directory_id
    finally:
        node.close()


def info(node: NodeProcess) -> tuple[int, str]:
    """Return status and output of `kafka-storage info`, without names and ids of directories."""
    command = ["kafka.tools.StorageTool", "info", "-c", str(node.properties_file)]
    done = run_java("kafka", *command)
    contents = done.stdout.replace(str(node.directory), "DIRECTORY")
    return done.returncode, re.sub(r"directory\.id=[\w-]{22}", "directory.id=ID", contents)


def test_kafka_storage_info_is_equal_for_directories_of_both(tmp_path: Path) -> None:
    contents = []
    for name, format_by in (("us", format_by_barnabas), ("Kafka", format_by_kafka)):
        node = JointQuorum(tmp_path / name, dynamic=True).nodes[2]
        node.settings["log.dirs"] = ",".join(
            str(node.directory / name) for name in ("data", "more")
        )
        format_by(node, "--standalone")
        found = [info(node)]
        (node.directory / "more" / "meta.properties").unlink()
        contents.append([*found, info(node)])
    ours, kafkas = contents
    assert ours == kafkas
    assert [status for status, _ in ours] == [0, 1]
    assert f"cluster.id={CLUSTER_ID}, directory.id=ID, node.id=2, version=1" in ours[0][1]
    assert "DIRECTORY/more is not formatted" in ours[1][1]
