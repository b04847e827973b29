"""Fetches of many partitions have the same responses in slices as in one turn."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.resources import AclOperation
from barnabas.record.builder import BatchBuilder
from barnabas.replication.partition.partition import Partition
from barnabas.replication.requests import delayed_fetch, fetch_session_cache
from barnabas.server.conversion.old_versions import OldFetch
from barnabas.server.dispatch import slices
from barnabas.server.handlers.records import fetch, pending_fetch
from barnabas.storage.topic_partition import TopicPartition
from unit.server.quotas.client_quotas import CLIENT, set_quota
from unit.server.security.authorizer.secured_broker import SecuredBroker, allowing
from unit.server.simulated_broker import SimulatedBroker, SimulatedClient, produce_request
from unit.server.simulated_cluster import three_nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PARTITIONS = 300
ALL = range(PARTITIONS)
FULL, SESSIONLESS = 0, -1
# Partitions that a step reads for a follower.
AT_ONCE = 10


def serve_all_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve every fetch like a wide one, and end each slice after one step."""
    monkeypatch.setattr(fetch, "NARROW_PARTITIONS_MAX", 0)
    monkeypatch.setattr(fetch, "NARROW_BYTES_MAX", 0)
    monkeypatch.setattr(slices, "FIRST_SLICE_MS", -1.0)
    monkeypatch.setattr(slices, "SLICE_MS", -1.0)


def request(
    *topics: FetchTopic, session: tuple[int, int] = (0, SESSIONLESS), **fields: Any
) -> FetchRequest:
    given = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, **fields}
    return FetchRequest(
        session_id=session[0], session_epoch=session[1], topics=list(topics), **given
    )


def topic(name: str, partitions: Iterable[int] = ALL, offset: int = 0, **fields: Any) -> FetchTopic:
    return FetchTopic(
        topic=name,
        partitions=[
            FetchPartition(
                partition=index, fetch_offset=offset, partition_max_bytes=1 << 20, **fields
            )
            for index in partitions
        ],
    )


def produce(broker: SimulatedBroker, name: str, *partitions: int) -> None:
    data = [PartitionProduceData(index=index, records=broker.batch(b"x")) for index in partitions]
    topics = [TopicProduceData(name=name, partition_data=data)]
    answer = broker.ask(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=topics), 7)
    assert all(each.error_code == 0 for each in answer.responses[0].partition_responses)


def unnamed(broker: SimulatedBroker, asked: FetchRequest) -> FetchRequest:
    """Return the request with topic ids."""
    for each in asked.topics:
        each.topic_id = broker.metadata(each.topic).topics[0].topic_id or b"\x07" * 16
    return asked


def content(response: Any) -> Any:
    """Copy all of a response except the session id, which is drawn by lot."""
    return (
        response.error_code,
        response.throttle_time_ms,
        response.session_id > 0,
        [
            (
                each.topic or each.topic_id,
                [
                    (
                        one.partition_index,
                        one.error_code,
                        one.high_watermark,
                        one.last_stable_offset,
                        one.log_start_offset,
                        one.aborted_transactions,
                        bytes(one.records or b""),
                    )
                    for one in each.partitions
                ],
            )
            for each in response.responses
        ],
    )


def replicas(broker: SimulatedBroker) -> Any:
    assert broker.node.broker is not None
    return broker.node.broker.replicas


def sessionless(broker: SimulatedBroker) -> list[Any]:
    produce(broker, "t", 3, 7, 299)
    repeated = topic("t", [5, 3, 5])
    absent = topic("absent", [0, 1])
    asked = [
        request(topic("t"), topic("u", [0, 1])),
        request(absent, repeated, topic("u", [1, 999])),
        request(topic("t", [*ALL, 3], offset=1)),
        request(topic("t"), max_bytes=1),
        request(topic("t"), isolation_level=1),
        request(topic("t", offset=7)),
        request(topic("t"), isolation_level=2),
        request(absent),
        request(),
    ]
    named = [
        content(broker.ask(each, version)) for each in asked for version in (0, 2, 4, 9, 11, 12)
    ]
    by_id = [content(broker.ask(unnamed(broker, each), 17)) for each in asked]
    sent = replicas(broker).metrics.topics["t"].bytes_out
    assert sent > 0
    return [*named, *by_id, sent]


def in_a_session(broker: SimulatedBroker) -> list[Any]:
    first = broker.ask(request(topic("t"), topic("absent", [0]), session=(0, FULL)), 11)
    answers = [content(first)]
    produce(broker, "t", 3, 7)

    def ask(epoch: int, *topics: FetchTopic, **fields: Any) -> None:
        asked = request(*topics, session=(first.session_id, epoch), **fields)
        answers.append(content(broker.ask(asked, 11)))

    ask(1)
    ask(2, topic("t", [3], offset=1))
    ask(3)
    ask(4, topic("u", [0, 1]), topic("t", range(100, PARTITIONS), offset=9))
    ask(5, topic("t", ALL), forgotten_topics_data=[ForgottenTopic(topic="t", partitions=[1, 2])])
    ask(5)
    ask(6, topic("u", [0]), forgotten_topics_data=[ForgottenTopic(topic="t", partitions=[*ALL])])
    every = [
        ForgottenTopic(topic="t", partitions=[*ALL]),
        ForgottenTopic(topic="u", partitions=[0, 1]),
        ForgottenTopic(topic="absent", partitions=[0]),
    ]
    ask(7, topic("t"), forgotten_topics_data=every)
    ask(8)
    return answers


def within_a_quota(broker: SimulatedBroker) -> list[Any]:
    produce(broker, "t", *range(PARTITIONS))
    set_quota(broker, CLIENT, "consumer_byte_rate", 8_000)
    asked = request(topic("t"), session=(0, FULL))
    return [content(broker.ask(asked, 11)) for _ in range(3)]


def of_an_unreadable_format(broker: SimulatedBroker) -> list[Any]:
    broker.make_topic("zstd", compression_type="zstd")
    return [content(broker.ask(request(topic("zstd", [0]), topic("u", [0])), 9))]


@pytest.mark.parametrize(
    "ask", [sessionless, in_a_session, within_a_quota, of_an_unreadable_format]
)
def test_responses_are_the_same(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[SimulatedBroker], list[Any]]
) -> None:
    answers = []
    for is_wide in (False, True):
        broker = SimulatedBroker()
        broker.make_topic("t", PARTITIONS)
        broker.make_topic("u", 2)
        if is_wide:
            serve_all_in_slices(monkeypatch)
        answers.append(ask(broker))
        assert not broker.failures
    narrow, wide = answers
    assert wide == narrow


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> SimulatedBroker:
    made = SimulatedBroker()
    made.make_topic("t", PARTITIONS)
    serve_all_in_slices(monkeypatch)
    return made


def test_records_complete_a_fetch_that_waits(broker: SimulatedBroker) -> None:
    waiting = broker.client.send(request(topic("t"), max_wait_ms=20_000), 11)
    broker.world.run_for(1_000)
    assert not waiting
    assert replicas(broker).waiting()["Fetch"] == 1
    writer = SimulatedClient(broker.world, "writer")
    data = [PartitionProduceData(index=250, records=broker.batch(b"x"))]
    topics = [TopicProduceData(name="t", partition_data=data)]
    writer.ask(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=topics), 7)
    broker.world.run_for(10)
    ((response, error),) = waiting
    assert error is None
    with_records = [
        each.partition_index for each in response.responses[0].partitions if each.records
    ]
    assert with_records == [250]


def test_a_fetch_of_unknown_partitions_does_not_wait(broker: SimulatedBroker) -> None:
    waiting = broker.client.send(request(topic("absent"), max_wait_ms=20_000), 11)
    broker.world.run_for(1_000)
    assert len(waiting[0][0].responses[0].partitions) == PARTITIONS


def test_a_session_that_skips_partitions_completes_its_fetches_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many of its partitions may change during one wait."""
    monkeypatch.setattr(fetch_session_cache, "CHECKED_MAX", 0)
    broker = SimulatedBroker()
    broker.make_topic("t")
    session_id = broker.ask(request(topic("t", [0]), session=(0, FULL)), 11).session_id
    broker.client.send(request(session=(session_id, 1), max_wait_ms=20_000), 11)
    broker.world.run_for(1_000)
    (pending,) = replicas(broker)._fetches._in_order
    assert pending._run is not None


def test_a_client_that_disconnects_cancels_its_fetch(broker: SimulatedBroker) -> None:
    other = SimulatedClient(broker.world, "other")
    other.send(request(topic("t"), max_wait_ms=20_000), 11)
    broker.world.run_for(1_000)
    assert replicas(broker).waiting()["Fetch"] == 1
    other.channel.close()
    broker.world.run_for(1_000)
    assert replicas(broker).waiting()["Fetch"] == 0
    assert replicas(broker).watched()["Fetch"] == 0


def test_requests_of_a_connection_are_answered_in_order(broker: SimulatedBroker) -> None:
    first = broker.client.send(request(topic("t")), 11)
    second = broker.client.send(request(topic("t", [0])), 11)
    while not second:
        broker.world.run_for(1)
    assert first
    assert len(first[0][0].responses[0].partitions) == PARTITIONS
    assert len(second[0][0].responses[0].partitions) == 1


def test_too_many_partitions_close_the_connection(
    broker: SimulatedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "PARTITIONS_MAX", PARTITIONS - 1)
    other = SimulatedClient(broker.world, "other")
    other.send(request(topic("t")), 11)
    broker.world.run_for(1_000)
    assert other.closed


def test_an_unexpected_error_closes_the_connection(
    broker: SimulatedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(pending_fetch.PendingFetch, "_add_topics", fail)
    other = SimulatedClient(broker.world, "other")
    other.send(request(topic("t")), 11)
    broker.world.run_for(1_000)
    assert other.closed


def test_a_session_that_another_request_overtakes_is_refused(broker: SimulatedBroker) -> None:
    """The other connection sends its request while the first one is read."""
    session_id = broker.ask(request(topic("t"), session=(0, FULL)), 11).session_id
    other = SimulatedClient(broker.world, "other")
    first = broker.client.send(request(topic("t", offset=1), session=(session_id, 1)), 11)
    second = other.send(request(topic("t", offset=2), session=(session_id, 1)), 11)
    assert broker.world.run_until(lambda: bool(first and second))
    errors = {first[0][0].error_code, second[0][0].error_code}
    assert errors == {ErrorCode.NONE, ErrorCode.INVALID_FETCH_SESSION_EPOCH}


def test_a_session_that_exceeds_its_limit_is_closed(
    broker: SimulatedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_session_cache, "UNKNOWN_MAX", 0)
    session_id = broker.ask(request(topic("t"), session=(0, FULL)), 11).session_id
    more = request(topic("absent"), session=(session_id, 1))
    assert broker.ask(more, 11).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    again = request(topic("t", [0]), session=(session_id, 2))
    assert broker.ask(again, 11).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("is_wide", [False, True])
def test_topics_without_permission_are_refused(
    monkeypatch: pytest.MonkeyPatch, is_wide: bool
) -> None:
    broker = SecuredBroker()
    broker.make_topic("mine", PARTITIONS)
    broker.make_topic("theirs", PARTITIONS)
    broker.allow(allowing(AclOperation.READ, "mine"))
    if is_wide:
        serve_all_in_slices(monkeypatch)
    # The client may not know which partitions of the other topic exist.
    theirs = topic("theirs", range(2 * PARTITIONS))
    answer = broker.mary.ask(request(theirs, topic("mine")), 11)
    found = [(each.topic, {one.error_code for one in each.partitions}) for each in answer.responses]
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert found == [("mine", {ErrorCode.NONE}), ("theirs", {refused})]


def test_files_for_old_versions_are_read_in_parts(
    broker: SimulatedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_errors, sizes = OldFetch.replace_errors, []

    def note_size(old: OldFetch, version: int, results: list[Any]) -> list[Any]:
        sizes.append(len(results))
        return replace_errors(old, version, results)

    monkeypatch.setattr(OldFetch, "replace_errors", note_size)
    broker.ask(request(topic("t")), 3)
    assert sizes == [pending_fetch._AT_ONCE, PARTITIONS - pending_fetch._AT_ONCE]


def test_the_parts_are_smaller_than_the_requests() -> None:
    assert pending_fetch._AT_ONCE < PARTITIONS


def test_a_follower_fetches_many_partitions_in_several_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serve_all_in_slices(monkeypatch)
    monkeypatch.setattr(delayed_fetch, "_AT_ONCE", AT_ONCE)
    turns = Counter[tuple[int, int]]()
    read = Partition.read
    cluster = three_nodes()

    def note_turn(partition: Partition, params: Any, *args: Any) -> Any:
        if params.is_from_follower:
            turns[cluster.world.scheduler.events_run, params.replica_id] += 1
        return read(partition, params, *args)

    monkeypatch.setattr(Partition, "read", note_turn)
    topic = CreatableTopic(
        name="t", num_partitions=180, replication_factor=3, assignments=[], configs=[]
    )
    created = cluster.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
    assert created.topics[0].error_code == ErrorCode.NONE
    cluster.until(lambda: cluster.image(1).topics.by_name("t") is not None)
    leader = cluster.image(1).topics.by_name("t").partitions[0].leader
    builder = BatchBuilder()
    builder.append(0, None, b"x")
    append = produce_request("t", bytes(builder.build()))
    cluster.until(lambda: cluster.image(leader).topics.by_name("t") is not None)
    answer = cluster.ask(leader, append, 9)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    results: list[ErrorCode] = []
    replicas = cluster.nodes[leader].broker.replicas
    replicas.confirm_leadership(TopicPartition("t", 0), 5_000, results.append)
    cluster.until(lambda: results == [ErrorCode.NONE])
    assert max(turns.values()) <= 2 * AT_ONCE
