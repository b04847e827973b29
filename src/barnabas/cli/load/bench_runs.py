"""The loads of `barnabas bench`: produce, consume, and end to end.

With a rate, the due time of a record does not depend on earlier records, and its latency counts
from the due time. A broker that stalls for a second therefore delays all records of that second,
and all these delays count. Latency from the actual send would omit them ("coordinated omission").

End to end, producer and consumer run on one event loop. One clock therefore measures the path of a
record, and neither side waits for the other. A value starts with the id of the run and the number
of the record, which identify it on arrival.
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from barnabas.client.aio.consumer import Consumer
from barnabas.client.aio.producer import Producer
from barnabas.client.errors import ClientTimeoutError, CorruptRecordsError
from barnabas.client.fetch.record_set import read_records
from barnabas.client.topic_partition import TopicPartition
from barnabas.record.record import CorruptBatchError
from barnabas.runtime.loop import new_loop

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.cli.load.measurement import Load, Measurement
    from barnabas.client.facade import Client
    from barnabas.client.fetch.record_set import RecordSet
    from barnabas.client.producer.producer import SharedProducer
    from barnabas.record.compiled import CompiledRecord

# Number of records between two reads of the clock.
_AT_ONCE = 200
# Longest wait for acknowledgements before the next check for due records (ms).
_POLL_DELIVERIES_MS = 1.0
_US_PER_S = 1_000_000


def run_produce(
    producer: SharedProducer, topic: str, load: Load, measurement: Measurement
) -> KeyboardInterrupt | None:
    """Send the load and wait for all acknowledgements.

    Returns:
        The interrupt that ended the sending, if any. Sent records are still waited for.
    """
    producer.partitions_for(topic)
    measurement.start()
    try:
        _send_all(producer, topic, load, measurement)
    except KeyboardInterrupt as interrupt:
        producer.close()
        return interrupt
    finally:
        measurement.end()
    return None


def _send_all(producer: SharedProducer, topic: str, load: Load, measurement: Measurement) -> None:
    schedule, payloads = Schedule(load), Payloads(load)
    sent = 0
    while True:
        now = time.perf_counter()
        if schedule.is_over(sent, now):
            break
        ahead = schedule.ready(sent, now, _AT_ONCE)
        for number in range(sent, sent + ahead):
            value, key = payloads.value(number), payloads.key(number)
            size = len(value) + len(key or b"")
            ended = _Ended(measurement, schedule.due_s(number, time.perf_counter()), size)
            producer.send(topic, value, key, on_delivery=ended)
        sent += ahead
        measurement.maybe_end_interval()
        if ahead == _AT_ONCE or load.rate is None:
            producer.poll(0)
        elif not schedule.is_over(sent, now):
            _wait(producer, schedule.due_s(sent, now))
    producer.flush()


def _wait(producer: SharedProducer, until_s: float) -> None:
    """Process acknowledgements until the next record is due."""
    remaining_ms = (until_s - time.perf_counter()) * 1000
    producer.poll(max(0.0, min(_POLL_DELIVERIES_MS, remaining_ms)))
    remaining_s = until_s - time.perf_counter()
    if remaining_s > 0:
        # `poll` returns at once if no records are in flight.
        time.sleep(min(remaining_s, _POLL_DELIVERIES_MS / 1000))


class _Ended:
    """The callback that counts one record when it is acknowledged or has failed."""

    __slots__ = ("_due_s", "_measurement", "_size")

    def __init__(self, measurement: Measurement, due_s: float, size: int) -> None:
        self._measurement = measurement
        self._due_s = due_s
        self._size = size

    def __call__(self, _metadata: object, error: Exception | None) -> None:
        if error is not None:
            self._measurement.fail(error)
            return
        latency_us = int((time.perf_counter() - self._due_s) * _US_PER_S)
        self._measurement.add(1, self._size, latency_us)


_POLL_RECORDS_MS = 100.0


def run_consume(
    client: Client,
    topic: str,
    measurement: Measurement,
    *,
    records_max: int | None,
    seconds_max: float | None,
    idle_s: float,
) -> KeyboardInterrupt | None:
    """Read the topic from its beginning.

    The run ends after `records_max` records, after `seconds_max` seconds, or when no records arrive
    for `idle_s` seconds. Without the first two limits, it ends at the current end of the topic. A
    latency is the time from one record set to the next.

    Returns:
        The interrupt that ended the reading, if any.

    Raises:
        CorruptRecordsError: Records cannot be decoded.
    """
    numbers = client.partitions_for([topic])[topic]
    partitions = [TopicPartition(topic, number) for number in numbers]
    starts = client.list_offsets(dict.fromkeys(partitions, "earliest"))
    ends = client.list_offsets(dict.fromkeys(partitions, "latest"))
    is_bounded = records_max is None and seconds_max is None
    ranges = {tp: (starts[tp].offset, ends[tp].offset if is_bounded else None) for tp in partitions}
    measurement.start()
    last = time.perf_counter()
    try:
        with client.stream(ranges) as stream:
            while not stream.is_finished:
                found = stream.poll(_POLL_RECORDS_MS)
                now = time.perf_counter()
                measurement.maybe_end_interval()
                if found is not None:
                    records = _decoded(found)
                    if records_max is not None:
                        records = records[: records_max - measurement.records]
                    size = sum(len(each.key or b"") + len(each.value or b"") for each in records)
                    measurement.add(len(records), size, int((now - last) * _US_PER_S))
                    last = time.perf_counter()
                if records_max is not None and measurement.records >= records_max:
                    break
                if seconds_max is not None and now - measurement.started_s >= seconds_max:
                    break
                if now - last >= idle_s:
                    break
    except KeyboardInterrupt as interrupt:
        return interrupt
    finally:
        measurement.end()
    return None


def _decoded(found: RecordSet) -> Sequence[CompiledRecord]:
    try:
        return read_records(found)
    except CorruptBatchError as error:
        tp = TopicPartition(found.topic, found.partition)
        raise CorruptRecordsError(tp, found.first_offset, str(error), found.end_offset) from error


_HEAD = struct.Struct(">8sQ")
HEAD_SIZE = _HEAD.size
_POLL_S = 0.1


class _Run:
    """One run, with the records that were sent but have not arrived yet."""

    def __init__(self, topic: str, load: Load, measurement: Measurement) -> None:
        self.topic = topic
        self.load = load
        self.measurement = measurement
        self.id = os.urandom(8)
        # Record number -> due time (s), for records that have neither arrived nor failed.
        self.waiting: dict[int, float] = {}
        self.all_sent = False

    async def send_all(self, producer: Producer) -> None:
        """Send each record at its due time.

        Without a rate, send each record after the previous one has arrived.
        """
        schedule, payloads = Schedule(self.load), Payloads(self.load)
        number = 0
        while not schedule.is_over(number, time.perf_counter()):
            if self.load.rate is None and self.waiting:
                await asyncio.sleep(0)
                continue
            due_s = schedule.due_s(number, time.perf_counter())
            delay_s = due_s - time.perf_counter()
            if delay_s > 0:
                await asyncio.sleep(delay_s)
            value = _HEAD.pack(self.id, number) + payloads.value(number)[HEAD_SIZE:]
            self.waiting[number] = due_s
            await producer.send(
                self.topic, value, payloads.key(number), on_delivery=self._on_delivery(number)
            )
            number += 1
        self.all_sent = True

    def _on_delivery(self, number: int) -> Any:
        def ended(_metadata: object, error: Exception | None) -> None:
            if error is not None and self.waiting.pop(number, None) is not None:
                self.measurement.fail(error)

        return ended

    async def receive_all(self, consumer: Consumer, idle_s: float) -> None:
        """Receive records until all have arrived.

        Raises:
            ClientTimeoutError: A record did not arrive within `idle_s` seconds of its due time.
        """
        while self.waiting or not self.all_sent:
            found = await consumer.poll(_POLL_S)
            now = time.perf_counter()
            self.measurement.maybe_end_interval()
            for part in found.batches():
                for key, value in zip(part.keys, part.values, strict=True):
                    if value is None or value[:8] != self.id or len(value) < HEAD_SIZE:
                        continue
                    due_s = self.waiting.pop(_HEAD.unpack_from(value)[1], None)
                    if due_s is not None:
                        size = len(key or b"") + len(value)
                        self.measurement.add(1, size, int((now - due_s) * _US_PER_S))
            # The dictionary is in sending order, so its first record was due first.
            oldest_s = next(iter(self.waiting.values()), now)
            if now - oldest_s >= idle_s:
                missing = len(self.waiting)
                raise ClientTimeoutError(f"{missing} records did not arrive within {idle_s:g} s")


def run_latency(
    config: Mapping[str, Any], topic: str, load: Load, measurement: Measurement, idle_s: float
) -> KeyboardInterrupt | None:
    """Send the load and read it back.

    Args:
        config: Configuration of both clients, with `bootstrap_servers`.
        topic: An existing topic.
        load: The load, with values of at least HEAD_SIZE bytes.
        measurement: Receives the results.
        idle_s: Time to wait for a missing record (s).

    Returns:
        The interrupt that ended the run, if any.

    Raises:
        ClientError: A client failed, or records did not arrive.
    """
    run = _Run(topic, load, measurement)
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_run(run, dict(config), idle_s))
    except KeyboardInterrupt as interrupt:
        return interrupt
    finally:
        measurement.end()
    return None


async def _run(run: _Run, config: dict[str, Any], idle_s: float) -> None:
    # The producer sends each record at once, and the broker answers a fetch at the first byte.
    both = {**config, "fetch_min_bytes": 1}
    producing = {"linger_ms": 0, **both}
    async with Producer(**producing) as producer, Consumer(**both) as consumer:
        numbers = [each.partition for each in await producer.partitions_for(run.topic)]
        partitions = [(run.topic, number) for number in numbers]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        for tp, offset in ends.items():
            consumer.seek(tp, offset)
        # Open connections and fetch sessions before the measurement starts.
        await consumer.poll(_POLL_S)
        run.measurement.start()
        sending = asyncio.ensure_future(run.send_all(producer))
        try:
            receiving = asyncio.ensure_future(run.receive_all(consumer, idle_s))
            done, _ = await asyncio.wait((sending, receiving), return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            # Records abandoned from here on are not failures of the broker.
            run.waiting.clear()
            for task in (sending, receiving):
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task


# Number of different values, so that compression does not see identical records.
_VALUES = 256


class Schedule:
    """The due times of the records of a run, and whether the run is over."""

    def __init__(self, load: Load) -> None:
        self._load = load
        planned = [] if load.records_max is None else [load.records_max]
        if load.rate is not None and load.seconds_max is not None:
            planned.append(math.ceil(load.rate * load.seconds_max))
        # Number of records in the run; None if only the time ends the run.
        self.planned = min(planned, default=None)
        self.started_s = time.perf_counter()

    def ready(self, sent: int, now: float, at_once: int) -> int:
        """Return how many further records may be sent now, at most `at_once`."""
        count = at_once
        if self._load.rate is not None:
            count = min(count, int((now - self.started_s) * self._load.rate) + 1 - sent)
        if self.planned is not None:
            count = min(count, self.planned - sent)
        return max(count, 0)

    def due_s(self, number: int, now: float) -> float:
        """Return the time from which the latency of record `number` (from 0) counts."""
        return now if self._load.rate is None else self.started_s + number / self._load.rate

    def is_over(self, sent: int, now: float) -> bool:
        """Return whether no further record is to be sent."""
        if self.planned is not None and sent >= self.planned:
            return True
        limit_s = self._load.seconds_max
        if limit_s is None:
            return False
        if self._load.rate is not None:
            # Late records are still sent, but only up to twice the time: the broker may stall.
            limit_s *= 2
        return now - self.started_s >= limit_s


class Payloads:
    """Keys and values of the requested size; half of the bytes of a value are compressible."""

    def __init__(self, load: Load) -> None:
        # A fixed seed gives the same bytes in each run.
        chance = random.Random(1)  # noqa: S311 - the same values in each run
        half = load.record_size // 2
        self._values = [
            chance.randbytes(load.record_size - half) + b"x" * half for _ in range(_VALUES)
        ]
        self._keys: list[bytes | None] = [b"key-%d" % n for n in range(load.keys)] or [None]

    def value(self, number: int) -> bytes:
        """Return the value of a record."""
        return self._values[number % _VALUES]

    def key(self, number: int) -> bytes | None:
        """Return the key of a record; None without keys."""
        return self._keys[number % len(self._keys)]
