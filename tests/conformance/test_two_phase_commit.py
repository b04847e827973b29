"""Two-phase commit (KIP-939) against both brokers.

In Apache Kafka 4.4, such a transaction has no timeout, but the next producer cannot keep it yet:
the broker returns UNSUPPORTED_VERSION. Kept transactions are therefore tested on Barnabas only.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas.aio import Producer as AsyncProducer
from barnabas.client.errors import (
    BrokerError,
    ClientError,
    IllegalTransactionStateError,
    ProducerFencedError,
    UnsupportedVersionError,
)
from barnabas.client.facade import Client
from barnabas.client.fetch.record_set import read_records
from barnabas.client.topic_partition import TopicPartition
from barnabas.client.transactions.state import PreparedTransaction
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.record_frame import decode_coordinator_value
from barnabas.protocol.records.coordinator_logs import TransactionLogValue
from barnabas.testing.broker_process import BrokerProcess
from conformance.cli_shell import Shell
from jvm.kafka_process import KafkaProcess
from waiting import eventually, eventually_equal

pytestmark = pytest.mark.conformance

Broker = BrokerProcess | KafkaProcess
NO_TIMEOUT_MS = 0x7FFF_FFFF
SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "auto.create.topics.enable": "false",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
UNSTABLE = {**SETTINGS, "unstable.api.versions.enable": "true"}
ALLOWED = {**UNSTABLE, "transaction.two.phase.commit.enable": "true"}


def started(kind: str, directory: Path, settings: dict[str, str]) -> Broker:
    made = KafkaProcess if kind == "kafka" else BrokerProcess
    return made(directory, settings).start()


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A broker that allows two-phase commit."""
    made = started(request.param, tmp_path_factory.mktemp(request.param), ALLOWED)
    yield made
    made.kill()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path_factory.mktemp("ours"), ALLOWED).start()
    yield made
    made.kill()


@pytest.fixture
def transactional_id() -> str:
    return f"id-{uuid.uuid4().hex[:8]}"


def topic_of(client: Client) -> str:
    name = f"prepared-{uuid.uuid4().hex[:8]}"
    client.create_topic(name, partitions=1, replication_factor=1)
    return name


def producer_of(broker: Broker, transactional_id: str, **keys: object) -> barnabas.Producer:
    keys = {"transaction_two_phase_commit_enable": True, **keys}
    return barnabas.Producer(broker.bootstrap, transactional_id=transactional_id, **keys)


def committed(client: Client, topic: str) -> list[bytes | None]:
    """Wait until no transaction is open, and return the values of a read_committed reader."""
    place = {(topic, 0): "latest"}

    def is_none_open() -> bool:
        stable_ends = client.list_offsets(place, isolation_level="read_committed")
        return stable_ends == client.list_offsets(place, isolation_level="read_uncommitted")

    eventually(is_none_open, "a transaction stays open")
    (end,) = client.list_offsets(place).values()
    batches = client.fetch_range({TopicPartition(topic, 0): (0, end.offset)})
    return [record.value for batch in batches for record in read_records(batch)]


def prepared(broker: Broker, transactional_id: str, topic: str) -> PreparedTransaction:
    """Return a prepared transaction whose producer is closed."""
    with producer_of(broker, transactional_id) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"prepared")
        return producer.prepare_transaction()


def reader(broker: Broker) -> Client:
    return Client(broker.bootstrap, isolation_level="read_committed")


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_producer_completes_its_prepared_transaction(
    broker: Broker, transactional_id: str, is_stored: bool
) -> None:
    with reader(broker) as client, producer_of(broker, transactional_id) as producer:
        topic = topic_of(client)
        assert producer.init_transactions() is None
        producer.begin_transaction()
        producer.send(topic, b"prepared")
        state = producer.prepare_transaction()
        found = client.admin.describe_transactions([transactional_id])[transactional_id]
        assert not isinstance(found, ClientError)
        assert (found.state, found.timeout_ms) == ("Ongoing", NO_TIMEOUT_MS)
        assert (found.producer_id, found.producer_epoch) == state
        with pytest.raises(IllegalTransactionStateError):
            producer.send(topic, b"too late")
        producer.complete_transaction(state if is_stored else PreparedTransaction(0, 0))
        assert committed(client, topic) == ([b"prepared"] if is_stored else [])
        producer.begin_transaction()
        producer.send(topic, b"next")
        producer.commit_transaction()
        assert committed(client, topic)[-1] == b"next"


def test_a_prepared_transaction_does_not_time_out(broker: Broker, transactional_id: str) -> None:
    """A transaction of an ordinary producer with a short timeout is aborted meanwhile."""
    ordinary = f"{transactional_id}-ordinary"
    with (
        reader(broker) as client,
        producer_of(
            broker,
            ordinary,
            transaction_two_phase_commit_enable=False,
            transaction_timeout_ms=100,
        ) as brief,
    ):
        topic, other = topic_of(client), topic_of(client)
        prepared(broker, transactional_id, topic)
        brief.init_transactions()
        brief.begin_transaction()
        brief.send(other, b"brief")
        brief.flush()

        def states() -> list[str]:
            found = client.admin.describe_transactions([ordinary, transactional_id])
            return [
                "" if isinstance(each, ClientError) else each.state
                for each in (found[ordinary], found[transactional_id])
            ]

        eventually_equal(states, ["CompleteAbort", "Ongoing"])
        shell = Shell(broker.bootstrap)
        listed = shell.json("transactions", "list", "--state", "Ongoing")
        assert transactional_id in [each["transactional_id"] for each in listed]
        assert "no timeout" in shell.ok("transactions", "describe", transactional_id)
        (held,) = shell.json("why", f"{topic}:0")["answers"]
        (reason,) = held["reasons"]
        assert f"transactional id {transactional_id} (Ongoing" in reason["what"]
        assert "without timeout" in reason["what"]
        shell.ok("transactions", "terminate", transactional_id)
        assert committed(client, topic) == []


def test_a_producer_without_keep_prepared_aborts_a_prepared_transaction(
    broker: Broker, transactional_id: str
) -> None:
    with reader(broker) as client:
        topic = topic_of(client)
        state = prepared(broker, transactional_id, topic)
        with producer_of(broker, transactional_id) as successor:
            assert successor.init_transactions() is None
            assert committed(client, topic) == []
            with pytest.raises(IllegalTransactionStateError):
                successor.complete_transaction(state)


def test_kafka_does_not_keep_a_prepared_transaction(broker: Broker, transactional_id: str) -> None:
    with producer_of(broker, transactional_id) as producer:
        if isinstance(broker, KafkaProcess):
            with pytest.raises(BrokerError) as raised:
                producer.init_transactions(keep_prepared_txn=True)
            assert raised.value.error_code == ErrorCode.UNSUPPORTED_VERSION
        else:
            assert producer.init_transactions(keep_prepared_txn=True) is None


@pytest.mark.parametrize("kind", ["barnabas", "kafka"])
def test_two_phase_commit_is_refused_unless_enabled(
    kind: str, tmp_path: Path, transactional_id: str
) -> None:
    broker = started(kind, tmp_path, UNSTABLE)
    try:
        with producer_of(broker, transactional_id) as producer:
            with pytest.raises(BrokerError) as raised:
                producer.init_transactions()
            error = raised.value.error_code
            assert error == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        keys = {"transaction_two_phase_commit_enable": False}
        with producer_of(broker, transactional_id, **keys) as producer:
            with pytest.raises(BrokerError) as raised:
                producer.init_transactions(keep_prepared_txn=True)
            assert raised.value.error_code == ErrorCode.UNSUPPORTED_VERSION
    finally:
        broker.kill()


@pytest.mark.parametrize("kind", ["barnabas", "kafka"])
def test_two_phase_commit_is_refused_without_unstable_versions(
    kind: str, tmp_path: Path, transactional_id: str
) -> None:
    broker = started(kind, tmp_path, SETTINGS)
    try:
        with Client(broker.bootstrap) as client:
            versions = client.admin.describe_versions().apis
            assert versions[ApiKey.INIT_PRODUCER_ID] == (0, 5)
        with (
            producer_of(broker, transactional_id) as producer,
            pytest.raises(UnsupportedVersionError, match=r"unstable\.api\.versions\.enable"),
        ):
            producer.init_transactions()
    finally:
        broker.kill()


def test_the_record_of_a_prepared_transaction_equals_kafkas(
    broker: Broker, transactional_id: str
) -> None:
    with reader(broker) as client:
        state = prepared(broker, transactional_id, topic_of(client))
        found = last_record(client, transactional_id)
        assert (found.producer_id, found.producer_epoch) == state
        assert (found.transaction_status, found.transaction_timeout_ms) == (1, NO_TIMEOUT_MS)
        assert (found.next_producer_id, found.next_producer_epoch) == (-1, -1)
        assert (found.previous_producer_id, found.client_transaction_version) == (
            state.producer_id,
            2,
        )


def last_record(client: Client, transactional_id: str) -> TransactionLogValue:
    """Return the last record of the id in __transaction_state."""
    places = {("__transaction_state", index): "latest" for index in range(3)}
    ends = client.list_offsets(places)
    values = [
        record.value
        for batch in client.fetch_range(
            {TopicPartition(*tp): (0, end.offset) for tp, end in ends.items() if end.offset}
        )
        for record in read_records(batch)
        if record.key == b"\0\0" + len(transactional_id).to_bytes(2) + transactional_id.encode()
    ]
    assert values[-1] is not None
    return decode_coordinator_value(TransactionLogValue, bytes(values[-1]))


# Kafka does not implement this yet.


@pytest.mark.parametrize("is_stored", [True, False])
def test_the_next_producer_completes_a_kept_transaction(
    ours: BrokerProcess, transactional_id: str, is_stored: bool
) -> None:
    with reader(ours) as client:
        topic = topic_of(client)
        stored = PreparedTransaction.parse(str(prepared(ours, transactional_id, topic)))
        with producer_of(ours, transactional_id) as crashed:
            # The producer gets the next epoch; the transaction keeps its epoch.
            assert crashed.init_transactions(keep_prepared_txn=True) == stored
        with producer_of(ours, transactional_id) as successor:
            assert successor.init_transactions(keep_prepared_txn=True) == stored
            successor.complete_transaction(stored if is_stored else PreparedTransaction(0, 0))
            assert committed(client, topic) == ([b"prepared"] if is_stored else [])
            for value in (b"second", b"third"):
                successor.begin_transaction()
                successor.send(topic, value)
                successor.commit_transaction()
            assert committed(client, topic)[-2:] == [b"second", b"third"]


def test_the_previous_producer_of_a_kept_transaction_is_fenced(
    ours: BrokerProcess, transactional_id: str
) -> None:
    with reader(ours) as client, producer_of(ours, transactional_id) as zombie:
        topic = topic_of(client)
        zombie.init_transactions()
        zombie.begin_transaction()
        zombie.send(topic, b"prepared")
        state = zombie.prepare_transaction()
        with producer_of(ours, transactional_id) as successor:
            assert successor.init_transactions(keep_prepared_txn=True) == state
            with pytest.raises(ProducerFencedError):
                zombie.abort_transaction()
            successor.complete_transaction(state)
            assert committed(client, topic) == [b"prepared"]


def test_a_kept_transaction_survives_the_kill_of_its_coordinator(
    tmp_path: Path, transactional_id: str
) -> None:
    broker = BrokerProcess(tmp_path, ALLOWED).start()
    try:
        with reader(broker) as client:
            topic = topic_of(client)
            stored = prepared(broker, transactional_id, topic)
            with producer_of(broker, transactional_id) as successor:
                assert successor.init_transactions(keep_prepared_txn=True) == stored
                broker.kill()
                broker.start()
                successor.complete_transaction(stored)
                assert committed(client, topic) == [b"prepared"]
    finally:
        broker.kill()


def test_an_asyncio_producer_completes_a_kept_transaction(
    ours: BrokerProcess, transactional_id: str
) -> None:
    def producer() -> AsyncProducer:
        return AsyncProducer(
            ours.bootstrap,
            transactional_id=transactional_id,
            transaction_two_phase_commit_enable=True,
        )

    async def run(topic: str) -> None:
        async with producer() as first:
            assert await first.init_transactions() is None
            first.begin_transaction()
            await first.send(topic, b"prepared")
            stored = await first.prepare_transaction()
        async with producer() as second:
            assert await second.init_transactions(keep_prepared_txn=True) == stored
            await second.complete_transaction(stored)

    with reader(ours) as client:
        topic = topic_of(client)
        asyncio.run(run(topic))
        assert committed(client, topic) == [b"prepared"]
