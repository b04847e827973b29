"""Transactions continue while the level of transaction.version changes, on each kind of broker."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from barnabas.client.facade import Client
from barnabas.client.fetch.record_set import read_records
from barnabas.client.topic_partition import TopicPartition
from barnabas.testing.broker_process import BrokerProcess
from conformance.cli_shell import Shell
from jvm.kafka_process import KafkaProcess
from jvm.transactors import KINDS, Transactor, TransactorError
from waiting import PATIENCE_S, eventually, eventually_equal

FEATURE = "transaction.version"
LEVELS = (0, 1, 2, 1, 0)
# Transactions of each producer at each level.
TRANSACTIONS = 12
PARTITIONS = 3
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess | KafkaProcess]:
    directory = tmp_path_factory.mktemp(request.param)
    request.getfixturevalue("kafka_jars")
    kind = KafkaProcess if request.param == "kafka" else BrokerProcess
    process = kind(directory, SETTINGS)
    try:
        process.start()
        # No transactional id is in use yet.
        set_level(process, LEVELS[0])
        yield process
    finally:
        process.close()


@pytest.fixture
def client(broker: BrokerProcess | KafkaProcess) -> Iterator[Client]:
    with Client(broker.bootstrap, isolation_level="read_committed") as made:
        yield made


def set_level(broker: BrokerProcess | KafkaProcess, level: int) -> None:
    """Raise or lower the level, unless the broker has it already."""
    with Client(broker.bootstrap) as client:
        before = finalized(client)
        if level != before:
            verb = "upgrade" if level > before else "downgrade"
            Shell(broker.bootstrap).ok("features", verb, f"{FEATURE}={level}")
        eventually_equal(lambda: finalized(client), level)


class Worker(threading.Thread):
    """Commits two of three transactions and aborts the third, until `ending` is set.

    Each transaction has a record in every partition, and an offset of the worker's group.
    """

    def __init__(self, kind: str, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.name = kind
        self._topic = topic
        self._make = lambda: KINDS[kind](bootstrap, f"{topic}-{kind}")
        self.group = f"{topic}-{kind}"
        self.ending = threading.Event()
        # Number of ended transactions.
        self.ended = 0
        # Numbers of the committed transactions.
        self.committed: list[int] = []
        self.errors: list[str] = []

    def run(self) -> None:
        try:
            with self._make() as producer:
                producer.init()
                while not self.ending.is_set():
                    number = self.ended
                    producer.begin()
                    for partition in range(PARTITIONS):
                        producer.send(self._topic, partition, f"{self.name}-{number}")
                    producer.offset(self.group, self._topic, 0, number)
                    if number % 3 == 2:
                        producer.abort()
                    else:
                        producer.commit()
                        self.committed.append(number)
                    self.ended += 1
        except TransactorError as error:
            self.errors.append(f"transaction {self.ended}: {error}")


def committed_values(client: Client, topic: str, partition: int) -> Counter[bytes | None]:
    """Return the records of a partition that a reader with read_committed gets."""
    place = TopicPartition(topic, partition)

    def end(level: str) -> int:
        return client.list_offsets({place: "latest"}, isolation_level=level)[place].offset

    eventually(lambda: end("read_committed") == end("read_uncommitted"), "an open transaction")
    batches = client.fetch_range({place: (0, end("read_committed"))})
    return Counter(record.value for batch in batches for record in read_records(batch))


def finalized(client: Client) -> int:
    return client.admin.describe_versions().finalized_features.get(FEATURE, 0)


def progress(workers: list[Worker]) -> Callable[[], bool]:
    """Return a condition: each worker has ended enough transactions since now, or one failed."""
    before = [worker.ended for worker in workers]

    def is_enough() -> bool:
        ended = [worker.ended for worker in workers]
        return any(worker.errors for worker in workers) or all(
            now >= then + TRANSACTIONS for now, then in zip(ended, before, strict=True)
        )

    return is_enough


def test_producers_continue_while_the_level_is_raised_and_lowered(
    broker: BrokerProcess | KafkaProcess, client: Client
) -> None:
    topic = "levels"
    client.create_topic(topic, PARTITIONS, 1)
    workers = [Worker(kind, broker.bootstrap, topic) for kind in KINDS]
    for worker in workers:
        worker.start()
    try:
        for level in LEVELS:
            set_level(broker, level)
            is_enough = progress(workers)
            eventually(is_enough, lambda: [worker.ended for worker in workers], PATIENCE_S)
            assert {worker.name: worker.errors for worker in workers} == {
                worker.name: [] for worker in workers
            }, f"level {level}"
    finally:
        for worker in workers:
            worker.ending.set()
    for worker in workers:
        worker.join(PATIENCE_S)
        assert not worker.errors
    expected = Counter(
        f"{worker.name}-{number}".encode() for worker in workers for number in worker.committed
    )
    for partition in range(PARTITIONS):
        assert committed_values(client, topic, partition) == expected
    place = TopicPartition(topic, 0)
    for worker in workers:
        eventually_equal(
            lambda worker=worker: client.committed(worker.group, [place])[place].offset,
            worker.committed[-1],
        )


@pytest.mark.parametrize("kind", KINDS)
def test_an_open_transaction_is_committed_after_a_downgrade_from_2_to_0(
    broker: BrokerProcess | KafkaProcess, client: Client, kind: str
) -> None:
    """Kafka's coordinator fails, because records of version 0 have no client version.

    For the older requests of librdkafka, Kafka stores no client version.
    """
    topic = f"open-{kind}"
    client.create_topic(topic, 2, 1)
    set_level(broker, 2)
    with KINDS[kind](broker.bootstrap, topic) as producer:
        producer.init()
        for number in range(2):
            producer.begin()
            producer.send(topic, 0, f"{number}")
            if number == 0:
                producer.commit()
        set_level(broker, 0)
        if isinstance(broker, KafkaProcess) and kind != "librdkafka":
            with pytest.raises(TransactorError, match=r"(?i)version"):
                finish(producer, topic)
            return
        finish(producer, topic)
    assert committed_values(client, topic, 0) == Counter([b"0", b"1"])
    assert committed_values(client, topic, 1) == Counter([b"1"])


def finish(producer: Transactor, topic: str) -> None:
    """Add a partition to the open transaction, and commit it."""
    producer.send(topic, 1, "1")
    producer.commit()
