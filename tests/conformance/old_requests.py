"""Short functions for requests and record sets of versions that Kafka 4.0 dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.record.builder import BatchBuilder
from barnabas.record.record import Record

if TYPE_CHECKING:
    from barnabas.protocol.messages.log_offsets import ListOffsetsPartitionResponse
    from conformance.raw_client import RawClient


def rows(count: int, timestamp: int, key: bool = True, value: bytes = b"v") -> list[Record]:
    """Return records at offsets from 0; the third has a null value."""
    return [
        Record(i, timestamp + i, 0, b"k%d" % i if key else None, None if i == 2 else value)
        for i in range(count)
    ]


def batch(
    count: int, timestamp: int, compression: int = 0, headers: bool = False, **options: int
) -> bytes:
    """Return a batch of magic 2."""
    builder = BatchBuilder(compression=compression, **options)
    for i in range(count):
        builder.append(timestamp + i, b"k%d" % i, b"v", [("h", b"x")] if headers else [])
    return bytes(builder.build())


def produce(
    raw: RawClient, topic: str, records: bytes, version: int, acks: int = 1
) -> PartitionProduceResponse:
    """Return the response for partition 0."""
    request = produce_request(topic, records, acks)
    return raw.ask(request, version).responses[0].partition_responses[0]


def produce_request(topic: str, records: bytes, acks: int = 1) -> ProduceRequest:
    """Return a request with records for partition 0."""
    data = PartitionProduceData(index=0, records=memoryview(bytearray(records)))
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=50_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )


def fetch(
    raw: RawClient, topic: str, offset: int, version: int, max_bytes: int = 1 << 20
) -> PartitionData:
    """Return the response for partition 0."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
    return raw.ask(request, version).responses[0].partitions[0]


def list_offsets(
    raw: RawClient, topic: str, timestamp: int, count: int = 1, partition: int = 0
) -> ListOffsetsPartitionResponse:
    """Return the response of ListOffsets v0 for one partition."""
    requested = ListOffsetsPartition(
        partition_index=partition, timestamp=timestamp, max_num_offsets=count
    )
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[requested])]
    )
    return raw.ask(request, 0).topics[0].partitions[0]
