"""Reads topics after an attack: no stored batch may keep a reader from the records behind it."""

from __future__ import annotations

import time
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, TopicPartition

# Time limit for the records of one topic.
READ_S = 60.0


def unreadable(bootstrap: str, topics: Iterable[str]) -> list[str]:
    """Read the first partition of each topic to its end by librdkafka; return the problems."""
    keys = {
        "bootstrap.servers": bootstrap,
        "group.id": "reader",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_uncommitted",
    }
    consumer = Consumer(keys)
    try:
        # The attack may have deleted topics.
        existing = consumer.list_topics(timeout=READ_S).topics
        problems = [_problem(consumer, topic) for topic in topics if topic in existing]
    finally:
        consumer.close()
    return [each for each in problems if each is not None]


def _problem(consumer: Consumer, topic: str) -> str | None:
    offset, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), READ_S)
    consumer.assign([TopicPartition(topic, 0, offset)])
    until = time.monotonic() + READ_S
    while time.monotonic() < until:
        for message in consumer.consume(10_000, 0.2):
            error = message.error()
            if error is None:
                offset = message.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                return None
            else:
                return f"{topic} cannot be read from offset {offset} on: {error}"
    return f"reading {topic} does not go beyond offset {offset}"
