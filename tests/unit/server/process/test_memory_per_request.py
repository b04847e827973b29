"""Requests leave nothing in the memory of the broker: the memory after many is that after few."""

from __future__ import annotations

import asyncio
import gc
import struct
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator

import pytest

from barnabas.protocol.codec import encode_request
from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.connection import ApiVersionsRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.groups import HeartbeatRequest
from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.metadata import (
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.transactions import InitProducerIdRequest
from barnabas.protocol.schema import Message
from barnabas.record.builder import build_batch
from barnabas.record.record import Record
from barnabas.server.listeners.listener import address_of
from barnabas.testing import BrokerOnLoop, running_broker

TOPIC = "t"
WARM_UP, REQUESTS = 200, 400
# A leak of one object or buffer for each request is larger. Tables that double, and index entries
# of the segment (20 bytes for 4 KiB of records), are smaller.
BYTES_PER_REQUEST_MAX = 100


def produce() -> Message:
    batch = build_batch([Record(0, 1, 0, b"key", b"value")])
    data = PartitionProduceData(index=0, records=memoryview(bytearray(batch)))
    topic = TopicProduceData(name=TOPIC, partition_data=[data])
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


def fetch() -> Message:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic=TOPIC, partitions=[partition])
    return FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=0, topics=[topic])


def commit() -> Message:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=None
    )
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    return OffsetCommitRequest(group_id="g", topics=[topic])


def list_offsets() -> Message:
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[partition])]
    )


KINDS: dict[str, tuple[Callable[[], Message], int]] = {
    "produce": (produce, 9),
    "fetch": (fetch, 11),
    "commit": (commit, 7),
    "list offsets": (list_offsets, 5),
    "metadata": (lambda: MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 9),
    "refused heartbeat": (
        lambda: HeartbeatRequest(group_id="g", generation_id=1, member_id="unknown"),
        4,
    ),
    "find coordinator": (lambda: FindCoordinatorRequest(coordinator_keys=["g"]), 4),
    "producer id": (
        lambda: InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=1000),
        4,
    ),
}


class Connection:
    """A connection to a broker of the same loop."""

    def __init__(self, broker: BrokerOnLoop) -> None:
        self._address = broker.bootstrap.rpartition(":")

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(
            self._address[0], int(self._address[2])
        )

    async def exchange(self, message: Message, version: int) -> None:
        chunks = encode_request(1, "client", message, version)
        self._writer.write(b"".join(bytes(chunk) for chunk in chunks))
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        await self._reader.readexactly(size)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


def held_bytes() -> int:
    """Return the bytes of all objects, buffers and arrays of this process."""
    # This cache has a limit, which the test does not reach.
    address_of.cache_clear()
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def growth_of(exchange: Callable[[], Awaitable[None]]) -> int:
    """Return how many bytes `REQUESTS` exchanges after the first ones leave."""
    for _ in range(WARM_UP):
        await exchange()
    before = held_bytes()
    for _ in range(REQUESTS):
        await exchange()
    return held_bytes() - before


@pytest.fixture(autouse=True)
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_a_request_leaves_no_memory_behind(kind: str) -> None:
    make, version = KINDS[kind]

    async def run() -> int:
        async with running_broker(topics=[TOPIC]) as broker:
            connection = Connection(broker)
            await connection.open()
            try:
                return await growth_of(lambda: connection.exchange(make(), version))
            finally:
                await connection.close()

    assert asyncio.run(run()) < REQUESTS * BYTES_PER_REQUEST_MAX


def test_a_connection_leaves_no_memory_behind() -> None:
    async def run() -> int:
        async with running_broker() as broker:

            async def connect_and_close() -> None:
                connection = Connection(broker)
                await connection.open()
                await connection.exchange(ApiVersionsRequest(), 0)
                await connection.close()

            return await growth_of(connect_and_close)

    assert asyncio.run(run()) < REQUESTS * BYTES_PER_REQUEST_MAX
