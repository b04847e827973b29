"""Produce and Fetch with thousands of partitions do not block the event loop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.client.admin.topics import NewTopic
from barnabas.client.facade import Client
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.record.builder import BatchBuilder
from barnabas.server.handlers.records import fetch, produce
from barnabas.testing.broker_process import BrokerProcess
from conformance.raw_client import RawClient
from loop_turns import loop_turns
from waiting import eventually_equal

PARTITIONS = 2_000
# Five bytes more for each make a request of more than 64 KB.
VALUE = b"five!"
_PRODUCE, _FETCH = 7, 11


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess(settings={"metrics.listener": "127.0.0.1:0"}) as running:
        with Client(running.bootstrap) as client:
            client.create_topics([NewTopic("wide", PARTITIONS)])
        yield running


def batch() -> bytes:
    builder = BatchBuilder()
    builder.append(0, None, VALUE)
    return bytes(builder.build())


def produced(count: int, acks: int, records: bytes | None = None) -> ProduceRequest:
    partitions = [PartitionProduceData(index=number, records=records) for number in range(count)]
    return ProduceRequest(
        acks=acks,
        timeout_ms=60_000,
        topic_data=[TopicProduceData(name="wide", partition_data=partitions)],
    )


def fetched(count: int) -> FetchRequest:
    partitions = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1)
        for number in range(count)
    ]
    return FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="wide", partitions=partitions)]
    )


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
def test_the_largest_requests_that_are_served_do_not_block_the_event_loop(
    broker: BrokerProcess,
) -> None:
    raw = RawClient(broker.bootstrap)
    before = loop_turns(broker.metrics_address)
    response = raw.ask(produced(produce.PARTITIONS_MAX, 1), _PRODUCE)
    assert len(response.responses[0].partition_responses) == produce.PARTITIONS_MAX
    found = raw.ask(fetched(fetch.PARTITIONS_MAX), _FETCH)
    assert len(found.responses[0].partitions) == fetch.PARTITIONS_MAX
    raw.close()
    after = loop_turns(broker.metrics_address)
    assert after.long_cpu_turns == before.long_cpu_turns, broker.log()


@pytest.mark.conformance
@pytest.mark.slow
@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (produced(produce.PARTITIONS_MAX + 1, 1), _PRODUCE),
        (fetched(fetch.PARTITIONS_MAX + 1), _FETCH),
        (produced(600_000, 1), _PRODUCE),
        (fetched(600_000), _FETCH),
    ],
    ids=["produce", "fetch", "produce, more than a message has", "fetch, more than a message has"],
)
def test_more_partitions_close_the_connection(
    broker: BrokerProcess, request_: ProduceRequest | FetchRequest, version: int
) -> None:
    raw = RawClient(broker.bootstrap)
    before = loop_turns(broker.metrics_address)
    raw.send(request_, version)
    assert raw.is_closed_by_broker()
    raw.close()
    after = loop_turns(broker.metrics_address)
    assert after.long_cpu_turns == before.long_cpu_turns, broker.log()
