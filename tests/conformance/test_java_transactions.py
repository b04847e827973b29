"""Apache Kafka's tools for transactions, 4.3.1, on a broker of each kind."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from conformance.java_tools import Tools
from waiting import PATIENCE_S, eventually

COMMAND = "TransactionsCommand"


@pytest.fixture
def open_transaction(tools: Tools) -> Iterator[tuple[str, str]]:
    """The topic and the transactional id of a transaction with one record in partition 1."""
    topic = tools.new_topic(2)
    transactional_id = f"id-{topic}"
    producer = Producer(
        {"bootstrap.servers": tools.bootstrap, "transactional.id": transactional_id}
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=1)
    producer.flush(PATIENCE_S)
    yield topic, transactional_id
    producer.abort_transaction(PATIENCE_S)


def described(tools: Tools, transactional_id: str) -> dict[str, str]:
    """Return the columns that `describe` prints."""
    heads, row = tools.rows(COMMAND, "describe", "--transactional-id", transactional_id)
    return dict(zip(heads, row, strict=False))


def test_an_open_transaction_is_listed_and_described(
    tools: Tools, open_transaction: tuple[str, str]
) -> None:
    topic, transactional_id = open_transaction
    listed = {row[0]: row for row in tools.table(COMMAND, "list")}
    assert listed[transactional_id][3] == "Ongoing"
    found = described(tools, transactional_id)
    assert found["TransactionState"] == "Ongoing"
    assert found["TopicPartitions"] == f"{topic}-1"
    assert found["TransactionTimeoutMs"] == "60000"
    (producer,) = tools.table(COMMAND, "describe-producers", "--topic", topic, "--partition", "1")
    assert producer[0] == found["ProducerId"] == listed[transactional_id][2]
    # Its columns: ProducerId, ProducerEpoch, LatestCoordinatorEpoch, LastSequence, LastTimestamp,
    # CurrentTransactionStartOffset.
    assert (producer[1], producer[3], producer[5]) == (found["ProducerEpoch"], "0", "0")


def test_transactions_are_listed_by_pattern_and_by_duration(
    tools: Tools, open_transaction: tuple[str, str]
) -> None:
    _, transactional_id = open_transaction

    def listed(*filters: str) -> list[str]:
        return [row[0] for row in tools.table(COMMAND, "list", *filters)]

    assert listed("--transactional-id-pattern", f"{transactional_id}.?") == [transactional_id]
    assert listed("--transactional-id-pattern", "no such id") == []
    assert transactional_id not in listed("--duration-filter", "3600000")


def test_an_ended_transaction_is_described_as_complete(tools: Tools) -> None:
    topic = tools.new_topic()
    transactional_id = f"id-{topic}"
    producer = Producer(
        {"bootstrap.servers": tools.bootstrap, "transactional.id": transactional_id}
    )
    producer.init_transactions(PATIENCE_S)
    for state in ("CompleteCommit", "CompleteAbort"):
        producer.begin_transaction()
        producer.produce(topic, b"x")
        producer.flush(PATIENCE_S)
        if state == "CompleteCommit":
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
        # The coordinator responds before the markers are written.
        eventually(
            lambda state=state: described(tools, transactional_id)["TransactionState"] == state,
            f"the state is not {state}",
        )
    found = described(tools, transactional_id)
    # The start time of the last transaction is kept, but not its partitions.
    assert found["CurrentTransactionStartTimeMs"].isdigit()
    assert "TopicPartitions" not in found


def test_a_running_transaction_is_not_hanging_and_can_be_aborted(
    tools: Tools, open_transaction: tuple[str, str]
) -> None:
    topic, _ = open_transaction
    hanging = tools.table(
        COMMAND, "find-hanging", "--topic", topic, "--max-transaction-timeout", "15"
    )
    assert hanging == []
    before = tools.table(COMMAND, "describe-producers", "--topic", topic, "--partition", "1")
    assert before[0][5] == "0"
    tools.run(COMMAND, "abort", "--topic", topic, "--partition", "1", "--start-offset", "0")

    def is_aborted() -> bool:
        words = ("--topic", topic, "--partition", "1")
        return tools.table(COMMAND, "describe-producers", *words)[0][5] == "None"

    eventually(is_aborted, "the transaction is still open in the partition")


def test_the_performance_producer_writes_in_transactions(tools: Tools) -> None:
    topic = tools.new_topic(2)
    printed = tools.run(
        "ProducerPerformance", "--topic", topic, "--num-records", "2000", "--record-size", "100",
        "--throughput", "-1", "--command-property", "acks=all", "--transactional-id", f"id-{topic}",
        "--transaction-duration-ms", "200",
    )  # fmt: skip
    assert "2000 records sent" in printed

    def stable() -> int:
        words = ("--topic", topic, "--num-records", "2000", "--timeout", "5000", "--hide-header")
        (row,) = tools.rows("ConsumerPerformance", *words)
        return int(row[6].strip(","))

    began = time.monotonic()
    eventually(lambda: stable() == 2000, lambda: f"{time.monotonic() - began:.0f} s")
    # Each transaction has a marker in each of its partitions.
    assert sum(tools.offsets(topic).values()) > 2000
