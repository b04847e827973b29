"""A quorum of controllers of Apache Kafka and of Barnabas."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from barnabas.protocol.codec import decode
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import describe_quorum
from barnabas.protocol.messages.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    Listener,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from barnabas.protocol.primitives import uuid_from_string
from barnabas.protocol.records.metadata_log import LeaderChangeMessage
from barnabas.record.batch import ControlType, parse_control_key
from barnabas.record.reader import read_batches
from barnabas.testing.cluster_process import CONTROLLER_LISTENER, NodeOptions, NodeProcess
from barnabas.testing.free_ports import HOST, free_ports
from conformance.raw_client import RawClient
from jvm.kafka_node import KafkaNode
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.protocol.schema import Message

CLUSTER_ID = "QdpNxGgtTRWZIrBfgrTZkg"

METADATA = "__cluster_metadata"

FIRST_SEGMENT = "00000000000000000000.log"

# The node of Kafka. It starts last, so that Barnabas has written the first metadata records.
KAFKA_ID = 3


class Standalone(KafkaNode):
    """The first voter of a dynamic quorum."""

    format_options = ("--standalone",)


class JointQuorum:
    """Three controllers, of which the third is Apache Kafka."""

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
                kind = Standalone if dynamic else KafkaNode
            self.nodes[node_id] = kind(options, settings)

    def metadata(self, node_id: int) -> Path:
        return self.nodes[node_id].data_directory / f"{METADATA}-0"

    def leader(self, node_id: int) -> tuple[int, int]:
        """Return (leader, epoch) of the node's quorum-state; (-1, -1) without this file."""
        try:
            state = json.loads((self.metadata(node_id) / "quorum-state").read_text())
        except (OSError, ValueError):
            return -1, -1
        return state["leaderId"], state["leaderEpoch"]

    def log(self, node_id: int) -> bytes:
        """Return the metadata log of a node; empty if it does not exist."""
        try:
            return (self.metadata(node_id) / FIRST_SEGMENT).read_bytes()
        except FileNotFoundError:
            return b""

    def leaders(self, node_id: int) -> dict[int, int]:
        """Return the leader of each epoch according to the log of a node."""
        found = {}
        for header, records in read_batches(self.log(node_id)):
            for record in records if header.is_control else ():
                if parse_control_key(record.key) == ControlType.LEADER_CHANGE:
                    change = decode(LeaderChangeMessage, 0, record.value)
                    found[header.partition_leader_epoch] = change.leader_id
        return found

    def running(self) -> list[int]:
        return [node_id for node_id, node in self.nodes.items() if node.is_running]

    def agreed_leader(self, later_than: int = 0) -> tuple[int, int] | None:
        """Return leader and epoch of a later epoch if all running nodes agree, else None."""
        (reported, *others) = {self.leader(each) for each in self.running()}
        leader, epoch = reported
        return reported if not others and leader in self.running() and epoch > later_than else None

    def await_leader(self, later_than: int = 0) -> tuple[int, int]:
        """Wait for a leader of a later epoch. A node that pauses may lose the leadership again."""
        return eventually(lambda: self.agreed_leader(later_than), "no leader")

    def await_voters(self, node_ids: set[int]) -> None:
        """Wait until one of these nodes leads, reports them as voters, and has committed."""

        def are_voters() -> bool:
            leader, _ = self.agreed_leader() or (-1, -1)
            return leader in node_ids and self.voters(leader) == node_ids

        eventually(are_voters, f"{node_ids} are not the voters")

    def await_each_leads(self, node_ids: tuple[int, ...]) -> None:
        """Wait until each node is a separate quorum, and has committed."""
        eventually(lambda: all(self.voters(each) == {each} for each in node_ids))

    def await_equal_logs(self, longer_than: int = 0) -> None:
        """Wait until all running nodes have equal logs that are longer than a number of bytes."""

        def equal() -> bool:
            logs = [self.log(each) for each in self.running()]
            return len(set(logs)) == 1 and len(logs[0]) > longer_than

        eventually(equal, "the logs differ")

    def exchange(self, node_id: int, request: Message, version: int) -> Message:
        client = RawClient(self.nodes[node_id].address)
        try:
            return client.ask(request, version)
        finally:
            client.close()

    def voters(self, node_id: int) -> set[int]:
        """Return the voters that a leader reports; empty for a follower or before a commit."""
        partition = describe_quorum.PartitionDataRequest(partition_index=0)
        topic = describe_quorum.TopicDataRequest(topic_name=METADATA, partitions=[partition])
        try:
            response = self.exchange(
                node_id, describe_quorum.DescribeQuorumRequest(topics=[topic]), 2
            )
        except ConnectionRefusedError:
            # Kafka votes before it listens.
            return set()
        assert isinstance(response, describe_quorum.DescribeQuorumResponse)
        result = response.topics[0].partitions[0]
        return {each.replica_id for each in result.current_voters if result.high_watermark > 0}

    def directory_id(self, node_id: int) -> bytes:
        lines = (self.nodes[node_id].data_directory / "meta.properties").read_text().splitlines()
        (found,) = (line for line in lines if line.startswith("directory.id="))
        return uuid_from_string(found.partition("=")[2].replace("\\", ""))

    def add(self, node_id: int) -> None:
        """Add a voter, with retries until it has caught up."""
        host, _, port = self.nodes[node_id].address.rpartition(":")
        listener = Listener(name=CONTROLLER_LISTENER, host=host, port=int(port))
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            timeout_ms=5_000,
            voter_id=node_id,
            voter_directory_id=self.directory_id(node_id),
            listeners=[listener],
        )
        self._send_to_leader(request, 1, ErrorCode.DUPLICATE_VOTER)

    def remove(self, node_id: int) -> None:
        request = RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            voter_id=node_id,
            voter_directory_id=self.directory_id(node_id),
        )
        self._send_to_leader(request, 0, ErrorCode.VOTER_NOT_FOUND)

    def _send_to_leader(self, request: Message, version: int, if_done_before: ErrorCode) -> None:
        """Send a request to the leader, with retries after retriable errors and elections."""

        def is_done() -> bool:
            agreed = self.agreed_leader()
            if agreed is None:
                return False
            response = self.exchange(agreed[0], request, version)
            assert isinstance(
                response,
                AddRaftVoterResponse | RemoveRaftVoterResponse,
            )
            code = ErrorCode(response.error_code)
            assert code.retriable or code in (ErrorCode.NONE, if_done_before), response
            return not code.retriable

        eventually(is_done, f"{request} is not done")
