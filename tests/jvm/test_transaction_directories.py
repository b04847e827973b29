"""Directories with open and ended transactions, which the other broker continues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.client.admin.cluster import UpgradeType
from barnabas.client.facade import Client
from barnabas.coordinator.transaction.transaction_metadata import TransactionState
from barnabas.testing.broker_process import BrokerProcess
from jvm.directory_dump import Dump
from jvm.directory_settings import SETTINGS
from jvm.kafka_process import KafkaProcess
from waiting import eventually, eventually_equal

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.conformance, pytest.mark.nightly]

Broker = BrokerProcess | KafkaProcess
TIMEOUT_S = 30
TOPIC, GROUP = "payments", "movers"
# Topic and transactional id of a producer that does not return.
ABANDONED = "abandoned"
TRANSACTIONS = {
    **SETTINGS,
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
# Long enough that the abandoned transaction is still open when the first broker ends.
ABANDONED_MS = 8_000
KAFKA_FIRST, OURS_FIRST = "ours after Kafka", "Kafka after ours"


@pytest.fixture
def pair(
    level: int, tmp_path: Path, kafka_jars: Callable[[str], str]
) -> Iterator[tuple[Broker, Broker]]:
    """Both brokers on one directory, at a level of transaction.version."""
    kafka = KafkaProcess(
        tmp_path / "kafka",
        {**TRANSACTIONS, "log.dirs": str(tmp_path / "data")},
        features={"transaction.version": level},
    )
    kafka.data_directory = tmp_path / "data"
    ours = BrokerProcess(tmp_path / "ours", TRANSACTIONS, ["--data-dir", str(tmp_path / "data")])
    try:
        yield kafka, ours
    finally:
        kafka.close()
        ours.close()


def start_at(broker: Broker, level: int) -> None:
    """Start the broker that formats the directory, at a level of transaction.version."""
    broker.start()
    if isinstance(broker, BrokerProcess) and level != 2:
        with Client(broker.bootstrap) as client:
            client.admin.update_features(
                {"transaction.version": level}, kind=UpgradeType.SAFE_DOWNGRADE
            )


def begin(broker: Broker, name: str, timeout_ms: int = 600_000, topic: str = TOPIC) -> Producer:
    """Send records and an offset of a group, and leave the transaction open."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": timeout_ms,
        }
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for partition in range(2):
        producer.produce(topic, f"{name}-{partition}", partition=partition)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"{GROUP}-{name}"})
    metadata = consumer.consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 7)], metadata, TIMEOUT_S)
    consumer.close()
    assert producer.flush(TIMEOUT_S) == 0
    return producer


def values(broker: Broker, isolation: str, topic: str = TOPIC) -> list[set[str]]:
    """Return the records of each partition, read to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "a reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: list[set[str]] = [set(), set()]
    ended: set[int] = set()
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])

    def is_read() -> bool:
        message = consumer.poll(0.5)
        if message is None:
            return False
        if message.error():
            ended.add(message.partition())
        else:
            found[message.partition()].add(message.value().decode())
        return len(ended) == 2

    eventually(is_read, f"{broker.bootstrap}: {isolation}")
    consumer.close()
    return found


def describe_contents(broker: Broker) -> dict[str, Any]:
    """Return the state of all transactions that clients can observe, without the abandoned one."""
    with Client(broker.bootstrap) as client:
        listed = [
            each for each in client.admin.list_transactions() if each.transactional_id != ABANDONED
        ]
        descriptions = client.admin.describe_transactions(
            [each.transactional_id for each in listed]
        )
        producers = client.admin.describe_producers([(TOPIC, 0), (TOPIC, 1)])
        offsets = {
            name: client.committed(f"{GROUP}-{name}") for name in ("ended", "aborted", "left")
        }
    return {
        "committed": values(broker, "read_committed"),
        "all": values(broker, "read_uncommitted"),
        "listed": sorted((each.transactional_id, each.producer_id, each.state) for each in listed),
        "described": {
            name: (each.state, each.producer_id, each.producer_epoch, each.timeout_ms)
            for name, each in descriptions.items()
        },
        "producers": {
            tp: sorted(
                (each.producer_id, each.producer_epoch, each.current_transaction_start_offset)
                for each in found
            )
            for tp, found in producers.items()
        },
        "offsets": {name: sorted(found) for name, found in offsets.items()},
    }


def state_of(broker: Broker, name: str) -> str:
    """Return the state of a transactional id at its coordinator."""
    with Client(broker.bootstrap) as client:
        return client.admin.describe_transactions([name])[name].state


def is_stable(broker: Broker, topic: str = TOPIC) -> bool:
    """Return whether no transaction is open in the topic."""
    places = dict.fromkeys([(topic, 0), (topic, 1)], "latest")
    with Client(broker.bootstrap) as client:
        stable = client.list_offsets(places, isolation_level="read_committed")
        return stable == client.list_offsets(places, isolation_level="read_uncommitted")


@pytest.mark.parametrize(
    ("level", "order", "end"),
    [
        pytest.param(0, KAFKA_FIRST, "kill", marks=pytest.mark.nightly),
        pytest.param(0, OURS_FIRST, "stop", marks=pytest.mark.nightly),
        pytest.param(1, KAFKA_FIRST, "stop", marks=pytest.mark.nightly),
        pytest.param(1, OURS_FIRST, "kill", marks=pytest.mark.nightly),
        (2, KAFKA_FIRST, "kill"),
        (2, OURS_FIRST, "kill"),
    ],
)
def test_transactions_continue_at_the_other_broker(
    pair: tuple[Broker, Broker], level: int, order: str, end: str
) -> None:
    first, second = pair if order == KAFKA_FIRST else pair[::-1]
    start_at(first, level)
    admin = AdminClient({"bootstrap.servers": first.bootstrap})
    for created in admin.create_topics([NewTopic(TOPIC, 2, 1), NewTopic(ABANDONED, 2, 1)]).values():
        created.result(TIMEOUT_S)
    begin(first, "ended").commit_transaction(TIMEOUT_S)
    begin(first, "aborted").abort_transaction(TIMEOUT_S)
    eventually(lambda: is_stable(first), "the markers are missing")
    with Client(first.bootstrap) as client:
        eventually_equal(
            lambda: {each.state for each in client.admin.list_transactions()},
            {"CompleteCommit", "CompleteAbort"},
        )
    left = begin(first, "left")
    before = describe_contents(first)
    assert before["committed"] == [{f"ended-{number}"} for number in range(2)]
    abandoned = begin(first, ABANDONED, ABANDONED_MS, ABANDONED)
    assert state_of(first, ABANDONED) == "Ongoing"
    getattr(first, end)()
    second.start()
    # Coordinators load their logs after the start.
    eventually_equal(lambda: describe_contents(second)["listed"], before["listed"])
    after = describe_contents(second)
    for what, was in before.items():
        assert after[what] == was, what
    # The next producer of the id aborts the open transaction of the first one, and continues.
    begin(second, "left").commit_transaction(TIMEOUT_S)
    begin(second, "ended").commit_transaction(TIMEOUT_S)
    eventually(lambda: is_stable(second), "a transaction is still open")
    assert values(second, "read_committed") == [
        {f"ended-{number}", f"left-{number}"} for number in range(2)
    ]
    with Client(second.bootstrap) as client:
        found = client.admin.describe_transactions(["ended", "left"])
    for name in ("ended", "left"):
        assert found[name].producer_id == before["described"][name][1]
        assert found[name].producer_epoch > before["described"][name][2]
    eventually_equal(lambda: state_of(second, ABANDONED), "CompleteAbort")
    eventually(lambda: is_stable(second, ABANDONED), "the abandoned transaction is still open")
    assert values(second, "read_committed", ABANDONED) == [set(), set()]
    del left, abandoned


def test_kafkas_dump_tool_reads_our_transactions(
    tmp_path: Path, kafka_tools: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    with BrokerProcess(tmp_path, TRANSACTIONS) as ours:
        admin = AdminClient({"bootstrap.servers": ours.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(TIMEOUT_S)
        begin(ours, "ended").commit_transaction(TIMEOUT_S)
        begin(ours, "aborted").abort_transaction(TIMEOUT_S)
        eventually(lambda: is_stable(ours), "the markers are missing")
        assert ours.stop() == 0
    data = ours.data_directory
    dump = Dump(kafka_tools)
    text = dump(data.glob(f"{TOPIC}-*/*.log"), "--deep-iteration", "--print-data-log")
    assert text.count("isTransactional: true") == 8
    assert text.count("endTxnMarker: COMMIT") == text.count("endTxnMarker: ABORT") == 2
    states = dump(data.glob("__transaction_state-*/*.log"), "--transaction-log-decoder")
    for name, last in (("ended", "COMPLETE_COMMIT"), ("aborted", "COMPLETE_ABORT")):
        found = [line for line in states.splitlines() if f'"{name}"' in line or f"={name}" in line]
        assert f'"transactionStatus":{TransactionState[last].value},' in found[-1], found
    aborted = dump(data.glob(f"{TOPIC}-*/*.txnindex"))
    assert aborted.count("producerId: ") == 2
