"""The persister: division among coordinators, requests to other brokers, retries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.coordinator.share import state_api
from barnabas.network.network_error import NetworkError, NetworkErrorKind
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    initialize_share_group_state as initialize,
    read_share_group_state_summary as summary,
)
from barnabas.server.peers.peer_queues import PeerDependencies
from barnabas.server.share.persister import Persister
from unit.coordinator.share.share_world import GROUP, TOPIC_ID, ShareWorld

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.share.state_api import StateApi

THIS, OTHER, THIRD = 1, 2, 3
OTHER_TOPIC = b"another topic's."


class Peer:
    """A connection to another broker, which answers when the test says so."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        # Requests without a response, with their versions.
        self.sent: list[tuple[Any, int]] = []
        self._on_response: list[Callable[[Any, NetworkError | None], None]] = []

    def send(self, request: Any, version: int, on_response: Any, _timeout_ms: float) -> None:
        assert not self.sent, "the previous request has no response"
        self.sent.append((request, version))
        self._on_response.append(on_response)

    def answer(self, api: StateApi, error: ErrorCode = ErrorCode.NONE, *left_out: int) -> None:
        request, _ = self.sent.pop()
        topics = {
            topic.topic_id: [
                api.refuse(each.partition, error)
                for each in topic.partitions
                if each.partition not in left_out
            ]
            for topic in request.topics
        }
        self._on_response.pop()(api.make_response(topics.items()), None)

    def fail(self, kind: NetworkErrorKind) -> None:
        self.sent.pop()
        self._on_response.pop()(None, NetworkError(kind, "scripted"))

    @property
    def keys(self) -> list[tuple[bytes, int]]:
        """The share partitions of the request without a response."""
        ((request, _),) = self.sent
        return [
            (topic.topic_id, each.partition)
            for topic in request.topics
            for each in topic.partitions
        ]


class Scene:
    """A persister on broker 1. State partition N has the share partitions N, N + 3, N + 6, ..."""

    def __init__(self) -> None:
        self.world = ShareWorld()
        self.leaders = {0: THIS, 1: OTHER, 2: THIRD}
        self.has_topic = True
        self.created: list[str] = []
        self.peers: dict[int, list[Peer]] = {}
        self.responses: list[Any] = []
        runtime = self.world.replicas.runtime
        coordinator: Any = SimpleNamespace(
            runtime=SimpleNamespace(partition_for=self._partition_for),
            request=self.world.coordinator.request,
        )
        cluster: Any = SimpleNamespace(
            partition=lambda _, index: SimpleNamespace(leader=self.leaders[index])
        )
        auto_topics: Any = SimpleNamespace(create=self.created.extend)
        channels: Any = SimpleNamespace(open=self._open)
        peers = PeerDependencies(THIS, cluster, runtime.clock, runtime.timer, channels)
        self.persister = Persister(coordinator, auto_topics, peers)

    def _partition_for(self, key: str) -> int | None:
        return int(key.rpartition(":")[2]) % 3 if self.has_topic else None

    def _open(self, broker_id: int, _client_id: str) -> Peer:
        self.peers.setdefault(broker_id, []).append(Peer(broker_id))
        return self.peers[broker_id][-1]

    def peer(self, broker_id: int = OTHER) -> Peer:
        (peer,) = self.peers[broker_id]
        return peer

    def initialize(self, *partitions: int, group: str = GROUP, start_offset: int = 5) -> None:
        made = [
            initialize.PartitionData(partition=each, state_epoch=1, start_offset=start_offset)
            for each in partitions
        ]
        request: Any = state_api.INITIALIZE.make_request(group, {TOPIC_ID: made})
        self.persister.initialize(request, self.responses.append)

    def results(self) -> list[tuple[int, ErrorCode]]:
        """Partitions and errors of the only response."""
        ((topic,),) = (response.results for response in self.responses)
        return [(each.partition, ErrorCode.of(each.error_code)) for each in topic.partitions]


@pytest.fixture
def scene() -> Scene:
    return Scene()


NONE = ErrorCode.NONE


def test_a_call_is_divided_among_the_coordinators(scene: Scene) -> None:
    scene.initialize(4, 0, 2, 3, 1)
    assert scene.peer(OTHER).keys == [(TOPIC_ID, 4), (TOPIC_ID, 1)]
    assert scene.peer(THIRD).keys == [(TOPIC_ID, 2)]
    scene.peer(THIRD).answer(state_api.INITIALIZE)
    assert not scene.responses
    scene.peer(OTHER).answer(state_api.INITIALIZE, ErrorCode.FENCED_STATE_EPOCH)
    scene.world.run_for(10)
    fenced = ErrorCode.FENCED_STATE_EPOCH
    assert scene.results() == [(4, fenced), (0, NONE), (2, NONE), (3, NONE), (1, fenced)]
    assert {key.partition for key in scene.world.shard.partitions} == {0, 3}


def test_reads_return_the_state_of_this_brokers_coordinator(scene: Scene) -> None:
    scene.initialize(0, start_offset=9)
    scene.world.run_for(10)
    scene.responses.clear()
    part = summary.PartitionData(partition=0, leader_epoch=0)
    topics = {TOPIC_ID: [part], OTHER_TOPIC: [part]}
    request: Any = state_api.READ_SUMMARY.make_request(GROUP, topics)
    scene.persister.read_summary(request, scene.responses.append)
    scene.world.run_for(10)
    (response,) = scene.responses
    found = {each.topic_id: each.partitions[0].start_offset for each in response.results}
    assert found == {TOPIC_ID: 9, OTHER_TOPIC: -1}


def test_calls_that_wait_for_a_coordinator_are_sent_together(scene: Scene) -> None:
    scene.initialize(1)
    scene.initialize(4)
    scene.initialize(7)
    scene.initialize(1, group="another")
    # The state of partition 4 changes twice: the second change waits for the first.
    scene.initialize(4, start_offset=8)
    peer = scene.peer()
    assert peer.keys == [(TOPIC_ID, 1)]
    peer.answer(state_api.INITIALIZE)
    assert peer.keys == [(TOPIC_ID, 4), (TOPIC_ID, 7)]
    peer.answer(state_api.INITIALIZE)
    assert peer.sent[0][0].group_id == "another"
    peer.answer(state_api.INITIALIZE)
    assert peer.keys == [(TOPIC_ID, 4)]
    assert peer.sent[0][0].topics[0].partitions[0].start_offset == 8
    assert len(scene.responses) == 4
    peer.answer(state_api.INITIALIZE)
    assert len(scene.responses) == 5


def test_each_api_has_a_connection_and_its_highest_version(scene: Scene) -> None:
    scene.initialize(1)
    part = summary.PartitionData(partition=1, leader_epoch=0)
    request: Any = state_api.READ_SUMMARY.make_request(GROUP, {TOPIC_ID: [part]})
    scene.persister.read_summary(request, scene.responses.append)
    assert [version for peer in scene.peers[OTHER] for _, version in peer.sent] == [0, 1]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_a_new_coordinator_is_found(scene: Scene, error: ErrorCode) -> None:
    scene.initialize(1)
    scene.peer().answer(state_api.INITIALIZE, error)
    scene.leaders[1] = THIS
    scene.world.run_for(200)
    assert scene.results() == [(1, NONE)]
    assert not scene.peer().sent


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (NetworkErrorKind.DISCONNECTED, ErrorCode.NETWORK_EXCEPTION),
        (NetworkErrorKind.TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_a_lost_broker_is_given_up(scene: Scene, kind: NetworkErrorKind, error: ErrorCode) -> None:
    scene.initialize(0, 1)
    for _ in range(7):
        scene.peer().fail(kind)
        scene.world.run_for(6_500)
        assert not scene.responses
    scene.peer().fail(kind)
    assert scene.results() == [(0, NONE), (1, error)]


def test_without_a_coordinator_the_topic_is_created_and_the_call_ends(scene: Scene) -> None:
    scene.has_topic = False
    scene.initialize(0, 1)
    assert scene.created == ["__share_group_state"] * 2
    scene.world.run_for(12_000)
    assert not scene.responses
    scene.world.run_for(2_000)
    missing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert scene.results() == [(0, missing), (1, missing)]


def test_a_share_partition_that_a_response_lacks_has_an_error(scene: Scene) -> None:
    scene.initialize(1, 4)
    scene.peer().answer(state_api.INITIALIZE, NONE, 4)
    assert scene.results() == [(1, NONE), (4, ErrorCode.UNKNOWN_SERVER_ERROR)]


def test_an_empty_call_has_an_empty_response(scene: Scene) -> None:
    request: Any = state_api.DELETE.make_request(GROUP, {})
    scene.persister.delete(request, scene.responses.append)
    (response,) = scene.responses
    assert response.results == []
