"""Transactions of our producer, with both kinds of broker and both versions (KIP-890)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path

import pytest

import barnabas
from barnabas.client.admin.cluster import UpgradeType
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import (
    BrokerError,
    ClientError,
    DeliveryTimeoutError,
    IllegalTransactionStateError,
    ProducerFencedError,
    TransactionAbortedError,
)
from barnabas.client.facade import Client
from barnabas.client.fetch.record_set import read_records
from barnabas.client.group.group_offsets import CommittedOffset
from barnabas.client.group.membership import GroupGeneration
from barnabas.client.topic_partition import TopicPartition
from barnabas.client.transactions.state import OpenTransaction
from barnabas.protocol.errors import ErrorCode
from barnabas.testing.broker_process import BrokerProcess
from conformance.polling import read
from jvm.kafka_process import QUICK_FENCING, KafkaProcess
from selection import nightly_unless
from waiting import PATIENCE_S, eventually, eventually_equal

pytestmark = pytest.mark.conformance

PROGRAM = Path(__file__).parent / "programs" / "transaction_to_be_killed.py"


Broker = BrokerProcess | KafkaProcess

SETTINGS = {
    **QUICK_FENCING,
    "transaction.state.log.num.partitions": "3",
    "auto.create.topics.enable": "false",
    # Interval at which the coordinator aborts expired transactions.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


@pytest.fixture(
    scope="module",
    params=nightly_unless(
        ("barnabas", 2).__eq__,
        [("barnabas", 2), ("barnabas", 0), ("kafka", 2), ("kafka", 0)],
    ),
    ids=["barnabas-v2", "barnabas-v1", "kafka-v2", "kafka-v1"],
)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A broker of each kind with each version of transactions."""
    kind, version = request.param
    directory = tmp_path_factory.mktemp(kind)
    made: Broker
    if kind == "kafka":
        made = KafkaProcess(directory, SETTINGS, features={"transaction.version": version})
    else:
        made = BrokerProcess(directory, SETTINGS)
    made.start()
    try:
        if kind == "barnabas" and version != 2:
            with Client(made.bootstrap) as client:
                client.admin.update_features(
                    {"transaction.version": version}, kind=UpgradeType.SAFE_DOWNGRADE
                )
        yield made
    finally:
        made.kill()


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap, isolation_level="read_committed") as made:
        yield made


@pytest.fixture
def topic(client: Client) -> str:
    name = f"transactions-{uuid.uuid4().hex[:8]}"
    client.create_topic(name, partitions=2, replication_factor=1)
    return name


@pytest.fixture
def transactional_id() -> str:
    return f"id-{uuid.uuid4().hex[:8]}"


def committed(client: Client, topic: str) -> list[bytes | None]:
    """Wait until no transaction is open, and return the values for read_committed, by partition.

    The coordinator responds before its markers are in the partitions.
    """
    places = dict.fromkeys([(topic, 0), (topic, 1)], "latest")

    def is_none_open() -> bool:
        stable_ends = client.list_offsets(places)
        return stable_ends == client.list_offsets(places, isolation_level="read_uncommitted")

    eventually(is_none_open, "a transaction stays open")
    return stable(client, topic)


def stable(client: Client, topic: str) -> list[bytes | None]:
    """Return the values that a read_committed reader gets now, by partition."""
    ends = client.list_offsets(dict.fromkeys([(topic, 0), (topic, 1)], "latest"))
    found: dict[int, list[bytes | None]] = {0: [], 1: []}
    for batch in client.fetch_range({tp: (0, end.offset) for tp, end in ends.items()}):
        found[batch.partition] += [record.value for record in read_records(batch)]
    return found[0] + found[1]


def producer_of(broker: Broker, transactional_id: str, **config: object) -> barnabas.Producer:
    """Return a producer with a transaction timeout that is not reached on a slow machine."""
    config = {"transaction_timeout_ms": 600_000, **config}
    return barnabas.Producer(broker.bootstrap, transactional_id=transactional_id, **config)


def thread_states(pid: int) -> Iterator[str]:
    """Yield the state letter of each thread that has not ended."""
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):
            yield path.read_text().rpartition(")")[2].split()[0]


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """Stop all threads of the process during the block."""
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually_equal(lambda: set(thread_states(pid)), {"T"})
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_transaction_is_atomic_for_readers(
    broker: Broker, client: Client, topic: str, transactional_id: str
) -> None:
    # Records that are not flushed are not sent before their transaction ends.
    with producer_of(broker, transactional_id, linger_ms=60_000) as producer:
        producer.init_transactions()
        with producer.transaction():
            first = producer.send(topic, b"a", partition=0)
            producer.send(topic, b"b", partition=1)
            producer.flush()
            assert stable(client, topic) == []
        assert first.result().offset == 0
        assert committed(client, topic) == [b"a", b"b"]
        producer.begin_transaction()
        producer.send(topic, b"never", partition=0)
        producer.flush()
        queued = producer.send(topic, b"nor this", partition=1)
        producer.abort_transaction()
        assert isinstance(queued.exception(), TransactionAbortedError)
        with producer.transaction():
            producer.send(topic, b"c", partition=0)
        assert committed(client, topic) == [b"a", b"c", b"b"]


def values_of(consumer: barnabas.Consumer, count: int) -> list[bytes]:
    """Return at least `count` values, and those of records that arrive shortly afterwards."""
    found = read(count, consumer)
    return found + [record.value for record in consumer.poll(0.2)]


def test_a_transaction_is_atomic_for_the_consumer(
    broker: Broker, topic: str, transactional_id: str
) -> None:
    with (
        producer_of(broker, transactional_id) as producer,
        barnabas.Consumer(
            bootstrap_servers=broker.bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as committed_only,
        barnabas.Consumer(
            bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest"
        ) as everything,
    ):
        committed_only.assign([(topic, 0)])
        everything.assign([(topic, 0)])
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"never", partition=0)
        producer.flush()
        assert values_of(everything, 1) == [b"never"]
        assert not committed_only.poll(0.5)
        producer.abort_transaction()
        producer.begin_transaction()
        for value in (b"a", b"b"):
            producer.send(topic, value, partition=0)
        producer.flush()
        assert values_of(everything, 2) == [b"a", b"b"]
        assert not committed_only.poll(0.5)
        producer.commit_transaction()
        assert values_of(committed_only, 2) == [b"a", b"b"]
        # The marker of the commit has an offset, too.
        assert committed_only.position((topic, 0)) == 5


def test_a_hundred_consecutive_transactions_succeed(
    broker: Broker, client: Client, topic: str, transactional_id: str
) -> None:
    with producer_of(broker, transactional_id, linger_ms=0) as producer:
        producer.init_transactions()
        for number in range(100):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number, partition=number % 2)
            if number % 5:
                producer.commit_transaction()
            else:
                producer.flush()
                producer.abort_transaction()
    kept = [number for number in range(100) if number % 5]
    kept.sort(key=lambda number: number % 2)
    assert committed(client, topic) == [b"%d" % number for number in kept]


def test_a_transaction_is_complete_without_verification(
    broker: Broker, client: Client, topic: str, transactional_id: str
) -> None:
    brokers = ConfigResource(ResourceType.BROKER, "")
    client.admin.alter_configs(brokers, {"transaction.partition.verification.enable": "false"})
    try:
        with producer_of(broker, transactional_id) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(topic, b"one", partition=0).result()
            (found,) = client.admin.describe_transactions([transactional_id]).values()
            assert found.partitions == (TopicPartition(topic, 0),)
            producer.commit_transaction()
    finally:
        client.admin.alter_configs(brokers, {"transaction.partition.verification.enable": None})
    eventually_equal(lambda: committed(client, topic), [b"one"])


def test_an_empty_transaction_succeeds(broker: Broker, transactional_id: str) -> None:
    with producer_of(broker, transactional_id) as producer:
        producer.init_transactions()
        for _ in range(2):
            producer.begin_transaction()
            producer.commit_transaction()
            producer.begin_transaction()
            producer.abort_transaction()


def test_calls_in_the_wrong_order_are_refused(
    broker: Broker, topic: str, transactional_id: str
) -> None:
    with producer_of(broker, transactional_id) as producer:
        for call in (producer.begin_transaction, producer.commit_transaction):
            with pytest.raises(IllegalTransactionStateError, match="uninitialized"):
                call()
        producer.init_transactions()
        with pytest.raises(IllegalTransactionStateError, match="ready"):
            producer.send(topic, b"x")
        with pytest.raises(IllegalTransactionStateError):
            producer.abort_transaction()
        producer.begin_transaction()
        with pytest.raises(IllegalTransactionStateError, match="in transaction"):
            producer.begin_transaction()


def test_a_new_producer_fences_the_previous_producer_of_its_id(
    broker: Broker, client: Client, topic: str, transactional_id: str
) -> None:
    with producer_of(broker, transactional_id) as old, producer_of(broker, transactional_id) as new:
        old.init_transactions()
        old.begin_transaction()
        old.send(topic, b"old", partition=0)
        old.flush()
        new.init_transactions()
        with new.transaction():
            new.send(topic, b"new", partition=0)
        with pytest.raises(ProducerFencedError, match=transactional_id):
            old.commit_transaction()
        with pytest.raises(ProducerFencedError):
            old.begin_transaction()
        assert committed(client, topic) == [b"new"]


def test_records_of_a_fenced_producer_are_refused_and_its_abort_gives_the_reason(
    broker: Broker, client: Client, topic: str, transactional_id: str
) -> None:
    """A leader's INVALID_PRODUCER_EPOCH is abortable; the coordinator then fences (KIP-588)."""
    with producer_of(broker, transactional_id) as old, producer_of(broker, transactional_id) as new:
        old.init_transactions()
        old.begin_transaction()
        old.send(topic, b"before", partition=0)
        old.flush()
        new.init_transactions()
        refused = old.send(topic, b"after", partition=0)
        with pytest.raises(ClientError) as caught:
            old.commit_transaction()
        error = refused.exception()
        assert isinstance(error, BrokerError)
        assert error.error_code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
        if not isinstance(caught.value, ProducerFencedError):
            with pytest.raises(ProducerFencedError):
                old.abort_transaction()
        assert committed(client, topic) == []


def test_a_killed_producers_transaction_is_aborted_by_its_successor(
    broker: Broker, client: Client, topic: str, transactional_id: str
) -> None:
    command = [sys.executable, str(PROGRAM), broker.bootstrap, topic, transactional_id]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        process.kill()
    with producer_of(broker, transactional_id) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"successor", partition=0)
    assert committed(client, topic) == [b"successor"]


def test_a_timed_out_transaction_is_aborted_by_the_coordinator(
    broker: Broker, client: Client, topic: str, transactional_id: str
) -> None:
    # The timeout is long enough to write one record on a slow machine.
    with producer_of(broker, transactional_id, transaction_timeout_ms=5_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"late", partition=0)
        producer.flush()
        # The coordinator's marker moves the last stable offset.
        places = {(topic, 0): "latest"}

        def is_aborted() -> bool:
            producer.poll(100)
            return client.list_offsets(places)[topic, 0].offset > 0

        eventually(is_aborted)
        with pytest.raises(BrokerError) as caught:
            producer.commit_transaction()
        # In version 2, the coordinator treats the old epoch as a retry with another outcome.
        assert caught.value.error_code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
        with pytest.raises(BrokerError):
            producer.begin_transaction()
    assert committed(client, topic) == []


def test_offsets_are_committed_or_aborted_with_the_transaction(
    broker: Broker, client: Client, topic: str, transactional_id: str
) -> None:
    group = f"group-{transactional_id}"
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with producer_of(broker, transactional_id) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"x", partition=0)
            producer.send_offsets_to_transaction({first: 5}, group)
            producer.send_offsets_to_transaction(
                {second: CommittedOffset(7, -1, "note")}, GroupGeneration(group)
            )
        expected = {first: CommittedOffset(5), second: CommittedOffset(7, -1, "note")}
        # The coordinator answers before its markers reach the group's partition.
        eventually_equal(lambda: client.committed(group), expected)
        producer.begin_transaction()
        producer.send_offsets_to_transaction({first: 100}, group)
        producer.abort_transaction()
        assert client.committed(group) == expected
        with producer.transaction():
            producer.send_offsets_to_transaction({first: 6}, group)
        eventually_equal(lambda: client.committed(group)[first], CommittedOffset(6))


def test_offsets_of_an_unknown_member_are_an_abortable_error(
    broker: Broker, client: Client, topic: str, transactional_id: str
) -> None:
    unknown_member = GroupGeneration(f"group-{transactional_id}", 3, "unknown")
    with producer_of(broker, transactional_id) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"never", partition=0)
        with pytest.raises(BrokerError) as caught:
            producer.send_offsets_to_transaction({(topic, 0): 5}, unknown_member)
        assert caught.value.error_code in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
        )
        with pytest.raises(BrokerError):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"again", partition=0)
    assert committed(client, topic) == [b"again"]


def test_a_restarted_broker_completes_the_transaction(
    broker: Broker, client: Client, topic: str, transactional_id: str
) -> None:
    with producer_of(broker, transactional_id) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"before", partition=0)
        producer.flush()
        broker.kill()
        producer.send(topic, b"during", partition=0)
        broker.start()
        producer.send(topic, b"after", partition=1)
        producer.commit_transaction()
    assert committed(client, topic) == [b"before", b"during", b"after"]


def test_the_transaction_after_expired_records_succeeds(
    broker: Broker, client: Client, topic: str, transactional_id: str
) -> None:
    """Expired sequences leave a gap: the end or another InitProducerId raises the epoch."""
    with producer_of(
        broker, transactional_id, delivery_timeout_ms=700, request_timeout_ms=500, linger_ms=0
    ) as producer:
        producer.init_transactions()

        def begins_with(value: bytes) -> bool:
            """Begin a transaction with one record; return False if its delivery times out."""
            producer.begin_transaction()
            try:
                producer.send(topic, value, partition=0).result(PATIENCE_S)
            except ClientError:
                producer.abort_transaction()
                return False
            return True

        eventually(lambda: begins_with(b"before"))
        with paused(broker.pid):
            lost = producer.send(topic, b"lost", partition=0)
            assert isinstance(lost.exception(PATIENCE_S), ClientError)
        with pytest.raises((DeliveryTimeoutError, ClientError)):
            producer.commit_transaction()
        producer.abort_transaction()
        for number in range(3):
            eventually(partial(begins_with, b"%d" % number))
            producer.commit_transaction()
    assert committed(client, topic) == [b"0", b"1", b"2"]


def detached(broker: Broker, topic: str, transactional_id: str, value: bytes) -> OpenTransaction:
    """Return an open transaction with one record, detached from its producer."""
    with producer_of(broker, transactional_id) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, value, partition=0)
        producer.send_offsets_to_transaction({(topic, 1): 7}, transactional_id)
        transaction = producer.detach_transaction()
    assert transaction is not None
    return transaction


def test_another_client_ends_a_detached_transaction(
    broker: Broker, client: Client, topic: str, transactional_id: str
) -> None:
    aborted = detached(broker, topic, transactional_id, b"never")
    ended = client.admin.end_transactions([aborted], committed=False)[transactional_id]
    assert isinstance(ended, tuple)
    assert ended.producer_epoch == aborted.producer_epoch + aborted.is_v2
    transaction = detached(broker, topic, transactional_id, b"a")
    assert stable(client, topic) == []
    for _attempt in range(2):
        # The second attempt does not know that the first one succeeded.
        client.admin.end_transactions([transaction], committed=True)
    assert committed(client, topic) == [b"a"]
    assert client.committed(transactional_id)[TopicPartition(topic, 1)].offset == 7


def test_a_detached_transaction_is_fenced_by_the_next_producer_of_the_id(
    broker: Broker, client: Client, topic: str, transactional_id: str
) -> None:
    first = detached(broker, topic, transactional_id, b"never")
    second = detached(broker, topic, transactional_id, b"a")
    results = client.admin.end_transactions([first], committed=True, raise_errors=False)
    assert isinstance(results[transactional_id], ProducerFencedError)
    client.admin.end_transactions([second], committed=True)
    assert committed(client, topic) == [b"a"]


def test_the_asyncio_producer_has_transactions(
    broker: Broker, client: Client, topic: str, transactional_id: str
) -> None:
    async def produce() -> None:
        async with barnabas.aio.Producer(
            broker.bootstrap, transactional_id=transactional_id
        ) as producer:
            await producer.init_transactions()
            for number in range(4):
                producer.begin_transaction()
                await producer.send(topic, b"%d" % number, partition=0)
                await producer.send_offsets_to_transaction({(topic, 0): number}, transactional_id)
                await (
                    producer.abort_transaction() if number % 2 else producer.commit_transaction()
                )
            async with producer.transaction():
                await producer.send(topic, b"last", partition=0)
            producer.begin_transaction()
            await producer.send(topic, b"left open", partition=0)

    asyncio.run(asyncio.wait_for(produce(), PATIENCE_S))
    assert committed(client, topic) == [b"0", b"2", b"last"]
    assert client.committed(transactional_id)[TopicPartition(topic, 0)].offset == 2


def test_the_abort_by_the_coordinator_raises_the_epoch_once(
    broker: Broker, client: Client, topic: str, transactional_id: str
) -> None:
    with producer_of(broker, transactional_id, transaction_timeout_ms=5_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"x", partition=0)
        producer.flush()

        def found() -> tuple[str, int]:
            described = client.admin.describe_transactions([transactional_id])[transactional_id]
            assert not isinstance(described, ClientError)
            return described.state, described.producer_epoch

        eventually_equal(found, ("CompleteAbort", 1))
        is_v2 = client.admin.describe_versions().finalized_features.get("transaction.version") == 2
        # In version 2, the coordinator's abort counts as the end by this producer.
        with nullcontext() if is_v2 else pytest.raises(ProducerFencedError):
            producer.abort_transaction()
        assert found() == ("CompleteAbort", 1)
