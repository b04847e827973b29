"""One metadata quorum of our controllers and Apache Kafka's: each votes for and follows the other.

The logs must be the same byte by byte, whoever wrote them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import add_raft_voter, describe_quorum, remove_raft_voter
from barnabas.protocol.primitives import uuid_from_string
from barnabas.testing.free_ports import HOST, free_ports
from barnabas.testing.node_process import CONTROLLER_LISTENER, NodeOptions, NodeProcess
from conformance.raw_client import RawClient
from jvm.kafka_node import KafkaNode
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from barnabas.protocol.schema import Message

pytestmark = pytest.mark.conformance

CLUSTER_ID = "QdpNxGgtTRWZIrBfgrTZkg"
METADATA = "__cluster_metadata"
FIRST_SEGMENT = "00000000000000000000.log"
# Kafka's third; it comes last, so that ours have written how the cluster begins.
KAFKA_ID = 3


class PlainKafka(KafkaNode):
    """Without the features that controllers of ours do not have."""

    format_options = tuple(
        f"--feature={name}.version=0" for name in ("transaction", "group", "share", "streams")
    )


class Standalone(PlainKafka):
    """The first voter of a dynamic quorum."""

    format_options = ("--standalone", *PlainKafka.format_options)


class JointQuorum:
    """Three controllers, the third of them Apache Kafka's."""

    def __init__(self, directory: Path, *, dynamic: bool) -> None:
        ports = dict(zip((1, 2, KAFKA_ID), free_ports(3), strict=True))
        self.nodes: dict[int, NodeProcess] = {}
        for node_id, port in ports.items():
            known = ",".join(
                f"{HOST}:{each}" if dynamic else f"{number}@{HOST}:{each}"
                for number, each in ports.items()
            )
            listeners = {CONTROLLER_LISTENER: (HOST, port)}
            options = NodeOptions(
                node_id, ("controller",), listeners, CLUSTER_ID, directory / f"node-{node_id}"
            )
            settings = {
                "process.roles": "controller",
                "node.id": str(node_id),
                "controller.quorum." + ("bootstrap.servers" if dynamic else "voters"): known,
                "listeners": f"CONTROLLER://{HOST}:{port}",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            }
            kind = NodeProcess
            if node_id == KAFKA_ID:
                kind = Standalone if dynamic else PlainKafka
            self.nodes[node_id] = kind(options, settings)

    def metadata(self, node_id: int) -> Path:
        return self.nodes[node_id].data_directory / f"{METADATA}-0"

    def leader(self, node_id: int) -> tuple[int, int]:
        """(leader, epoch) as the node remembers it; (-1, -1) if it remembers nothing."""
        try:
            state = json.loads((self.metadata(node_id) / "quorum-state").read_text())
        except (OSError, ValueError):
            return -1, -1
        return state["leaderId"], state["leaderEpoch"]

    def log(self, node_id: int) -> bytes:
        return (self.metadata(node_id) / FIRST_SEGMENT).read_bytes()

    def running(self) -> list[int]:
        return [node_id for node_id, node in self.nodes.items() if node.is_running]

    def agreed_leader(self, later_than: int = 0) -> int | None:
        """Who leads a later epoch than that, when all that run say the same."""
        (said, *others) = {self.leader(each) for each in self.running()}
        leader, epoch = said
        return leader if not others and leader in self.running() and epoch > later_than else None

    def await_leader(self, later_than: int = 0) -> int:
        eventually(lambda: self.agreed_leader(later_than) is not None)
        leader = self.agreed_leader(later_than)
        assert leader is not None
        return leader

    def await_each_leads(self, node_ids: tuple[int, ...]) -> None:
        """Each is a quorum of its own, and has committed something."""
        eventually(lambda: all(self.voters(each) == {each} for each in node_ids))

    def await_equal_logs(self, longer_than: int = 0) -> None:
        """All that run have the same log, longer than so many bytes."""

        def equal() -> bool:
            logs = [self.log(each) for each in self.running()]
            return len(set(logs)) == 1 and len(logs[0]) > longer_than

        eventually(equal)

    def ask(self, node_id: int, request: Message, version: int) -> Message:
        client = RawClient(self.nodes[node_id].address)
        try:
            return client.ask(request, version)
        finally:
            client.close()

    def voters(self, node_id: int) -> set[int]:
        """What the leader says; empty if the node does not lead."""
        partition = describe_quorum.PartitionDataRequest(partition_index=0)
        topic = describe_quorum.TopicDataRequest(topic_name=METADATA, partitions=[partition])
        response = self.ask(node_id, describe_quorum.DescribeQuorumRequest(topics=[topic]), 2)
        assert isinstance(response, describe_quorum.DescribeQuorumResponse)
        return {each.replica_id for each in response.topics[0].partitions[0].current_voters}

    def directory_id(self, node_id: int) -> bytes:
        lines = (self.nodes[node_id].data_directory / "meta.properties").read_text().splitlines()
        (found,) = (line for line in lines if line.startswith("directory.id="))
        return uuid_from_string(found.partition("=")[2].replace("\\", ""))

    def add(self, leader: int, node_id: int) -> None:
        """Make a node a voter; it may have to catch up first."""
        host, _, port = self.nodes[node_id].address.rpartition(":")
        listener = add_raft_voter.Listener(name=CONTROLLER_LISTENER, host=host, port=int(port))
        request = add_raft_voter.AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            timeout_ms=5_000,
            voter_id=node_id,
            voter_directory_id=self.directory_id(node_id),
            listeners=[listener],
        )

        def added() -> bool:
            response = self.ask(leader, request, 1)
            assert isinstance(response, add_raft_voter.AddRaftVoterResponse)
            late = response.error_code == ErrorCode.REQUEST_TIMED_OUT
            assert late or response.error_code in (0, ErrorCode.DUPLICATE_VOTER), response
            return not late

        eventually(added)

    def remove(self, leader: int, node_id: int) -> None:
        request = remove_raft_voter.RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            voter_id=node_id,
            voter_directory_id=self.directory_id(node_id),
        )
        response = self.ask(leader, request, 0)
        assert isinstance(response, remove_raft_voter.RemoveRaftVoterResponse)
        assert response.error_code == ErrorCode.NONE, response


@pytest.fixture
def joint(
    request: pytest.FixtureRequest, kafka_jars: Callable[[str], str], tmp_path: Path
) -> Iterator[JointQuorum]:
    quorum = JointQuorum(tmp_path, dynamic=request.param == "dynamic")
    yield quorum
    for node in quorum.nodes.values():
        node.close()


@pytest.mark.parametrize("joint", ["static"], indirect=True)
def test_each_side_votes_for_the_other_and_follows_it(joint: JointQuorum) -> None:
    joint.nodes[KAFKA_ID].launch()
    for node_id in (1, 2):
        joint.nodes[node_id].start()
    first = joint.await_leader()
    joint.nodes[KAFKA_ID].await_ready()
    joint.await_equal_logs()
    first = joint.await_leader()
    # Apache Kafka's vote makes the other of ours the leader, or ours makes it that.
    _, epoch = joint.leader(first)
    joint.nodes[first].kill()
    second = joint.await_leader(epoch)
    _, epoch = joint.leader(second)
    if second == KAFKA_ID:
        joint.nodes[first].start()
        joint.await_equal_logs()
        return
    joint.await_equal_logs()
    # With a log that is behind, the first of ours cannot win: it votes for Apache Kafka.
    joint.nodes[second].kill()
    joint.nodes[first].start()
    assert joint.await_leader(epoch) == KAFKA_ID
    joint.nodes[second].start()
    joint.await_equal_logs(len(joint.log(KAFKA_ID)) - 1)
    assert joint.await_leader(epoch) == KAFKA_ID


@pytest.mark.parametrize("joint", ["dynamic"], indirect=True)
def test_each_side_takes_the_other_in_as_a_voter(joint: JointQuorum) -> None:
    joint.nodes[KAFKA_ID].launch()
    for node_id in (1, 2):
        joint.nodes[node_id].start()
    joint.nodes[KAFKA_ID].await_ready()
    assert joint.await_leader() == KAFKA_ID
    for node_id in (1, 2):
        joint.add(KAFKA_ID, node_id)
    assert joint.voters(KAFKA_ID) == {1, 2, KAFKA_ID}
    _, epoch = joint.leader(KAFKA_ID)
    joint.remove(KAFKA_ID, KAFKA_ID)
    leader = joint.await_leader(epoch)
    assert leader in (1, 2)
    assert joint.voters(leader) == {1, 2}
    joint.add(leader, KAFKA_ID)
    eventually(lambda: joint.voters(leader) == {1, 2, KAFKA_ID})
    joint.await_equal_logs()
