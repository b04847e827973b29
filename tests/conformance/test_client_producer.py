"""`barnabas.Producer` and `barnabas.aio.Producer` against our broker and against Apache Kafka."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import barnabas
from barnabas.client.errors import (
    BufferFullError,
    ClientError,
    ClientTimeoutError,
    UnfitRecordError,
)
from barnabas.client.facade import Client
from barnabas.client.fetch.record_set import read_records
from barnabas.client.producer.producer_batch import RecordMetadata
from barnabas.client.producer.user_objects import ProducerRecord
from barnabas.record.record import Record
from barnabas.serializers import serialize_json, serialize_string
from barnabas.testing.broker_process import BrokerProcess
from conformance.client_brokers import broker
from jvm.kafka_process import KafkaProcess
from waiting import PATIENCE_S

pytestmark = pytest.mark.conformance
__all__ = ["broker"]

Broker = BrokerProcess | KafkaProcess


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap, default_api_timeout_ms=30_000) as made:
        yield made


@pytest.fixture
def topic(client: Client) -> str:
    name = f"producer-{uuid.uuid4().hex[:8]}"
    client.create_topic(name, partitions=3, replication_factor=1)
    return name


def read(client: Client, topic: str) -> list[Record]:
    """Return all records of a topic, in the order of partitions."""
    ends = client.list_offsets(dict.fromkeys([(topic, number) for number in range(3)], "latest"))
    found: dict[int, list[Record]] = {}
    for batch in client.fetch_range({tp: (0, end.offset) for tp, end in ends.items()}):
        found.setdefault(batch.partition, []).extend(read_records(batch))
    return [record for number in sorted(found) for record in found[number]]


def test_a_producer_returns_partition_and_offset_of_records(broker: Broker, topic: str) -> None:
    with barnabas.Producer(bootstrap_servers=broker.bootstrap, linger_ms=0) as producer:
        first = producer.send(topic, b"a", partition=1, timestamp_ms=1000)
        second = producer.send(topic, b"b", partition=1)
        assert second.result(timeout=PATIENCE_S).offset == 1
        assert first.done()
        assert first.result() == RecordMetadata(topic, 1, 0, 1000)
        assert [each.partition for each in producer.partitions_for(topic)] == [0, 1, 2]


def test_values_and_keys_are_serialized(broker: Broker, client: Client, topic: str) -> None:
    with barnabas.Producer(
        broker.bootstrap, key_serializer=serialize_string, value_serializer=serialize_json
    ) as producer:
        producer.send(topic, {"n": 1}, "key")
        producer.send(topic, None, "key")
    assert [(each.key, each.value) for each in read(client, topic)] == [
        (b"key", b'{"n":1}'),
        (b"key", None),
    ]


def test_a_record_that_cannot_be_serialized_is_not_sent(
    broker: Broker, client: Client, topic: str
) -> None:
    with barnabas.Producer(broker.bootstrap, value_serializer=serialize_json) as producer:
        with pytest.raises(TypeError):
            producer.send(topic, object())
        producer.send(topic, 1)
    assert [each.value for each in read(client, topic)] == [b"1"]


def test_an_invalid_record_does_not_affect_other_records(
    broker: Broker, client: Client, topic: str
) -> None:
    unfit: Any = "text"
    with barnabas.Producer(broker.bootstrap, linger_ms=50) as producer:
        for partition in (0, 1):
            with pytest.raises(UnfitRecordError, match="its value is a str"):
                producer.send(topic, unfit, partition=partition)
            producer.send(topic, b"sent", partition=0)
            with pytest.raises(UnfitRecordError, match="set key_serializer"):
                producer.send(topic, b"x", unfit)
        records = [(None, b"first", [], None), (None, unfit, [], None)]
        with pytest.raises(UnfitRecordError):
            producer.send_batch(topic, records, 2)
    assert [each.value for each in read(client, topic)] == [b"sent", b"sent", b"first"]


def test_a_custom_partitioner_and_interceptor_are_called(
    broker: Broker, client: Client, topic: str
) -> None:
    class Counting:
        def __init__(self) -> None:
            self.acknowledged: list[RecordMetadata | None] = []

        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(headers=[("sent", b"yes")])

        def on_acknowledgement(
            self, metadata: RecordMetadata | None, error: ClientError | None
        ) -> None:
            assert error is None
            self.acknowledged.append(metadata)

        def close(self) -> None:
            pass

    counting = Counting()
    with barnabas.Producer(
        broker.bootstrap,
        partitioner=lambda key, partitions, _available: partitions[len(key or b"") % 3],
        interceptors=[counting],
    ) as producer:
        for key in (b"", b"1", b"22"):
            producer.send(topic, b"x", key)
    assert sorted(each.partition for each in counting.acknowledged if each is not None) == [0, 1, 2]
    assert [list(each.headers) for each in read(client, topic)] == [[("sent", b"yes")]] * 3


def test_round_robin_spreads_records_evenly(broker: Broker, topic: str) -> None:
    with barnabas.Producer(broker.bootstrap, partitioner="round_robin") as producer:
        sent = [producer.send(topic, b"x") for _ in range(30)]
        producer.flush()
        places = [each.result().partition for each in sent]
    assert [places.count(number) for number in range(3)] == [10, 10, 10]


@pytest.mark.parametrize(
    ("codec", "level"), [("gzip", 1), ("gzip", 9), ("lz4", 17), ("zstd", -5), ("zstd", 19)]
)
def test_every_level_of_compression_is_read_back(
    broker: Broker, client: Client, topic: str, codec: str, level: int
) -> None:
    with barnabas.Producer(
        broker.bootstrap, compression_type=codec, **{f"compression_{codec}_level": level}
    ) as producer:
        for number in range(500):
            producer.send(topic, b"value %d" % number, partition=0)
    assert [each.value for each in read(client, topic)] == [b"value %d" % n for n in range(500)]


def test_flush_and_close_respect_their_timeouts(broker: Broker, topic: str) -> None:
    producer = barnabas.Producer(broker.bootstrap, linger_ms=60_000)
    producer.send(topic, b"x", partition=0).add_done_callback(lambda _delivery: None)
    producer.flush(timeout=PATIENCE_S)
    delivery = producer.send(topic, b"never", partition=0)
    producer.close(flush=False)
    assert delivery.done()
    assert isinstance(delivery.exception(), ClientError)


def test_a_missing_cluster_blocks_the_caller_for_max_block_ms() -> None:
    producer = barnabas.Producer("127.0.0.1:1", max_block_ms=200)
    with pytest.raises(ClientError, match=r"127\.0\.0\.1:1"):
        producer.send("topic", b"x")
    producer.close()


def test_a_full_buffer_blocks_send_for_max_block_ms(broker: Broker, topic: str) -> None:
    """Without a broker the buffer fills, and sending fails after max.block.ms."""
    with barnabas.Producer(
        broker.bootstrap, buffer_memory=300_000, batch_size=100_000, max_block_ms=300
    ) as producer:
        producer.send(topic, b"x", partition=0).result(PATIENCE_S)
        broker.kill()
        try:
            with pytest.raises(BufferFullError, match="300000"):
                producer.send_batch(topic, [(None, b"x" * 1000, (), None)] * 400, partition=0)
            with pytest.raises(ClientTimeoutError):
                producer.flush(timeout=0.1)
        finally:
            broker.start()
        producer.flush(timeout=PATIENCE_S)
        assert producer.failed == 0


def test_threads_share_a_producer(broker: Broker, client: Client, topic: str) -> None:
    numbers = [b"%d" % number for number in range(8_000)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with (
            barnabas.Producer(broker.bootstrap, linger_ms=10) as producer,
            ThreadPoolExecutor(4) as threads,
        ):
            sent = list(threads.map(lambda number: producer.send(topic, number), numbers))
            offsets = set(threads.map(lambda delivery: delivery.result().offset, sent[-100:]))
    finally:
        sys.setswitchinterval(interval)
    assert offsets
    assert sorted(each.value or b"" for each in read(client, topic)) == sorted(numbers)


def test_a_callback_sends_records_and_cannot_wait(
    broker: Broker, client: Client, topic: str
) -> None:
    refused: list[str] = []

    def on_delivery(_metadata: RecordMetadata | None, _error: ClientError | None) -> None:
        delivery = producer.send(topic, b"second", partition=0)
        for wait in (producer.flush, producer.close, delivery.result):
            with pytest.raises(ClientError, match="a callback cannot wait") as error:
                wait()
            refused.append(str(error.value))

    with barnabas.Producer(broker.bootstrap) as producer:
        producer.send(topic, b"first", partition=0, on_delivery=on_delivery).result(PATIENCE_S)
    assert len(refused) == 3
    assert [each.value for each in read(client, topic)] == [b"first", b"second"]


def test_the_asyncio_producer_returns_deliveries(
    broker: Broker, client: Client, topic: str
) -> None:
    async def produce() -> list[RecordMetadata]:
        async with barnabas.aio.Producer(
            bootstrap_servers=broker.bootstrap, value_serializer=serialize_json, linger_ms=60_000
        ) as producer:
            deliveries = [await producer.send(topic, number, partition=0) for number in range(50)]
            await producer.send_batch(topic, [(None, 50, (), None)], partition=0)
            with pytest.raises(asyncio.InvalidStateError):
                deliveries[0].result()
            await producer.flush()
            places = await asyncio.gather(*deliveries)
            assert deliveries[0].result() == places[0]
            return places

    places = asyncio.run(produce())
    assert [each.offset for each in places] == list(range(50))
    assert [each.value for each in read(client, topic)] == [b"%d" % n for n in range(51)]


def test_tasks_share_a_producer_and_a_small_buffer(broker: Broker, topic: str) -> None:
    async def produce() -> int:
        config: dict[str, Any] = {"buffer_memory": 50_000, "batch_size": 10_000}
        async with barnabas.aio.Producer(broker.bootstrap, **config) as producer:

            async def task(partition: int) -> list[int]:
                sent = [
                    await producer.send(topic, b"x" * 500, partition=partition) for _ in range(300)
                ]
                return [(await each).offset for each in sent]

            found = await asyncio.gather(*(task(number) for number in range(3)))
            assert found == [list(range(300))] * 3
            return producer.delivered

    assert asyncio.run(produce()) == 900
