"""Read records back with a client."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer

WAIT_S = 60.0


def read_back(bootstrap: str) -> bytes | None:
    """Write a record, read it, and return its value."""
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("flights", b"first")
    assert producer.flush(WAIT_S) == 0
    settings = {"group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.subscribe(["flights"])
    message = consumer.poll(WAIT_S)
    consumer.close()
    return None if message is None else message.value()
