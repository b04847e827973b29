"""The end-to-end load: write each record, and read it back in the same process.

Producer and consumer run on one event loop. One clock therefore measures the path of a record, and
neither side waits for the other. A value starts with the id of the run and the number of the
record, which identify it on arrival.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from barnabas.cli.bench.load import Payloads, Schedule
from barnabas.client.aio.consumer import Consumer
from barnabas.client.aio.producer import Producer
from barnabas.client.errors import ClientTimeoutError
from barnabas.runtime.loop import new_loop

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.cli.bench.load import Load
    from barnabas.cli.bench.measurement import Measurement

__all__ = ["HEAD_SIZE", "run_latency"]

_HEAD = struct.Struct(">8sQ")
HEAD_SIZE = _HEAD.size
_US_PER_S = 1_000_000
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
