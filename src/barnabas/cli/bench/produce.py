"""The produce load: write records to a topic, at a rate or as fast as possible."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from barnabas.cli.bench.load import Payloads, Schedule

if TYPE_CHECKING:
    from barnabas.cli.bench.load import Load
    from barnabas.cli.bench.measurement import Measurement
    from barnabas.client.producer.producer import SharedProducer

__all__ = ["run_produce"]

# Number of records between two reads of the clock.
_AT_ONCE = 200
# Longest wait for acknowledgements before the next check for due records (ms).
_POLL_MS = 1.0
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
    producer.poll(max(0.0, min(_POLL_MS, remaining_ms)))
    remaining_s = until_s - time.perf_counter()
    if remaining_s > 0:
        # `poll` returns at once if no records are in flight.
        time.sleep(min(remaining_s, _POLL_MS / 1000))


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
