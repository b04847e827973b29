"""A well-behaved client during an attack, which writes and reads numbered records.

`python -m fuzz.polite BOOTSTRAP TOPIC [KEYS]` runs until its standard input ends, then waits for
pending records and prints its observations as one JSON line. KEYS: more librdkafka keys, as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

RECORDS_PER_SECOND = 50
# Expected errors during a restart of the broker. All records arrive nevertheless.
GONE = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
# Time limit for the last records.
LAST_RECORDS_SECONDS = 90


def clients(
    keys: dict[str, str], topic: str, on_error: Callable[[KafkaError], None]
) -> tuple[Producer, Consumer]:
    """Return an idempotent producer, and a consumer that is the only member of its group."""
    producer = Producer(
        {
            **keys,
            "enable.idempotence": True,
            "linger.ms": 0,
            "log_level": 0,
        },
        error_cb=on_error,
    )
    consumer = Consumer(
        {
            **keys,
            "group.id": f"{topic}-readers",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        },
        error_cb=on_error,
    )
    return producer, consumer


class Reading:
    """Records of the consumer, which may read uncommitted records again after an assignment."""

    def __init__(self) -> None:
        # All records, without repetitions.
        self.numbers: list[int] = []
        self.repeated = 0
        self._may_repeat = False

    def begin_again(self) -> None:
        """Record that the consumer continues at the committed offset."""
        self._may_repeat = True

    def take(self, number: int) -> None:
        """Add a record."""
        if self._may_repeat and number < len(self.numbers):
            self.repeated += 1
            return
        self._may_repeat = False
        self.numbers.append(number)


def main(bootstrap: str, topic: str, more_keys: str = "{}") -> None:
    keys = {"bootstrap.servers": bootstrap, **json.loads(more_keys)}
    admin = AdminClient({**keys, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(LAST_RECORDS_SECONDS)
    errors: list[str] = []

    def on_error(error: KafkaError) -> None:
        if error.code() not in GONE:
            errors.append(str(error))

    acknowledged: list[int] = []
    reading = Reading()
    slowest = 0.0
    producer, consumer = clients(keys, topic, on_error)
    consumer.subscribe([topic], on_assign=lambda *_: reading.begin_again())
    stopping = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stopping.set()), daemon=True).start()
    print("started", flush=True)

    def on_delivery(error: object, message: object) -> None:
        nonlocal slowest
        if error is not None:
            errors.append(str(error))
        else:
            # The offset is unknown for a retried record that was a duplicate.
            offset = message.offset()
            acknowledged.append(len(acknowledged) if offset is None or offset < 0 else offset)
            slowest = max(slowest, message.latency())

    sent = 0

    def take(seconds: float) -> None:
        message = consumer.poll(seconds)
        if message is None:
            return
        if message.error():
            on_error(message.error())
        else:
            reading.take(int(message.value()))

    while not stopping.is_set():
        producer.produce(topic, b"%d" % sent, on_delivery=on_delivery)
        sent += 1
        producer.poll(0)
        due = time.monotonic() + 1 / RECORDS_PER_SECOND
        while (left := due - time.monotonic()) > 0:
            take(left)
    producer.flush(LAST_RECORDS_SECONDS)
    deadline = time.monotonic() + LAST_RECORDS_SECONDS
    while len(reading.numbers) < sent and time.monotonic() < deadline:
        take(0.5)
    consumer.close()
    seen = {
        "sent": sent,
        "acknowledged": len(acknowledged),
        "read": len(reading.numbers),
        "read_again": reading.repeated,
        "acknowledged_in_order": acknowledged == list(range(sent)),
        "read_in_order": reading.numbers == list(range(sent)),
        "slowest_ack_ms": round(slowest * 1000),
        "errors": errors[:10],
        "first_oddities": [pair for pair in enumerate(reading.numbers) if pair[0] != pair[1]][:5],
    }
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
