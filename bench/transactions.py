"""`python -m bench.transactions`: cost and speed of transactions, compared with Apache Kafka.

One producer runs transactions one after the other. The brokers take turns in each case, so that
noise affects both. The first round is a warm-up. The table has the best figure of the other rounds:
transactions per second, processor time of the broker per transaction, and the time of a commit
(p50, p99). librdkafka and the Barnabas client send different requests: with the Barnabas client,
Produce adds partitions (transaction.version 2). Both have their default settings; a commit sends
the pending records. `--json FILE` stores the figures.
"""

from __future__ import annotations

import statistics
import time
from itertools import product
from typing import TYPE_CHECKING, NamedTuple, Protocol

import confluent_kafka

from barnabas import Producer
from bench.cases import compare
from bench.loads import temporary_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.brokers import Broker

CLIENTS = ("librdkafka", "barnabas client")
RECORDS = (1, 100)
PARTITIONS = (1, 10)
VALUE = bytes(100)


class TransactionalProducer(Protocol):
    """The calls that both clients share."""

    def begin_transaction(self) -> None:
        """Begin a transaction."""
        ...

    def commit_transaction(self) -> None:
        """Commit the transaction, and wait for the result."""
        ...


class Case(NamedTuple):
    """One kind of transaction."""

    client: str
    records: int
    partitions: int

    @property
    def name(self) -> str:
        """The first part of the names of its rows."""
        return f"{self.client}, {self.records} records, {self.partitions} partitions"

    def run(self, broker: Broker, count: int) -> dict[str, float]:
        """Run `count` transactions; return the figures by row."""
        with temporary_topic(broker, "transactions", self.partitions) as topic:
            producer, send = OPEN[self.client](broker.address, topic)
            self._transaction(producer, send)
            cpu, started = broker.cpu_seconds(), time.perf_counter()
            commits = [self._transaction(producer, send) for _ in range(count)]
            seconds = time.perf_counter() - started
            cpu = broker.cpu_seconds() - cpu
        commits.sort()
        return {
            f"{self.name}: transactions/s": count / seconds,
            f"{self.name}: CPU of the broker, ms": 1_000 * cpu / count,
            f"{self.name}: commit p50, ms": statistics.median(commits),
            f"{self.name}: commit p99, ms": commits[int(len(commits) * 0.99)],
        }

    def _transaction(self, producer: TransactionalProducer, send: Callable[[int], object]) -> float:
        """Run one transaction; return the time of its commit in ms."""
        producer.begin_transaction()
        for number in range(self.records):
            send(number % self.partitions)
        started = time.perf_counter()
        producer.commit_transaction()
        return 1_000 * (time.perf_counter() - started)


def _librdkafka(address: str, topic: str) -> tuple[TransactionalProducer, Callable[[int], object]]:
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "transactional.id": topic})
    producer.init_transactions(60)
    return producer, lambda partition: producer.produce(topic, VALUE, partition=partition)


def _ours(address: str, topic: str) -> tuple[TransactionalProducer, Callable[[int], object]]:
    producer = Producer(address, transactional_id=topic)
    producer.init_transactions()
    return producer, lambda partition: producer.send(topic, VALUE, partition=partition)


OPEN = {"librdkafka": _librdkafka, "barnabas client": _ours}


def main() -> None:
    """Run all cases on all brokers and print the table."""
    compare(
        __doc__,
        [Case(*each) for each in product(CLIENTS, RECORDS, PARTITIONS)],
        (300, "transactions of a round"),
    )


if __name__ == "__main__":
    main()
