"""Produce requests with batches of chosen timestamps, and what a broker stores of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.record.batch import (
    BatchHeader,
    batches,
    check_crc,
)
from barnabas.record.reader import records_of

if TYPE_CHECKING:
    from barnabas.record.record import Record
    from conformance.raw_client import RawClient


def produce(raw: RawClient, topic: str, records: bytes | bytearray) -> Any:
    data = PartitionProduceData(index=0, records=bytes(records))
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=50_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    response: Any = raw.ask(request, 9)
    return response.responses[0].partition_responses[0]


def error_of(raw: RawClient, topic: str, records: bytes | bytearray) -> str:
    return ErrorCode(produce(raw, topic, records).error_code).name


def stored(raw: RawClient, topic: str) -> list[tuple[BatchHeader, list[Record]]]:
    """Return the content of the topic, with all checksums verified."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 24)
    topics = [FetchTopic(topic=topic, partitions=[partition])]
    request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 24, topics=topics)
    response: Any = raw.ask(request, 11)
    data = bytes(response.responses[0].partitions[0].records or b"")
    found = list(batches(data))
    assert all(check_crc(data, position, header) for position, header in found)
    return [(header, list(records_of(data, position, header))) for position, header in found]


def now_ms() -> int:
    return int(time.time() * 1000)
