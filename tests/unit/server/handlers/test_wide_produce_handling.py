"""Produce requests of many partitions have the same responses in slices as in one turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.transactions import EndTxnRequest
from barnabas.record.legacy import write_message_set
from barnabas.record.record import Record
from barnabas.server.dispatch import slices
from barnabas.server.handlers.records import pending_produce, produce
from barnabas.server.peers import transaction_verification
from barnabas.storage.topic_partition import TopicPartition
from unit.server.handlers.producer_ids import initialize
from unit.server.simulated_broker import SimulatedBroker, SimulatedClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PARTITIONS = 60
ALL = range(PARTITIONS)
ID = "id"


def serve_all_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serve every request like a wide one, in small steps, and end each slice after one step."""
    monkeypatch.setattr(produce, "NARROW_PARTITIONS_MAX", 0)
    monkeypatch.setattr(produce, "NARROW_BYTES_MAX", 0)
    monkeypatch.setattr(produce, "_COLLECTED_AT_ONCE", 7)
    monkeypatch.setattr(pending_produce, "_AT_ONCE", 7)
    monkeypatch.setattr(transaction_verification, "_PARTITIONS_AT_ONCE", 7)
    monkeypatch.setattr(slices, "FIRST_SLICE_MS", -1.0)
    monkeypatch.setattr(slices, "SLICE_MS", -1.0)


def topic(
    name: str, records: bytes | None, partitions: Iterable[int] = ALL, topic_id: bytes = bytes(16)
) -> TopicProduceData:
    data = [PartitionProduceData(index=each, records=records) for each in partitions]
    return TopicProduceData(name=name, topic_id=topic_id, partition_data=data)


def request(
    *topics: TopicProduceData, acks: int = 1, transactional_id: str | None = None
) -> ProduceRequest:
    return ProduceRequest(
        acks=acks, timeout_ms=10_000, transactional_id=transactional_id, topic_data=list(topics)
    )


def content(response: Any) -> Any:
    return [
        (
            each.name or each.topic_id,
            [
                (
                    one.index,
                    ErrorCode(one.error_code).name,
                    one.base_offset,
                    one.log_start_offset,
                    one.error_message,
                    len(one.record_errors),
                )
                for one in each.partition_responses
            ],
        )
        for each in response.responses
    ]


def log_ends(broker: SimulatedBroker, name: str = "t") -> list[int]:
    assert broker.node.broker is not None
    logs = broker.node.broker.logs.logs
    return [logs[TopicPartition(name, each)].log_end_offset for each in ALL]


def of_one_version_after_another(broker: SimulatedBroker) -> list[Any]:
    good = broker.batch(b"one", b"two")
    damaged = good[:-1] + b"?"
    no_batch = b"\xff" * 80
    topic_id = broker.metadata("t").topics[0].topic_id
    asked = [
        [topic("t", good)],
        [topic("t", good), topic("absent", good, [0, 1]), topic("t", good, [3, 999])],
        [topic("t", damaged), topic("u", good, [0])],
        [topic("t", None)],
        [topic("t", good), topic("t", None, [5, 6]), topic("t", good, [6])],
        [topic("t", good, [0, 0, 1]), topic("u", None, [0, 0])],
        [topic("t", good), topic("u", no_batch, [0])],
        [topic("t", good), topic("u", good, [])],
        [],
    ]
    found = [
        content(broker.ask(request(*topics, acks=acks), version))
        for topics in asked
        for version in (3, 7, 9)
        for acks in (1, -1, 5)
    ]
    by_id = [topic("", good, topic_id=topic_id), topic("", good, [0], b"\x07" * 16)]
    found.append(content(broker.ask(request(*by_id), 13)))
    assert max(log_ends(broker)) > 0
    return [*found, log_ends(broker)]


def of_old_formats(broker: SimulatedBroker) -> list[Any]:
    record = Record(offset=0, timestamp=1, timestamp_type=0, key=None, value=b"old", headers=())
    old = write_message_set(1, [record])
    no_set = b"\x00" * 8 + b"\x00\x00\x00\x20" + b"\xff" * 32
    asked = [
        [topic("t", old)],
        [topic("t", None), topic("u", old, [0, 7])],
        [topic("t", old, range(20)), topic("t", no_set, range(20, 40))],
        [topic("t", broker.batch(b"new"))],
    ]
    found = [content(broker.ask(request(*each), version)) for each in asked for version in (1, 2)]
    assert max(log_ends(broker)) > 0
    return [*found, log_ends(broker)]


def of_a_transaction(broker: SimulatedBroker) -> list[Any]:
    producer_id, epoch = initialize(broker, ID)

    def batch(producer_id: int, sequence: int) -> bytes:
        return broker.batch(
            b"value",
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )

    found = []
    for version, records in [
        # Without a transaction, with another producer, and with an addition of the partitions.
        (11, batch(producer_id, 0)),
        (12, batch(producer_id + 1, 0)),
        (12, batch(producer_id, 0)),
        (12, batch(producer_id, 1)),
    ]:
        topics = topic("t", records), topic("absent", records, [0])
        asked = request(*topics, acks=-1, transactional_id=ID)
        found.append(content(broker.ask(asked, version)))
    end = EndTxnRequest(
        transactional_id=ID, producer_id=producer_id, producer_epoch=epoch, committed=True
    )
    assert broker.ask(end, 4).error_code == 0
    broker.world.run_for(1_000)
    # Two batches and a marker.
    assert log_ends(broker) == [3] * PARTITIONS
    return found


@pytest.mark.parametrize("ask", [of_one_version_after_another, of_old_formats, of_a_transaction])
def test_responses_are_the_same(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[SimulatedBroker], list[Any]]
) -> None:
    found = []
    for is_wide in (False, True):
        broker = SimulatedBroker(offsets_topic_num_partitions="1")
        broker.make_topic("t", PARTITIONS)
        broker.make_topic("u", 2)
        if is_wide:
            serve_all_in_slices(monkeypatch)
        found.append(ask(broker))
        assert not broker.failures
    narrow, wide = found
    assert wide == narrow


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> SimulatedBroker:
    made = SimulatedBroker()
    made.make_topic("t", PARTITIONS)
    serve_all_in_slices(monkeypatch)
    return made


def test_requests_of_a_connection_are_appended_in_their_order(broker: SimulatedBroker) -> None:
    outcomes = [
        broker.client.send(request(topic("t", broker.batch(b"%d" % number))), 7)
        for number in range(5)
    ]
    assert broker.world.run_until(lambda: all(outcomes))
    for number, ((response, error),) in enumerate(outcomes):
        assert error is None
        (found,) = response.responses
        assert {each.base_offset for each in found.partition_responses} == {number}


def test_requests_of_other_connections_are_served_between_the_slices(
    broker: SimulatedBroker,
) -> None:
    other = SimulatedClient(broker.world, "other")
    wide = broker.client.send(request(topic("t", broker.batch(b"wide"))), 7)
    broker.world.run_until(lambda: max(log_ends(broker)) > 0)
    assert not wide
    assert min(log_ends(broker)) == 0
    response = other.ask(request(topic("t", broker.batch(b"narrow"), [PARTITIONS - 1])), 7)
    assert response.responses[0].partition_responses[0].error_code == 0
    assert broker.world.run_until(lambda: bool(wide))


def test_records_of_a_client_that_is_gone_are_appended(broker: SimulatedBroker) -> None:
    other = SimulatedClient(broker.world, "other")
    other.send(request(topic("t", broker.batch(b"last")), acks=0), 7)
    other.channel.close()
    assert broker.world.run_until(lambda: log_ends(broker) == [1] * PARTITIONS)


@pytest.mark.parametrize(
    "topics",
    [[topic("t", None)] * 2, [topic("t", None, []) for _ in range(2 * PARTITIONS)]],
    ids=["partitions", "topics without partitions"],
)
def test_more_topics_or_partitions_than_the_limit_close_the_connection(
    broker: SimulatedBroker, monkeypatch: pytest.MonkeyPatch, topics: list[TopicProduceData]
) -> None:
    monkeypatch.setattr(produce, "PARTITIONS_MAX", 2 * PARTITIONS - 1)
    other = SimulatedClient(broker.world, "other")
    other.send(request(*topics), 7)
    assert broker.world.run_until(lambda: bool(other.closed))
    assert broker.ask(request(topic("t", None)), 7).responses
