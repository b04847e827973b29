"""Produce and Fetch with thousands of partitions do not block the event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from barnabas.client.admin.topics import NewTopic
from barnabas.client.facade import Client
from barnabas.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.record.builder import BatchBuilder
from barnabas.server.handlers.records import fetch, produce
from barnabas.testing.broker_process import BrokerProcess
from conformance.raw_client import RawClient
from loop_turns import loop_turns
from selection import nightly_unless
from waiting import eventually_equal

PARTITIONS = 2_000
# The kinds of requests that `make check` sends; `make nightly` sends all.
CHOSEN = {
    "produce",
    "produce that adds partitions to a transaction",
    "fetch of an old version",
    "fetch, topics without partitions",
}
# Five bytes more for each make a request of more than 64 KB.
VALUE = b"five!"
_PRODUCE, _FETCH = 7, 11
# Versions that convert records, and the one with which the leader adds partitions to transactions.
_OLD_PRODUCE, _OLD_FETCH, _ADDING_PRODUCE = 2, 3, 12


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(settings={"metrics.listener": "127.0.0.1:0"}) as running:
        with Client(running.bootstrap) as client:
            client.create_topics([NewTopic("wide", PARTITIONS)])
            # This creates the topic of the transaction coordinator.
            with client.producer(transactional_id="first") as producer:
                producer.init_transactions()
        yield running


def batch(*, transactional: bool = False) -> bytes:
    """Return a batch, of an unknown producer if it belongs to a transaction."""
    builder = BatchBuilder()
    if transactional:
        builder = BatchBuilder(
            producer_id=77, producer_epoch=0, base_sequence=0, transactional=True
        )
    builder.append(0, None, VALUE)
    return bytes(builder.build())


def produced(count: int, acks: int, records: bytes | None = None) -> ProduceRequest:
    partitions = [PartitionProduceData(index=number, records=records) for number in range(count)]
    return ProduceRequest(
        acks=acks,
        timeout_ms=60_000,
        topic_data=[TopicProduceData(name="wide", partition_data=partitions)],
    )


def produced_in_a_transaction(count: int) -> ProduceRequest:
    made = produced(count, -1, batch(transactional=True))
    made.transactional_id = "wide"
    return made


def produced_to_topics(count: int, partitions: int) -> ProduceRequest:
    made = produced(0, 1)
    made.topic_data = [
        TopicProduceData(
            name=f"{number}",
            partition_data=[
                PartitionProduceData(index=index, records=None) for index in range(partitions)
            ],
        )
        for number in range(count)
    ]
    return made


def fetched_from_topics(count: int) -> FetchRequest:
    made = fetched(0)
    made.topics = [FetchTopic(topic=f"{number}", partitions=[]) for number in range(count)]
    return made


def fetched(count: int) -> FetchRequest:
    partitions = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1)
        for number in range(count)
    ]
    return FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="wide", partitions=partitions)]
    )


# The largest requests that are served, and requests that are larger, with their versions.
SERVED: dict[str, tuple[Callable[[], ProduceRequest | FetchRequest], int]] = {
    "produce without records": (partial(produced, produce.PARTITIONS_MAX, 1), _PRODUCE),
    "produce": (partial(produced, produce.PARTITIONS_MAX, 1, batch()), _PRODUCE),
    "produce of an old version": (
        partial(produced, produce.PARTITIONS_MAX, 1, batch()),
        _OLD_PRODUCE,
    ),
    "produce to many topics": (partial(produced_to_topics, produce.PARTITIONS_MAX, 1), _PRODUCE),
    "produce in a transaction": (
        partial(produced_in_a_transaction, produce.PARTITIONS_MAX),
        _PRODUCE,
    ),
    "produce that adds partitions to a transaction": (
        partial(produced_in_a_transaction, produce.PARTITIONS_MAX),
        _ADDING_PRODUCE,
    ),
    "fetch": (partial(fetched, fetch.PARTITIONS_MAX), _FETCH),
    "fetch of an old version": (partial(fetched, fetch.PARTITIONS_MAX), _OLD_FETCH),
}
REFUSED: dict[str, tuple[Callable[[], ProduceRequest | FetchRequest], int]] = {
    "produce": (partial(produced, produce.PARTITIONS_MAX + 1, 1), _PRODUCE),
    "fetch": (partial(fetched, fetch.PARTITIONS_MAX + 1), _FETCH),
    "produce, topics without partitions": (partial(produced_to_topics, 400_000, 0), _PRODUCE),
    "fetch, topics without partitions": (partial(fetched_from_topics, 400_000), _FETCH),
    "produce, more than a message has": (partial(produced, 600_000, 1), _PRODUCE),
    "fetch, more than a message has": (partial(fetched, 600_000), _FETCH),
}


def partitions_of(topic: FetchableTopicResponse | TopicProduceResponse) -> int:
    if isinstance(topic, FetchableTopicResponse):
        return len(topic.partitions)
    return len(topic.partition_responses)


def offsets_and_errors(response: ProduceResponse) -> set[tuple[int, int]]:
    (topic,) = response.responses
    return {(each.base_offset, each.error_code) for each in topic.partition_responses}


def end_offsets(client: Client) -> set[int]:
    wanted = {("wide", number): "latest" for number in range(PARTITIONS)}
    return {found.offset for found in client.list_offsets(wanted).values()}


@pytest.mark.conformance
@pytest.mark.slow
def test_records_for_many_partitions_are_appended_in_slices_and_in_order(
    broker: BrokerProcess,
) -> None:
    raw = RawClient(broker.bootstrap)
    before = loop_turns(broker.metrics_address)
    with Client(broker.bootstrap) as client:
        (start,) = end_offsets(client)
        for acks in (1, -1):
            raw.send(produced(PARTITIONS, acks, batch()), _PRODUCE)
        for added in range(2):
            response = raw.receive(ProduceRequest, _PRODUCE)
            assert offsets_and_errors(response) == {(start + added, 0)}
        # Without a response: the records are kept although the client is gone at once.
        raw.send(produced(PARTITIONS, 0, batch()), _PRODUCE)
        raw.close()
        eventually_equal(lambda: end_offsets(client), {start + 3})
    after = loop_turns(broker.metrics_address)
    assert after.long_cpu_turns == before.long_cpu_turns, broker.log()


@pytest.mark.conformance
@pytest.mark.slow
@pytest.mark.parametrize("kind", nightly_unless(CHOSEN.__contains__, SERVED))
def test_the_largest_requests_that_are_served_do_not_block_the_event_loop(
    broker: BrokerProcess, kind: str
) -> None:
    make, version = SERVED[kind]
    request_ = make()
    raw = RawClient(broker.bootstrap)
    before = loop_turns(broker.metrics_address)
    response = raw.ask(request_, version)
    assert len(response.responses) == len(
        request_.topics if isinstance(request_, FetchRequest) else request_.topic_data
    )
    assert sum(map(partitions_of, response.responses)) == (
        fetch.PARTITIONS_MAX if isinstance(request_, FetchRequest) else produce.PARTITIONS_MAX
    )
    raw.close()
    after = loop_turns(broker.metrics_address)
    assert after.long_cpu_turns == before.long_cpu_turns, broker.log()


@pytest.mark.conformance
@pytest.mark.slow
@pytest.mark.parametrize("kind", nightly_unless(CHOSEN.__contains__, REFUSED))
def test_more_partitions_or_topics_close_the_connection(broker: BrokerProcess, kind: str) -> None:
    make, version = REFUSED[kind]
    request_ = make()
    raw = RawClient(broker.bootstrap)
    before = loop_turns(broker.metrics_address)
    raw.send(request_, version)
    assert raw.is_closed_by_broker()
    raw.close()
    after = loop_turns(broker.metrics_address)
    assert after.long_cpu_turns == before.long_cpu_turns, broker.log()
