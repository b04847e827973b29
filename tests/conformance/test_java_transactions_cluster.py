"""kafka-transactions.sh of Apache Kafka after kill -9 of a producer and of its coordinator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client.facade import Client
from barnabas.testing.cluster_process import ClusterProcess
from chaos.transactional.clients import CONSUMERS
from conformance.java_tools import Tools
from jvm.kafka_node import KafkaNode
from jvm.three_brokers import three_brokers_of
from jvm.tool_host import ToolHost
from jvm.transactors import JavaTransactor
from jvm.uncoordinated_topic import SETTINGS, UncoordinatedTopic, create_state_topic
from waiting import eventually, eventually_equal

pytestmark = pytest.mark.conformance

COMMAND = "TransactionsCommand"
# Columns of `describe` that a new coordinator changes.
CHANGING = {"CoordinatorId", "TransactionDurationMs"}


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterProcess]:
    request.getfixturevalue("kafka_jars")
    with three_brokers_of(request, tmp_path_factory, SETTINGS) as started:
        yield started


@pytest.fixture(scope="module")
def client(cluster: ClusterProcess) -> Iterator[Client]:
    with Client(cluster.bootstrap) as made:
        create_state_topic(made)
        yield made


@pytest.fixture
def tools(cluster: ClusterProcess, tool_host: ToolHost) -> Tools:
    is_kafka = isinstance(cluster.node(1), KafkaNode)
    return Tools(tool_host, cluster.bootstrap, is_kafka)


@pytest.fixture
def topic(cluster: ClusterProcess, client: Client, tmp_path: Path) -> Iterator[UncoordinatedTopic]:
    made = UncoordinatedTopic(cluster, client, tmp_path.name)
    yield made
    for node in cluster.brokers:
        if not node.is_running:
            node.start()


def described(tools: Tools, transactional_id: str) -> dict[str, str]:
    """Return the columns that `describe` prints."""
    heads, row = tools.rows(COMMAND, "describe", "--transactional-id", transactional_id)
    # The last columns can be empty.
    return dict(zip(heads, row, strict=False))


def listed(tools: Tools, transactional_id: str) -> list[str] | None:
    """Return the row that `list` prints, without the id.

    The tool fails, and None is returned, while the metadata names the killed broker.
    """
    done = tools.host.run(COMMAND, "--bootstrap-server", tools.bootstrap, "list")
    rows = [line.split() for line in done.stdout.splitlines()]
    return next((row[1:] for row in rows if row[:1] == [transactional_id]), None)


def committed(topic: UncoordinatedTopic, client: str, last: bytes) -> dict[int, list[bytes | None]]:
    """Return what a read_committed reader gets from each partition until the value `last`."""
    errors: list[object] = []
    values: dict[int, list[bytes | None]] = {place.partition: [] for place in topic.places}
    consumer = CONSUMERS[client](topic.cluster.bootstrap, "", errors.append)
    consumer.assign(topic.places)

    def has_last() -> bool:
        for read in consumer.poll(100, 0.05):
            values[read.place[1]].append(read.value)
        return all(last in found for found in values.values())

    eventually(has_last, lambda: (values, errors[-10:]))
    consumer.close()
    return values


@pytest.mark.nightly
def test_a_killed_producers_transaction_is_described_and_terminated_by_a_new_coordinator(
    tools: Tools, topic: UncoordinatedTopic
) -> None:
    transactional_id = f"id-{topic.topic}"
    with JavaTransactor(tools.bootstrap, transactional_id) as producer:
        producer.init()
        producer.begin()
        for place in topic.places:
            producer.send(*place, "open")
    # The end of the block kills the producer.
    before = described(tools, transactional_id)
    assert before["TransactionState"] == "Ongoing"
    assert set(before["TopicPartitions"].split(",")) == {f"{t}-{p}" for t, p in topic.places}
    assert before["CoordinatorId"] == str(topic.coordinator)

    topic.cluster.node(topic.coordinator).kill()
    after = described(tools, transactional_id)
    assert int(after["CoordinatorId"]) in topic.leaders
    assert {**before, **dict.fromkeys(CHANGING)} == {**after, **dict.fromkeys(CHANGING)}
    row = eventually(lambda: listed(tools, transactional_id))
    assert row == [after["CoordinatorId"], after["ProducerId"], "Ongoing"]
    # The coordinator knows the transaction, so it does not hang.
    hanging = ("find-hanging", "--topic", topic.topic, "--max-transaction-timeout", "0")
    assert tools.table(COMMAND, *hanging) == []

    tools.run(COMMAND, "forceTerminateTransaction", "--transactionalId", transactional_id)
    eventually_equal(lambda: described(tools, transactional_id)["TransactionState"], "Empty")
    topic.await_stable()
    with JavaTransactor(tools.bootstrap, transactional_id) as successor:
        successor.init()
        successor.begin()
        for place in topic.places:
            successor.send(*place, "closed")
        successor.commit()
    eventually_equal(
        lambda: described(tools, transactional_id)["TransactionState"], "CompleteCommit"
    )
    for place in topic.places:
        with topic.client.producer() as marking:
            marking.send(place.topic, b"last", partition=place.partition)
    for client in CONSUMERS:
        expected = {place.partition: [b"closed", b"last"] for place in topic.places}
        assert committed(topic, client, b"last") == expected, client
