"""Old fetches of several partitions: limits of the response, and errors of one partition."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.record.builder import BatchBuilder
from barnabas.record.legacy import read_records, write_message_set
from barnabas.record.record import Record
from barnabas.server.conversion import old_versions
from unit.server.simulated_broker import SimulatedBroker, produce_request

PARTITIONS = 3


@pytest.fixture
def broker() -> SimulatedBroker:
    made = SimulatedBroker()
    made.make_topic("t", PARTITIONS)
    return made


def fill(broker: SimulatedBroker, partition: int, count: int, compression: int = 0) -> None:
    builder = BatchBuilder(compression=compression)
    for index in range(count):
        builder.append(1000 + index, None, b"v")
    request = produce_request("t", bytes(builder.build()))
    request.topic_data[0].partition_data[0].index = partition
    assert broker.ask(request, 9).responses[0].partition_responses[0].error_code == 0


def fetched(broker: SimulatedBroker, version: int, max_bytes: int = 1 << 20) -> list:
    asked = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=max_bytes)
        for index in (*range(PARTITIONS), 9)
    ]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic="t", partitions=asked)]
    )
    return broker.ask(request, version).responses[0].partitions


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_partitions_are_converted_independently(broker: SimulatedBroker, version: int) -> None:
    fill(broker, 0, 1200)
    fill(broker, 1, 3, compression=4)
    fill(broker, 2, 700, compression=1)
    found = fetched(broker, version)
    unsupported = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [each.error_code for each in found] == [0, unsupported, 0, unknown]
    assert [len(list(read_records(each.records))) for each in found] == [1200, 0, 700, 0]
    counts = broker.node.broker.replicas.metrics.all_topics()
    assert (counts.fetch_conversions, counts.produce_conversions) == (1900, 0)


def test_conversions_of_old_produce_requests_are_counted(broker: SimulatedBroker) -> None:
    rows = [Record(index, 1000, 0, None, b"v") for index in range(700)]
    request = produce_request("t", write_message_set(1, rows))
    assert broker.ask(request, 2).responses[0].partition_responses[0].error_code == 0
    counts = broker.node.broker.replicas.metrics.all_topics()
    assert (counts.fetch_conversions, counts.produce_conversions) == (0, 700)


def test_a_response_is_limited_and_makes_progress(
    broker: SimulatedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(old_versions, "CONVERTED_BYTES_MAX", 1000)
    for partition in range(PARTITIONS):
        fill(broker, partition, 200)
    sizes = [len(list(read_records(each.records))) for each in fetched(broker, 3, max_bytes=500)]
    assert sizes[:3] == [200, 0, 0], "the first batch is whole, then the limit is reached"
    # Below v3 no response is larger than the requested size.
    sizes = [len(each.records) for each in fetched(broker, 2, max_bytes=500)]
    assert sizes == [0, 0, 0, 0]
    sizes = [len(list(read_records(each.records))) for each in fetched(broker, 2, max_bytes=5000)]
    assert sizes[0] == 200
