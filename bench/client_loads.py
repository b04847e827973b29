"""Runs one client library that reads or writes a topic, and prints its cost as JSON.

    python -m bench.client_loads consume barnabas 127.0.0.1:9092 topic 1000000 100

Each reader accesses offset, key and value of every record. Wall time and the processor time of all
threads are taken from the first batch that was read to the last, or from the first send to the end
of the flush, without imports and connecting.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

PARTITIONS = 4
FLUSH_SECONDS = 120


class Meter:
    """Wall and processor time from the first `note` to the last."""

    def __init__(self) -> None:
        # Records, wall seconds, processor seconds.
        self._first: tuple[int, float, float] | None = None
        self._last = (0, 0.0, 0.0)

    def note(self, records: int) -> None:
        """Count this many records read or written."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self._last = (records, time.perf_counter(), usage.ru_utime + usage.ru_stime)
        if self._first is None:
            self._first = self._last

    def figures(self) -> dict[str, float]:
        """Return the figures of the records between the first and the last note."""
        if self._first is None:
            raise SystemExit("no records were measured")
        records, wall, cpu = (
            last - first for first, last in zip(self._first, self._last, strict=True)
        )
        return {
            "records": records,
            "per_second": records / wall,
            "cpu_us": cpu * 1e6 / records,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        }


# Readers. Each returns the number of records and the sum of the accessed sizes.


def read_barnabas_batches(meter: Meter, address: str, topic: str, count: int) -> tuple[int, int]:
    """Read columns of each batch."""
    from barnabas import Consumer

    seen = touched = 0
    with Consumer(bootstrap_servers=address, max_poll_records=50_000) as consumer:
        assign_all(consumer, topic)
        while seen < count:
            for part in consumer.poll(10).batches():
                touched += sum(part.offsets)
                touched += sum(map(len, part.keys)) + sum(map(len, part.values))
                seen += len(part)
                meter.note(seen)
    return seen, touched


def read_barnabas_records(meter: Meter, address: str, topic: str, count: int) -> tuple[int, int]:
    """Read record by record from each poll."""
    from barnabas import Consumer

    seen = touched = 0
    with Consumer(bootstrap_servers=address, max_poll_records=50_000) as consumer:
        assign_all(consumer, topic)
        while seen < count:
            records = consumer.poll(10)
            for record in records:
                touched += record.offset + len(record.key or b"") + len(record.value or b"")
            seen += len(records)
            meter.note(seen)
    return seen, touched


def assign_all(consumer: Any, topic: str) -> None:
    """Assign all partitions, from their beginnings."""
    consumer.assign([(topic, number) for number in range(PARTITIONS)])
    consumer.seek_to_beginning()


def read_confluent(meter: Meter, address: str, topic: str, count: int) -> tuple[int, int]:
    """Read with librdkafka's fastest settings: large batches, and no queue backoff."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    seen = touched = 0
    while seen < count:
        records = consumer.consume(10_000, timeout=10)
        for record in records:
            touched += record.offset() + len(record.key()) + len(record.value())
        seen += len(records)
        meter.note(seen)
    return seen, touched


def read_aiokafka(meter: Meter, address: str, topic: str, count: int) -> tuple[int, int]:
    """Read by `getmany` without a limit."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def read() -> tuple[int, int]:
        consumer = AIOKafkaConsumer(bootstrap_servers=address, enable_auto_commit=False)
        await consumer.start()
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        seen = touched = 0
        while seen < count:
            for records in (await consumer.getmany(timeout_ms=10_000)).values():
                for record in records:
                    touched += record.offset + len(record.key) + len(record.value)
                seen += len(records)
                meter.note(seen)
        await consumer.stop()
        return seen, touched

    return asyncio.run(read())


def read_kafka_python(meter: Meter, address: str, topic: str, count: int) -> tuple[int, int]:
    """Read by `poll` with a large limit."""
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=address, enable_auto_commit=False)
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    seen = touched = 0
    while seen < count:
        for records in consumer.poll(10_000, max_records=10_000).values():
            for record in records:
                touched += record.offset + len(record.key) + len(record.value)
            seen += len(records)
            meter.note(seen)
    consumer.close()
    return seen, touched


# Writers of `count` records with keys, all of which are acknowledged at the end.


def payloads(count: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield values, with 1,000 different keys of 8 bytes."""
    keys = [b"%08d" % number for number in range(1000)]
    value = os.urandom(size // 2).hex().encode()
    for number in range(count):
        yield keys[number % 1000], value


def write_barnabas(meter: Meter, address: str, topic: str, count: int, size: int) -> None:
    """Write record by record."""
    from barnabas import Producer

    with Producer(address) as producer:
        producer.send(topic, b"", b"first", 0)
        producer.flush()
        meter.note(0)
        send = producer.send
        for key, value in payloads(count, size):
            send(topic, value, key)
        producer.flush()
        meter.note(count)


def write_barnabas_batches(meter: Meter, address: str, topic: str, count: int, size: int) -> None:
    """Write many records per call."""
    from barnabas import Producer

    with Producer(address) as producer:
        producer.send(topic, b"", b"first", 0)
        producer.flush()
        meter.note(0)
        producer.send_batch(topic, ((key, value, (), None) for key, value in payloads(count, size)))
        producer.flush()
        meter.note(count)


def write_confluent(meter: Meter, address: str, topic: str, count: int, size: int) -> None:
    """Write with librdkafka and a sufficiently large queue."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "queue.buffering.max.messages": 200_000})
    producer.produce(topic, b"", b"first", 0)
    producer.flush(FLUSH_SECONDS)
    meter.note(0)
    for key, value in payloads(count, size):
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(FLUSH_SECONDS):
        raise SystemExit("records were not delivered")
    meter.note(count)


def write_aiokafka(meter: Meter, address: str, topic: str, count: int, size: int) -> None:
    """Write by `send` without waiting for each record, the fastest way record by record."""
    from aiokafka import AIOKafkaProducer

    async def write() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=address, acks="all", enable_idempotence=True, linger_ms=5,
            max_batch_size=131_072,
        )  # fmt: skip
        await producer.start()
        await producer.send_and_wait(topic, b"", b"first", 0)
        meter.note(0)
        for key, value in payloads(count, size):
            await producer.send(topic, value, key)
        await producer.flush()
        meter.note(count)
        await producer.stop()

    asyncio.run(write())


def write_kafka_python(meter: Meter, address: str, topic: str, count: int, size: int) -> None:
    """Write by `send` without waiting for each record."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address, acks="all", linger_ms=5, batch_size=131_072)
    producer.send(topic, b"", b"first", partition=0).get(FLUSH_SECONDS)
    meter.note(0)
    for key, value in payloads(count, size):
        producer.send(topic, value, key)
    producer.flush(FLUSH_SECONDS)
    meter.note(count)
    producer.close()


# Memory of the Barnabas consumer.


def resident_mb() -> float:
    """Return the resident memory, MB."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def memory_of_reading(address: str, topic: str, count: int, total: int) -> dict[str, float]:
    """Return the resident MB after the first tenth of `total` records and at the end."""
    from barnabas import Consumer

    seen, early = 0, 0.0
    with Consumer(bootstrap_servers=address, max_poll_records=50_000) as consumer:
        assign_all(consumer, topic)
        here = 0
        while seen < total:
            for part in consumer.poll(10).batches():
                here += len(part)
                seen += len(part.values)
            if not early and seen >= total // 10:
                early = resident_mb()
            if here >= count:
                here = 0
                consumer.seek_to_beginning()
        return {"records": seen, "early_mb": early, "late_mb": resident_mb()}


def memory_when_slow(address: str, topic: str, seconds: float) -> dict[str, float]:
    """Return the resident MB before the first poll, and the maximum with polls of 100 records."""
    from barnabas import Consumer

    with Consumer(bootstrap_servers=address, max_poll_records=100) as consumer:
        assign_all(consumer, topic)
        before, most, seen = resident_mb(), 0.0, 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            seen += len(consumer.poll(1))
            time.sleep(0.02)
            most = max(most, resident_mb())
        return {"records": seen, "early_mb": before, "late_mb": most}


READERS: dict[str, Callable[[Meter, str, str, int], tuple[int, int]]] = {
    "barnabas, batches": read_barnabas_batches,
    "barnabas, records": read_barnabas_records,
    "confluent-kafka": read_confluent,
    "aiokafka": read_aiokafka,
    "kafka-python": read_kafka_python,
}
WRITERS: dict[str, Callable[[Meter, str, str, int, int], None]] = {
    "barnabas, send": write_barnabas,
    "barnabas, send_batch": write_barnabas_batches,
    "confluent-kafka": write_confluent,
    "aiokafka": write_aiokafka,
    "kafka-python": write_kafka_python,
}


def main(what: str, client: str, address: str, topic: str, count: int, size: int) -> None:
    """Run one load and print its figures."""
    meter = Meter()
    if what == "consume":
        seen, touched = READERS[client](meter, address, topic, count)
        figures = {**meter.figures(), "seen": seen, "touched": touched}
    elif what == "produce":
        WRITERS[client](meter, address, topic, count, size)
        figures = meter.figures()
    elif what == "memory":
        figures = memory_of_reading(address, topic, count, 10_000_000)
    else:
        figures = memory_when_slow(address, topic, 20.0)
    print(json.dumps(figures))


if __name__ == "__main__":
    kind, name, server, topic_name, number, bytes_each = sys.argv[1:]
    main(kind, name, server, topic_name, int(number), int(bytes_each))
