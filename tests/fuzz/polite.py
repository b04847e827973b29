"""A well-behaved client beside the attack: numbered records there and back, nothing else.

`python -m fuzz.polite BOOTSTRAP TOPIC [KEYS]` runs until its standard input ends, then waits for
what is under way and prints what it saw as one JSON line. KEYS: more keys of librdkafka, as JSON.
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
# A broker that is being started again; the messages about it do not matter, all records arrive.
GONE = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
# A limit for what hangs.
LAST_RECORDS_SECONDS = 90


def clients(
    keys: dict[str, str], topic: str, on_error: Callable[[KafkaError], None]
) -> tuple[Producer, Consumer]:
    """An idempotent producer, and a consumer that is alone in its group."""
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
    """Records of the consumer. After an assignment it may read uncommitted records again."""

    def __init__(self) -> None:
        # All records, without repetitions.
        self.numbers: list[int] = []
        self.repeated = 0
        self._may_repeat = False

    def begin_again(self) -> None:
        """The consumer begins at the offset that its group has committed."""
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
            # The offset is not told of a record that was sent again, and found to be there.
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
