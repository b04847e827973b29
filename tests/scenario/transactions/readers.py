"""Readers with `read_committed`, in the background and at the end of a story."""

from __future__ import annotations

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, TopicPartition

from barnabas.client.facade import Client
from chaos.load import ANSWER_TIMEOUT_MS, QUICK, Errors, Worker
from waiting import PATIENCE_S, eventually

# (offset, value) in the order of offsets.
Records = list[tuple[int, bytes]]


class OwnReader(Worker):
    """A reader of partition 0 of a topic from the start, with the Barnabas client."""

    def __init__(self, bootstrap: str, topic: str, errors: Errors) -> None:
        super().__init__(f"Barnabas reader of {topic}")
        self._bootstrap = bootstrap
        self.topic = topic
        self.records: Records = []

    def _run(self) -> None:
        config = {**QUICK, "retry.backoff.max.ms": 100, "default.api.timeout.ms": 120_000}
        config["request.timeout.ms"] = ANSWER_TIMEOUT_MS
        config["isolation.level"] = "read_committed"
        with (
            Client(self._bootstrap, **config) as client,
            client.stream({(self.topic, 0): (0, None)}) as stream,
        ):
            while not self._stopping.is_set():
                for record in stream.poll_records(100):
                    self.records.append((record.offset, bytes(record.value or b"")))


class LibrdkafkaReader(Worker):
    """A reader of partition 0 of a topic from the start, with librdkafka."""

    def __init__(self, bootstrap: str, topic: str, errors: Errors) -> None:
        super().__init__(f"librdkafka reader of {topic}")
        self._bootstrap = bootstrap
        self._errors = errors
        self.topic = topic
        self.records: Records = []

    def _run(self) -> None:
        consumer = _consumer(self._bootstrap, "read_committed")
        consumer.assign([TopicPartition(self.topic, 0, 0)])
        while not self._stopping.is_set():
            for message in consumer.consume(500, 0.1):
                error = message.error()
                if error is None:
                    self.records.append((message.offset(), message.value()))
                elif error.code() != KafkaError._PARTITION_EOF:
                    self._errors.add(f"reader: {error.name()}")
        consumer.close()


READERS = (OwnReader, LibrdkafkaReader)


def read_committed(bootstrap: str, topic: str) -> Records:
    """Wait until partition 0 has no open transaction, and return its visible records.

    Raises:
        AssertionError: a transaction stays open, or the records cannot be read.
    """
    plain = _consumer(bootstrap, "read_uncommitted")
    committed = _consumer(bootstrap, "read_committed")
    ends: list[int | None] = []

    def have_all_ended() -> bool:
        ends[:] = [_end(plain, topic), _end(committed, topic)]
        return ends[0] is not None and ends[0] == ends[1]

    try:
        eventually(
            have_all_ended,
            lambda: f"{topic} has an open transaction: end and last stable offset are {ends}",
        )
    finally:
        plain.close()
        committed.close()
    return visible_now(bootstrap, topic)


def visible_now(bootstrap: str, topic: str) -> Records:
    """Return the visible records of partition 0. Transactions may be open."""
    consumer = _consumer(bootstrap, "read_committed")
    found: Records = []

    def has_all() -> bool:
        for message in consumer.consume(10_000, 0.1):
            error = message.error()
            if error is None:
                found.append((message.offset(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                return True
        return False

    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        eventually(has_all, lambda: f"{topic} cannot be read to its end: {found[-3:]}")
        return found
    finally:
        consumer.close()


def _end(consumer: Consumer, topic: str) -> int | None:
    """Return the end for the consumer's isolation level; None after an error."""
    try:
        ends = consumer.get_watermark_offsets(TopicPartition(topic, 0), PATIENCE_S)
    except confluent_kafka.KafkaException:
        return None
    return int(ends[1])


def _consumer(bootstrap: str, isolation_level: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-transactions",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": isolation_level,
            "socket.timeout.ms": ANSWER_TIMEOUT_MS,
            "topic.metadata.refresh.fast.interval.ms": 50,
            "topic.metadata.refresh.interval.ms": 2000,
            "fetch.error.backoff.ms": 20,
            "log_level": 0,
            **QUICK,
        }
    )
