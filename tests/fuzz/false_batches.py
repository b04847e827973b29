"""Batches with false records or times, and good ones between them that each reader must get."""

from __future__ import annotations

import random
import time

from confluent_kafka import Consumer, TopicPartition

from barnabas.record.batch import CREATE_TIME, set_max_timestamp
from barnabas.record.builder import BatchBuilder
from conformance.raw_client import RawClient
from conformance.record_requests import produce
from producer_batches import ACCEPTED, GARBAGE, STRICTLY_REFUSED, packed

TOPIC = "false-batches"
# False batches of one call of `send`.
BATCHES = 30
# Time limit for reading all records.
READ_S = 60.0
_PAYLOADS = [*ACCEPTED.values(), *GARBAGE.values(), *STRICTLY_REFUSED.values()]


def false_batch(rng: random.Random) -> bytearray:
    """Return a batch with a valid checksum, and false records or times."""
    payload = rng.choice(_PAYLOADS)
    first = int(time.time() * 1000)
    claim = rng.choice([-1, 0, first - 1, first, first + 1000, 2**62])
    return packed(payload, rng.randrange(5), claim, first)


class FalseBatches:
    """Writes false and good batches to a topic that no other client changes."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        # Values of the good records, in their order.
        self._good: list[bytes] = []

    def send(self, bootstrap: str) -> None:
        """Write some batches.

        Raises:
            OSError: the broker does not accept or answer requests.
        """
        raw = RawClient(bootstrap)
        for _ in range(BATCHES):
            produce(raw, TOPIC, false_batch(self._rng))
            value = b"good %d" % len(self._good)
            builder = BatchBuilder()
            builder.append(int(time.time() * 1000), b"key", value)
            batch = builder.build()
            # The segment stays although its headers claim to be old.
            set_max_timestamp(batch, 0, CREATE_TIME, self._rng.choice([-1, 0, 1 << 62]))
            if produce(raw, TOPIC, batch).error_code == 0:
                self._good.append(value)
        raw.close()

    def unread(self, bootstrap: str) -> list[str]:
        """Read the topic by librdkafka; return a problem if good records do not arrive."""
        keys = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False}
        consumer = Consumer(keys)
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        left, until = list(reversed(self._good)), time.monotonic() + READ_S
        while left and time.monotonic() < until:
            for message in consumer.consume(10_000, 0.2):
                if message.error() is None and left and message.value() == left[-1]:
                    left.pop()
        consumer.close()
        if left:
            return [f"librdkafka cannot read {len(left)} good records from {left[-1]!r} on"]
        return []
