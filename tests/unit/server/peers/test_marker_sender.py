"""The sender of markers: turns of the loop, requests, and counters.

The counters are those of Kafka's TransactionMarkerChannelManager.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.coordinator.transaction.transaction_metadata import Markers
from barnabas.network.network_error import NetworkError, NetworkErrorKind
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.transactions import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from barnabas.server.peers.markers import NetworkMarkerSender
from barnabas.server.peers.peer_queues import PeerDependencies
from barnabas.sim.world import sim_runtime
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.messages.transactions import WriteTxnMarkersRequest

PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1))
MANY = tuple(TopicPartition("t", number) for number in range(5_000))
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


class SlowClock:
    """A clock by which each written marker takes a millisecond."""

    def __init__(self) -> None:
        self.now_ms = 0.0

    def monotonic_ms(self) -> float:
        return self.now_ms


class Scene:
    """A sender on broker 1; all partitions have the same leader."""

    def __init__(self) -> None:
        self.world, runtime = sim_runtime(1)
        self.leader = OTHER
        self.peer = Peer()
        self.done: list[ErrorCode] = []
        cluster: Any = SimpleNamespace(partition=lambda *_: SimpleNamespace(leader=self.leader))
        channels: Any = SimpleNamespace(open=lambda *_: self.peer)
        # Partitions whose marker this broker wrote, by call.
        self.written: list[list[TopicPartition]] = []
        writer: Any = SimpleNamespace(write=self._write)
        # Raised by the next write.
        self.error: Exception | None = None
        self.clock = SlowClock()
        clock: Any = self.clock
        peers = PeerDependencies(THIS, cluster, clock, runtime.timer, channels)
        self.sender = NetworkMarkerSender(writer, peers)

    def _write(self, _ending: object, partitions: list[TopicPartition], on_result: Any) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error
        self.written.append(partitions)
        self.clock.now_ms += len(partitions)
        for partition in partitions:
            on_result(partition, ErrorCode.NONE)

    def turn(self) -> int:
        """Run one callback of the loop, and return the number of markers that it wrote."""
        before, events = len(self.written), self.world.scheduler.events_run
        assert self.world.run_until(lambda: self.world.scheduler.events_run > events)
        return sum(map(len, self.written[before:]))

    def send(self, partitions: tuple[TopicPartition, ...] = PARTITIONS) -> None:
        """Send markers; the next turn serves the first of them."""
        markers = Markers("id", 0, 5, 7, 1, True, 2, partitions)
        self.sender.send(markers, lambda _: None, self.done.append)

    def serve(self) -> None:
        """Send the markers of PARTITIONS, and run the turn that serves them."""
        self.send()
        assert not self.peer.sent
        self.turn()

    def counts(self) -> tuple[int, int, int, int]:
        sender = self.sender.queues
        return (
            sender.connections,
            sender.connections_created,
            sender.sent,
            sender.responses,
        )


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_requests_responses_and_connections_are_counted(scene: Scene) -> None:
    assert scene.counts() == (0, 0, 0, 0)
    scene.serve()
    assert scene.counts() == (1, 1, 1, 0)
    scene.peer.answer(ErrorCode.NONE)
    assert scene.counts() == (1, 1, 1, 1)
    assert scene.done == [ErrorCode.NONE]


def test_a_lost_connection_is_no_response_and_no_unknown_leader(scene: Scene) -> None:
    scene.serve()
    scene.peer.disconnect()
    assert scene.counts() == (0, 1, 1, 0)
    assert scene.sender.unknown_leaders == 0
    scene.world.run_for(100)
    assert scene.counts() == (1, 2, 2, 0)


def test_a_marker_without_a_leader_counts_once_until_there_is_a_leader(scene: Scene) -> None:
    scene.leader = NOBODY
    scene.serve()
    assert scene.sender.unknown_leaders == 1
    scene.world.run_for(1_000)
    assert scene.sender.unknown_leaders == 1
    scene.leader = OTHER
    scene.world.run_for(100)
    assert scene.sender.unknown_leaders == 0
    assert len(scene.peer.sent) == 1


def test_a_marker_that_its_leader_refuses_has_a_known_leader(scene: Scene) -> None:
    scene.serve()
    scene.peer.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert scene.sender.unknown_leaders == 0
    scene.world.run_for(100)
    # One request is in flight at a time: the second one has the marker of one partition.
    assert scene.counts() == (1, 1, 2, 1)


def test_the_markers_of_many_partitions_are_written_in_many_turns(scene: Scene) -> None:
    scene.leader = THIS
    scene.send(MANY)
    scene.send(MANY)
    # The response to the request that ends the transaction is sent first.
    assert scene.written == []
    turns = [scene.turn() for _ in range(2 * len(MANY) // 8)]
    assert set(turns) == {8}
    assert scene.done == [ErrorCode.NONE, ErrorCode.NONE]
    assert Counter(chain.from_iterable(scene.written)) == Counter(MANY * 2)


def test_no_markers_are_written_after_the_state_partition_has_moved(scene: Scene) -> None:
    scene.leader = THIS
    scene.send(MANY)
    scene.turn()
    scene.sender.forget(0)
    scene.world.run_for(1_000)
    assert [len(each) for each in scene.written] == [4, 4]


def test_a_request_has_a_limited_number_of_partitions(scene: Scene) -> None:
    scene.send(MANY)
    scene.world.run_for(1)
    sizes = []
    while not scene.done:
        (marker,) = scene.peer.sent[-1].markers
        sizes.append(sum(len(topic.partition_indexes) for topic in marker.topics))
        scene.peer.answer(ErrorCode.NONE)
    assert sizes == [200, 2_000, 2_000, 800]
    assert scene.done == [ErrorCode.NONE]


def test_refused_markers_of_many_partitions_are_sent_again_together(scene: Scene) -> None:
    scene.send(MANY[:40])
    scene.world.run_for(1)
    scene.peer.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    scene.leader = THIS
    scene.world.run_for(1_000)
    assert [len(each) for each in scene.written] == [4] * 10
    assert scene.done == [ErrorCode.NONE]


def test_an_error_while_markers_are_written_does_not_stop_other_transactions(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.leader = THIS
    scene.error = RuntimeError("scripted")
    scene.send()
    scene.send()
    scene.world.run_for(100)
    assert scene.done == [ErrorCode.NONE]
    assert "Transaction markers cannot be written, retrying" in caplog.text
    scene.world.run_for(2_000)
    assert scene.done == [ErrorCode.NONE, ErrorCode.NONE]
