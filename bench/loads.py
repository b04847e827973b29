"""Loads: produce and consume with librdkafka, and single requests over a plain socket."""

from __future__ import annotations

import itertools
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confluent_kafka.admin import AdminClient

    from bench.brokers import Broker

PARTITIONS = 4
ROUND_TRIPS = 20_000
# librdkafka's log level: warnings and above.
QUIET = 4
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Figure:
    """Cost of one load: CPU seconds of the broker per GB of values, and MB a second."""

    cpu_seconds_per_gb: float
    mb_per_second: float


def create_topic(
    broker: Broker,
    name: str,
    partitions: int = PARTITIONS,
    replicas: Sequence[Sequence[int]] | None = None,
) -> AdminClient:
    """Create a topic, wait until it can be used, and return the admin client.

    Args:
        broker: the broker, or a broker of the cluster.
        name: the name of the topic.
        partitions: the number of partitions, with one replica each.
        replicas: instead of `partitions`, the brokers of each partition, its leader first.
    """
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({**broker.client_settings, "log_level": QUIET})
    topic = NewTopic(name, partitions, 1)
    if replicas is not None:
        assignment = [list(each) for each in replicas]
        topic = NewTopic(name, len(assignment), replica_assignment=assignment)
    admin.create_topics([topic])[name].result(30)
    time.sleep(0.5)
    return admin


@contextmanager
def temporary_topic(
    broker: Broker,
    stem: str,
    partitions: int = PARTITIONS,
    replicas: Sequence[Sequence[int]] | None = None,
) -> Iterator[str]:
    """Create a topic (see `create_topic`), yield its name, and delete it at the end."""
    name = f"{stem}-{next(_NUMBERS)}"
    admin = create_topic(broker, name, partitions, replicas)
    yield name
    admin.delete_topics([name])[name].result(30)


def produce(broker: Broker, name: str, size: int, total: int, **config: object) -> Figure:
    """Produce `total` bytes in records of `size`, and wait for all acknowledgements."""
    from confluent_kafka import Producer

    settings = {
        **broker.client_settings,
        "queue.buffering.max.messages": 200_000,
        "log_level": QUIET,
    }
    producer = Producer({**settings, **{key.replace("_", "."): v for key, v in config.items()}})
    value = os.urandom(size // 2).hex().encode()
    count = total // size
    cpu, started = broker.cpu_seconds(), time.perf_counter()
    for _ in range(count):
        while True:
            try:
                producer.produce(name, value)
                break
            except BufferError:
                producer.poll(0.01)
    left = producer.flush(120)
    if left:
        raise SystemExit(f"{broker.name}: {left} records of {name} were not delivered")
    return _figure(broker, cpu, started, total)


def consume(broker: Broker, name: str, size: int, total: int) -> Figure:
    """Read `total` bytes from the start of the topic with librdkafka."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            **broker.client_settings,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([TopicPartition(name, number, 0) for number in range(PARTITIONS)])
    count = total // size
    cpu, started = broker.cpu_seconds(), time.perf_counter()
    while count > 0:
        records = consumer.consume(min(count, 10_000), timeout=10)
        if not records:
            raise SystemExit(f"{broker.name}: {count} records of {name} did not arrive")
        count -= len(records)
    figure = _figure(broker, cpu, started, total)
    consumer.close()
    return figure


def _figure(broker: Broker, cpu: float, started: float, total: int) -> Figure:
    elapsed = time.perf_counter() - started
    return Figure((broker.cpu_seconds() - cpu) * 1e9 / total, total / 1e6 / elapsed)


@dataclass(frozen=True)
class RoundTrip:
    """Times in µs of a client that sends one record of 100 bytes per request."""

    p50: float
    p99: float
    cpu: float


def round_trip(
    broker: Broker, name: str, acks: int = 1, round_trips: int = ROUND_TRIPS
) -> RoundTrip:
    """Send Produce v7 over a socket and wait for the response, repeatedly.

    The first quarter of the round trips does not count.
    """
    request = produce_request(name, acks)
    times = []
    with broker.connect() as connection:
        for number in range(round_trips):
            if number == round_trips // 4:
                cpu = broker.cpu_seconds()
            started = time.perf_counter_ns()
            connection.sendall(request)
            response = connection.recv(4096)
            times.append(time.perf_counter_ns() - started)
            if int.from_bytes(response[:4]) != len(response) - 4:
                raise SystemExit(f"{broker.name}: a response arrived in pieces")
    counted = sorted(times[round_trips // 4 :])
    spent = broker.cpu_seconds() - cpu
    return RoundTrip(
        counted[len(counted) // 2] / 1000,
        counted[len(counted) * 99 // 100] / 1000,
        spent * 1e6 / len(counted),
    )


def produce_request(name: str, acks: int = 1) -> bytes:
    """Return a Produce v7 request with one record of 100 bytes for partition 0."""
    from barnabas.protocol.codec import encode_request
    from barnabas.protocol.messages.produce import (
        PartitionProduceData,
        ProduceRequest,
        TopicProduceData,
    )
    from barnabas.record.builder import BatchBuilder

    batch = BatchBuilder()
    batch.append(int(time.time() * 1000), None, os.urandom(100))
    data = PartitionProduceData(index=0, records=bytes(batch.build()))
    request = ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=name, partition_data=[data])],
    )
    return b"".join(bytes(chunk) for chunk in encode_request(1, "bench", request, 7))
