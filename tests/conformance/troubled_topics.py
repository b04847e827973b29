"""Brokers of both kinds with a topic whose records cannot be read."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client.facade import Client
from barnabas.record.batch import HEADER_SIZE, batches
from barnabas.record.compiled import crc32c
from barnabas.testing.broker_process import BrokerProcess
from jvm.kafka_process import KafkaProcess

Broker = BrokerProcess | KafkaProcess

CRC_POSITION, CRC_END = 17, 21


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap) as made:
        yield made


def write(client: Client, topic: str, partition: int, *values: str, codec: str = "none") -> None:
    """Write one batch; the long linger keeps it in one piece on a slow machine."""
    with client.producer(compression_type=codec, linger_ms=60_000) as producer:
        records = [(None, value.encode(), (), None) for value in values]
        producer.send_batch(topic, records, partition=partition)


def make_topic(client: Client, partitions: int = 2) -> str:
    name = f"trouble-{uuid.uuid4().hex[:8]}"
    client.create_topic(name, partitions=partitions, replication_factor=1)
    return name


def segment(broker: Broker, topic: str, partition: int) -> Path:
    return broker.data_directory / f"{topic}-{partition}" / f"{0:020}.log"


def break_checksum(data: bytearray, start: int, _end: int) -> None:
    data[start + CRC_POSITION] ^= 1


def break_payload(data: bytearray, start: int, end: int) -> None:
    """Replace the payload with bytes that no codec can read, and correct the checksum."""
    data[start + HEADER_SIZE : end] = b"\xff" * (end - start - HEADER_SIZE)
    checksum = crc32c(memoryview(data)[start + CRC_END : end])
    data[start + CRC_POSITION : start + CRC_END] = checksum.to_bytes(4, "big")


@pytest.fixture(params=[break_checksum, break_payload], ids=["checksum", "payload"])
def broken_topic(request: pytest.FixtureRequest, broker: Broker, client: Client) -> str:
    """Partition 0: offsets 0-2, broken 3-5, 6-8; partition 1: offsets 0-2 and 3-5."""
    topic = make_topic(client)
    for values in ("abc", "def", "ghi"):
        write(client, topic, 0, *values, codec="zstd")
    for values in ("rst", "uvw"):
        write(client, topic, 1, *values, codec="zstd")
    path = segment(broker, topic, 0)
    data = bytearray(path.read_bytes())
    starts = [(position, header) for position, header in batches(data)]
    assert [header.base_offset for _, header in starts] == [0, 3, 6]
    position, header = starts[1]
    request.param(data, position, position + header.size)
    with path.open("r+b") as file:
        file.write(data)
    return topic
