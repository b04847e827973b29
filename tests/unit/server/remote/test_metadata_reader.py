"""Requests of the reader of the metadata topic, and leaders that answer badly."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.network.network_error import NetworkError, NetworkErrorKind
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.record.builder import BatchBuilder
from barnabas.runtime.executor import InlineExecutor
from barnabas.server.conversion.conversion_queue import ConversionQueue
from barnabas.server.peers.peer_queues import PeerDependencies
from barnabas.server.remote.metadata_reader import MetadataReader, ReaderSettings
from barnabas.sim.world import sim_runtime
from barnabas.storage.remote_keys import REMOTE_LOG_TOPIC
from unit.server.remote.metadata_broker import copied
from unit.storage.remote.remote_log_stories import name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.remote.interfaces import SegmentRecord
    from barnabas.server.remote.metadata_events import PartitionKey

LATEST, EARLIEST = -1, -2
TOPIC_ID = b"0123456789abcdef"


class Place:
    """A reading that keeps the names of the segments in the events."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.next_offset = 0
        self.end_offset: int | None = None
        self.life = 0
        self.is_ended = False
        self.names: list[str] = []

    def wants(self, key: PartitionKey) -> bool:
        del key
        return True

    def on_event(self, key: PartitionKey, event: SegmentRecord, value: bytes) -> None:
        del key, value
        self.names.append(name_of(event.remote_log_segment_id.id))

    def start_at(self, offset: int) -> None:
        self.life += 1
        self.next_offset = offset
        self.end_offset = None
        self.names.clear()

    def on_progress(self) -> None:
        """Do nothing."""


class Leader:
    """A channel to one leader. The test responds to its requests."""

    def __init__(self) -> None:
        self.pending: list[tuple[Any, Callable[[Any, Any], None]]] = []
        # All requests, as text.
        self.requests: list[str] = []

    def send(self, request: Any, _version: int, on_response: Any, _timeout_ms: float) -> None:
        assert not self.pending, "the previous request has no response"
        self.pending.append((request, on_response))
        if isinstance(request, FetchRequest):
            asked = [(each.partition, each.fetch_offset) for each in request.topics[0].partitions]
            self.requests.append(f"fetch {asked}")
        else:
            of = [(each.partition_index, each.timestamp) for each in request.topics[0].partitions]
            self.requests.append(f"offsets {of}")

    def close(self) -> None:
        """Do nothing."""

    def respond(self, response: object, error: NetworkError | None = None) -> None:
        _, on_response = self.pending.pop()
        on_response(response, error)


class Cluster:
    """The leaders of the metadata partitions, and a reader of them."""

    def __init__(self, *partitions: int) -> None:
        self.world, runtime = sim_runtime(1)
        self.leaders = {1: Leader(), 2: Leader()}
        self.leader_of = dict.fromkeys(partitions, 1)
        self.epoch = 0
        cluster: Any = SimpleNamespace(
            partition=lambda _, index: SimpleNamespace(
                leader=self.leader_of[index], leader_epoch=self.epoch
            ),
            topic_id=lambda _: TOPIC_ID,
        )
        channels: Any = SimpleNamespace(open=lambda broker_id, _: self.leaders[broker_id])
        peers = PeerDependencies(3, cluster, runtime.clock, runtime.timer, channels)
        steps = ConversionQueue(runtime.timer, InlineExecutor())
        self.reader = MetadataReader(ReaderSettings("reader", 500), peers, steps)
        self.places = {index: Place(index) for index in partitions}
        self.reader.start()
        for place in self.places.values():
            self.reader.add(place)

    @property
    def first(self) -> Leader:
        """The leader of all partitions at the beginning."""
        return self.leaders[1]

    def until(self, predicate: Callable[[], bool]) -> None:
        assert self.world.run_until(predicate)

    def answer(self, response: object, leader: int = 1) -> str:
        """Wait for a request, respond to it, and return it."""
        broker = self.leaders[leader]
        self.until(lambda: bool(broker.pending))
        request = broker.requests[-1]
        broker.respond(response)
        return request

    def begin(self) -> None:
        """Answer the requests for the ends, so that Fetch requests follow."""
        while any(each.end_offset is None for each in self.places.values()):
            self.answer(offsets(dict.fromkeys(self.places, 100)))


def offsets(found: dict[int, int], error: ErrorCode = ErrorCode.NONE) -> ListOffsetsResponse:
    partitions = [
        ListOffsetsPartitionResponse(partition_index=index, error_code=error, offset=offset)
        for index, offset in found.items()
    ]
    return ListOffsetsResponse(
        topics=[ListOffsetsTopicResponse(name=REMOTE_LOG_TOPIC, partitions=partitions)]
    )


def fetched(contents: dict[int, bytes | ErrorCode]) -> FetchResponse:
    partitions = [
        PartitionData(
            partition_index=index,
            error_code=each if isinstance(each, ErrorCode) else 0,
            high_watermark=0,
            records=None if isinstance(each, ErrorCode) else each,
        )
        for index, each in contents.items()
    ]
    topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=partitions)
    return FetchResponse(responses=[topic])


def batch(base_offset: int, *values: bytes) -> bytes:
    builder = BatchBuilder(base_offset=base_offset)
    for value in values:
        builder.append(1, None, value)
    return bytes(builder.build())


def test_the_end_is_asked_first_then_all_records_from_the_start() -> None:
    cluster = Cluster(0)
    assert cluster.answer(offsets({0: 4})) == f"offsets [(0, {LATEST})]"
    assert cluster.places[0].end_offset == 4
    content = batch(0, *copied("A", 0)) + batch(2, *copied("B", 10))
    assert cluster.answer(fetched({0: content})) == "fetch [(0, 0)]"
    cluster.until(lambda: bool(cluster.first.pending))
    assert cluster.first.requests[-1] == "fetch [(0, 4)]"
    assert cluster.places[0].names == ["A", "A", "B", "B"]


def test_records_below_the_next_offset_are_not_replayed_again() -> None:
    cluster = Cluster(0)
    cluster.begin()
    cluster.answer(fetched({0: batch(0, *copied("A", 0), *copied("B", 10))}))
    cluster.answer(fetched({0: batch(2, *copied("X", 10), *copied("C", 20))}))
    cluster.until(lambda: bool(cluster.first.pending))
    assert cluster.places[0].names == ["A", "A", "B", "B", "C", "C"]


BAD = {
    "nothing": None,
    "another object": object(),
    "an error": FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, responses=[]),
    "no topic": FetchResponse(responses=[]),
    "another partition": fetched({7: b""}),
    "an error of the partition": fetched({0: ErrorCode.NOT_LEADER_OR_FOLLOWER}),
    "no batches": fetched({0: b"\xff" * 100}),
    "a truncated batch": fetched({0: batch(0, *copied("A", 0))[:-1]}),
    "no records": fetched({0: b""}),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_response_is_followed_by_another_request_after_a_pause(case: str) -> None:
    cluster = Cluster(0)
    cluster.begin()
    cluster.until(lambda: bool(cluster.first.pending))
    before = len(cluster.first.requests)
    for _ in range(100):
        cluster.world.run_for(10)
        if cluster.first.pending:
            cluster.first.respond(BAD[case])
    # In one second; an endless loop would send one in each of the 100 turns.
    assert 1 < len(cluster.first.requests) - before <= 50
    cluster.answer(fetched({0: batch(0, *copied("A", 0))}))
    cluster.until(lambda: cluster.places[0].names == ["A", "A"])


@pytest.mark.parametrize(
    "response",
    [offsets({}), offsets({0: -1}), offsets({0: 9}, ErrorCode.OFFSET_NOT_AVAILABLE), object()],
    ids=["nothing", "no offset", "not available", "another object"],
)
def test_the_end_is_asked_again_until_there_is_one(response: object) -> None:
    cluster = Cluster(0)
    for _ in range(5):
        assert cluster.answer(response) == f"offsets [(0, {LATEST})]"
    cluster.begin()
    assert cluster.places[0].end_offset == 100


@pytest.mark.parametrize("kind", NetworkErrorKind)
def test_a_failed_request_is_repeated(kind: NetworkErrorKind) -> None:
    cluster = Cluster(0)
    cluster.begin()
    cluster.until(lambda: bool(cluster.first.pending))
    cluster.first.respond(None, NetworkError(kind, "scripted"))
    cluster.answer(fetched({0: batch(0, *copied("A", 0))}))
    cluster.until(lambda: cluster.places[0].names == ["A", "A"])


def test_a_failing_partition_does_not_delay_the_others() -> None:
    cluster = Cluster(0, 1)
    cluster.begin()
    for number in range(20):
        content = batch(number * 2, *copied(f"s{number}", 0))
        failing = ErrorCode.KAFKA_STORAGE_ERROR
        cluster.answer(fetched({0: failing, 1: content}))
    cluster.until(lambda: bool(cluster.first.pending))
    assert len(cluster.places[1].names) == 40
    assert any(each == f"fetch {[(1, 38)]}" for each in cluster.first.requests)


def test_the_partitions_take_turns_at_the_front_of_a_request() -> None:
    cluster = Cluster(0, 1, 2)
    cluster.begin()
    fronts = set()
    for _ in range(3):
        request = cluster.answer(fetched(dict.fromkeys(range(3), b"")))
        fronts.add(request[: len("fetch [(0")])
    assert len(fronts) == 3


def test_a_new_leader_is_asked_at_once() -> None:
    cluster = Cluster(0)
    cluster.begin()
    cluster.answer(fetched({0: batch(0, *copied("A", 0))}))
    cluster.until(lambda: bool(cluster.first.pending))
    cluster.leader_of[0], cluster.epoch = 2, 1
    cluster.reader.on_leaders()
    second = cluster.leaders[2]
    assert second.requests == ["fetch [(0, 2)]"]
    # The former leader's late response does not delay the new one.
    cluster.first.respond(fetched({0: ErrorCode.NOT_LEADER_OR_FOLLOWER}))
    cluster.answer(fetched({0: batch(2, *copied("B", 0))}), leader=2)
    cluster.until(lambda: len(second.requests) == 2)
    assert cluster.places[0].names == ["A", "A", "B", "B"]
    cluster.world.run_for(60_000)
    assert not cluster.first.pending


def test_deleted_records_are_skipped() -> None:
    cluster = Cluster(0)
    cluster.begin()
    cluster.answer(fetched({0: ErrorCode.OFFSET_OUT_OF_RANGE}))
    assert cluster.answer(offsets({0: 50})) == f"offsets [(0, {EARLIEST})]"
    assert cluster.answer(fetched({0: batch(50, *copied("A", 0))})) == "fetch [(0, 50)]"
    cluster.until(lambda: cluster.places[0].next_offset == 52)
    assert cluster.places[0].life == 0


def test_lost_records_are_read_from_the_start() -> None:
    cluster = Cluster(0)
    cluster.begin()
    cluster.answer(fetched({0: batch(0, *copied("A", 0), *copied("B", 10))}))
    cluster.answer(fetched({0: ErrorCode.OFFSET_OUT_OF_RANGE}))
    cluster.answer(offsets({0: 0}))
    assert cluster.answer(offsets({0: 2})) == f"offsets [(0, {LATEST})]"
    assert cluster.answer(fetched({0: batch(0, *copied("C", 0))})) == "fetch [(0, 0)]"
    cluster.until(lambda: cluster.places[0].names == ["C", "C"])
    assert cluster.places[0].life == 1


def test_records_that_were_fetched_before_a_new_start_are_dropped() -> None:
    cluster = Cluster(0)
    cluster.begin()
    cluster.until(lambda: bool(cluster.first.pending))
    cluster.places[0].start_at(0)
    cluster.answer(fetched({0: batch(0, *copied("A", 0))}))
    cluster.until(lambda: bool(cluster.first.pending))
    assert cluster.places[0].names == []
    assert cluster.first.requests[-1] == f"offsets [(0, {LATEST})]"


def test_a_removed_partition_is_not_read_any_more() -> None:
    cluster = Cluster(0)
    cluster.begin()
    cluster.until(lambda: bool(cluster.first.pending))
    cluster.reader.remove(0)
    cluster.answer(fetched({0: batch(0, *copied("A", 0))}))
    cluster.world.run_for(60_000)
    assert cluster.places[0].names == []
    assert not cluster.first.pending


def test_nothing_is_sent_after_the_close() -> None:
    cluster = Cluster(0)
    cluster.begin()
    cluster.until(lambda: bool(cluster.first.pending))
    cluster.reader.close()
    cluster.first.respond(fetched({0: batch(0, *copied("A", 0))}))
    cluster.world.run_for(60_000)
    assert cluster.places[0].names == []
    assert not cluster.first.pending
