"""Counters of the sender of markers, as in Kafka's TransactionMarkerChannelManager."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.coordinator.transaction.markers import Markers
from barnabas.network.network_error import NetworkError, NetworkErrorKind
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from barnabas.server.transactions.marker_sender import NetworkMarkerSender
from barnabas.sim.world import sim_runtime
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1))
THIS, OTHER, NOBODY = 1, 2, -1


class Peer:
    """A connection to the other broker, which answers when the test says so."""

    def __init__(self) -> None:
        self.is_connected = False
        self.connections_created = 0
        self.sent: list[WriteTxnMarkersRequest] = []
        self._on_response: list[Callable[[Any, NetworkError | None], None]] = []

    def send(self, request: Any, _version: int, on_response: Any, _timeout_ms: float) -> None:
        if not self.is_connected:
            self.is_connected = True
            self.connections_created += 1
        self.sent.append(request)
        self._on_response.append(on_response)

    def answer(self, code: ErrorCode) -> None:
        (marker,) = self.sent[-1].markers
        result = WritableTxnMarkerResult(
            producer_id=marker.producer_id,
            topics=[
                WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=[
                        WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                        for index in topic.partition_indexes
                    ],
                )
                for topic in marker.topics
            ],
        )
        self._on_response.pop(0)(WriteTxnMarkersResponse(markers=[result]), None)

    def disconnect(self) -> None:
        self.is_connected = False
        self._on_response.pop(0)(None, NetworkError(NetworkErrorKind.DISCONNECTED, "scripted"))


class Scene:
    """A sender on broker 1; all partitions have the same leader."""

    def __init__(self) -> None:
        self.world, runtime = sim_runtime(1)
        self.leader = OTHER
        self.peer = Peer()
        self.done: list[ErrorCode] = []
        cluster: Any = SimpleNamespace(partition=lambda *_: SimpleNamespace(leader=self.leader))
        channels: Any = SimpleNamespace(open=lambda *_: self.peer)
        writer: Any = SimpleNamespace()
        self.sender = NetworkMarkerSender(THIS, cluster, writer, runtime.timer, channels)

    def send(self) -> None:
        markers = Markers("id", 0, 5, 7, 1, True, 2, PARTITIONS)
        self.sender.send(markers, lambda _: None, self.done.append)

    def counts(self) -> tuple[int, int, int, int]:
        sender = self.sender
        return (
            sender.connections,
            sender.connections_created,
            sender.requests,
            sender.responses,
        )


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_requests_responses_and_connections_are_counted(scene: Scene) -> None:
    assert scene.counts() == (0, 0, 0, 0)
    scene.send()
    assert scene.counts() == (1, 1, 1, 0)
    scene.peer.answer(ErrorCode.NONE)
    assert scene.counts() == (1, 1, 1, 1)
    assert scene.done == [ErrorCode.NONE]


def test_a_lost_connection_is_no_response_and_no_unknown_leader(scene: Scene) -> None:
    scene.send()
    scene.peer.disconnect()
    assert scene.counts() == (0, 1, 1, 0)
    assert scene.sender.unknown_leaders == 0
    scene.world.run_for(100)
    assert scene.counts() == (1, 2, 2, 0)


def test_a_marker_without_a_leader_counts_once_until_there_is_a_leader(scene: Scene) -> None:
    scene.leader = NOBODY
    scene.send()
    assert scene.sender.unknown_leaders == 1
    scene.world.run_for(1_000)
    assert scene.sender.unknown_leaders == 1
    scene.leader = OTHER
    scene.world.run_for(100)
    assert scene.sender.unknown_leaders == 0
    assert len(scene.peer.sent) == 1


def test_a_marker_that_its_leader_refuses_has_a_known_leader(scene: Scene) -> None:
    scene.send()
    scene.peer.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert scene.sender.unknown_leaders == 0
    scene.world.run_for(100)
    # One request is in flight at a time: the second one has the marker of one partition.
    assert scene.counts() == (1, 1, 2, 1)
