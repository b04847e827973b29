"""The state of a cluster of processes, from requests to its nodes."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from barnabas.protocol.codec import decode_response, encode_request
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    PartitionDataRequest,
    TopicDataRequest,
)
from barnabas.protocol.messages.metadata import (
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from barnabas.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.protocol.schema import Message
from barnabas.testing.cluster_process import ClusterProcess
from waiting import PATIENCE_S

# Timeout of one request. Each request to a paused node takes this long.
ASK_TIMEOUT_S = 2.0
ORDER_TIMEOUT_S = 30.0
POLL_S = 0.02
T = TypeVar("T")
# Errors after which an administrative request is retried.
IS_LATE = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)


class NoAnswerError(Exception):
    """No node responded with the requested state."""


@dataclass(frozen=True)
class PartitionView:
    """A partition, as described by the node with the newest leader epoch."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    # Eligible leader replicas (KIP-966).
    elr: tuple[int, ...]


class ClusterView:
    """Reads the state of a cluster; every call sends new requests."""

    def __init__(self, cluster: ClusterProcess, context: ssl.SSLContext | None = None) -> None:
        """Store the cluster. With a context, its listeners for clients have TLS."""
        self._cluster = cluster
        self._context = context

    def answering(self) -> list[int]:
        """Return the brokers that run and are not paused."""
        return [n.node_id for n in self._cluster.brokers if n.is_running and not n.is_paused]

    def partitions(self, topic: str) -> dict[int, PartitionView]:
        """Return the partitions of a topic.

        Nodes may have old metadata. For each partition, the response with the newest leader epoch
        counts. Among equal epochs, the response of the leader counts, which knows changes first.
        """
        best: dict[int, tuple[tuple[int, bool], PartitionView]] = {}
        asked = 0
        for node in self.answering():
            request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)])
            try:
                answer = self.ask(node, request, 0)
            except OSError:
                continue
            asked += 1
            for each in answer.topics[0].partitions:
                view = PartitionView(
                    each.leader_id,
                    each.leader_epoch,
                    tuple(each.replica_nodes),
                    tuple(sorted(each.isr_nodes)),
                    tuple(sorted(each.eligible_leader_replicas or ())),
                )
                rank = (each.leader_epoch, node == each.leader_id)
                if each.partition_index not in best or best[each.partition_index][0] < rank:
                    best[each.partition_index] = (rank, view)
        if not asked:
            raise NoAnswerError(f"no broker describes {topic}")
        return {index: view for index, (_, view) in sorted(best.items())}

    def partition(self, topic: str, index: int = 0) -> PartitionView:
        """Return one partition of a topic.

        Raises:
            NoAnswerError: no broker knows it.
        """
        found = self.partitions(topic).get(index)
        if found is None:
            raise NoAnswerError(f"no broker knows {topic}-{index}")
        return found

    def controller(self) -> tuple[int, int]:
        """Return id and epoch of the newest active controller that a broker knows."""
        partition = PartitionDataRequest(partition_index=0)
        topic = TopicDataRequest(topic_name="__cluster_metadata", partitions=[partition])
        request = DescribeQuorumRequest(topics=[topic])
        found: list[tuple[int, int]] = []
        for node in self.answering():
            try:
                answer = self.ask(node, request, 1)
            except OSError:
                continue
            if answer.error_code == ErrorCode.NONE and answer.topics:
                told = answer.topics[0].partitions[0]
                if told.error_code == ErrorCode.NONE and told.leader_id >= 0:
                    found.append((told.leader_epoch, told.leader_id))
        if not found:
            raise NoAnswerError("no broker knows the controller")
        epoch, leader = max(found)
        return leader, epoch

    def coordinator(self, group: str) -> int:
        """Return the coordinator of a group."""
        for node in self.answering():
            try:
                answer = self.ask(node, FindCoordinatorRequest(coordinator_keys=[group]), 4)
            except OSError:
                continue
            told = answer.coordinators[0]
            if told.error_code == ErrorCode.NONE:
                return int(told.node_id)
        raise NoAnswerError(f"no broker knows the coordinator of {group}")

    def live_brokers(self) -> set[int]:
        """Return the brokers in the metadata of all answering brokers: registered and unfenced."""
        told = []
        for node in self.answering():
            try:
                answer = self.ask(
                    node, DescribeClusterRequest(include_cluster_authorized_operations=False), 1
                )
            except OSError:
                continue
            told.append({broker.broker_id for broker in answer.brokers})
        if not told:
            raise NoAnswerError("no broker answers")
        return set.intersection(*told)

    def has_topic(self, topic: str, partitions: int) -> bool:
        """Return whether all responding brokers know all partitions of a topic with leaders."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        for node in self.answering():
            answer = self.ask(node, request, 12).topics[0]
            known = [each for each in answer.partitions if each.leader_id >= 0]
            if answer.error_code != ErrorCode.NONE or len(known) != partitions:
                return False
        return True

    def order(self, request: Message, version: int) -> Message:
        """Send an administrative request, with a long timeout, to a broker that answers.

        Raises:
            OSError: it does not answer.
        """
        return self.ask(self.answering()[0], request, version, ORDER_TIMEOUT_S)

    def ask(
        self, node: int, request: Message, version: int, timeout_s: float = ASK_TIMEOUT_S
    ) -> Message:
        """Send a request to a node, on a connection of its own.

        Raises:
            OSError: it does not answer.
        """
        host, _, port = self._cluster.node(node).address.rpartition(":")
        with contextlib.ExitStack() as stack:
            plain = socket.create_connection((host, int(port)), timeout_s)
            connection = stack.enter_context(plain)
            if self._context is not None:
                wrapped = self._context.wrap_socket(plain, server_hostname="localhost")
                connection = stack.enter_context(wrapped)
            connection.settimeout(timeout_s)
            chunks = encode_request(1, "view", request, version)
            connection.sendall(b"".join(bytes(chunk) for chunk in chunks))
            (length,) = struct.unpack(">i", _receive(connection, 4))
            frame = _receive(connection, length)
        return decode_response(type(request), version, frame)[1]


def create_topic(view: ClusterView, topic: CreatableTopic) -> None:
    """Create a topic, with retries while there is no controller.

    Raises:
        AssertionError: it is refused.
    """
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=False)
    orders = 0

    def order() -> CreatableTopicResult:
        nonlocal orders
        orders += 1
        answer = view.order(request, 7)
        assert isinstance(answer, CreateTopicsResponse)
        return answer.topics[0]

    told = await_that(order, lambda told: told.error_code not in IS_LATE, PATIENCE_S, topic.name)
    # A request whose response was late may have been executed.
    already_exists = orders > 1 and told.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert already_exists or told.error_code == ErrorCode.NONE, (
        told.error_code,
        told.error_message,
    )


def await_that(
    look: Callable[[], T], wanted: Callable[[T], bool], timeout_s: float, what: str
) -> T:
    """Wait until the condition holds.

    Raises:
        AssertionError: the condition did not hold in time. The message has the last value.
    """
    deadline = time.monotonic() + timeout_s
    seen: object = "nothing"
    while True:
        try:
            found = look()
            if wanted(found):
                return found
            seen = found
        except (NoAnswerError, OSError) as error:
            seen = error
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s, but {seen}"
        time.sleep(POLL_S)


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ConnectionResetError("closed in the middle of an answer")
        received += piece
    return received
