"""The settings of a secured broker's users, with each of the clients for which they are made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest

import barnabas
from barnabas.testing import KafkaUser, SecuredBroker, SecuredCluster
from barnabas.testing.broker_process import BROKER_SETTINGS, CLUSTER_SETTINGS
from jvm.tool_host import ToolHost
from waiting import PATIENCE_S, eventually

TOPIC = "orders"
WRONG = "wrong"
LOGIN_MS = 1000


@pytest.fixture(scope="module")
def secured() -> Iterator[SecuredBroker]:
    with SecuredBroker(settings=BROKER_SETTINGS) as broker:
        broker.create_topic(TOPIC)
        broker.add_user("writer", produce=TOPIC)
        # Without a topic to write, an idempotent producer fails with CLUSTER_AUTHORIZATION_FAILED.
        broker.add_user("reader", produce="other", consume="ord*", groups="read-*")
        yield broker


def send_with_confluent(user: KafkaUser) -> None:
    """Send a record; raise the first error of the login or of the delivery."""
    outcomes: list[confluent_kafka.KafkaError | None] = []
    producer = confluent_kafka.Producer({**user.confluent, "error_cb": outcomes.append})
    producer.produce(TOPIC, b"confluent", on_delivery=lambda error, _: outcomes.append(error))

    def polled() -> list[confluent_kafka.KafkaError | None]:
        producer.poll(0.1)
        return outcomes

    eventually(polled)
    producer.purge()
    if outcomes[0] is not None:
        raise confluent_kafka.KafkaException(outcomes[0])


def read_with_confluent(user: KafkaUser, group: str) -> bytes:
    consumer = confluent_kafka.Consumer(
        {**user.confluent, "group.id": group, "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([TOPIC])
        [message] = consumer.consume(1, PATIENCE_S)
        if message.error() is not None:
            raise confluent_kafka.KafkaException(message.error())
        return message.value()
    finally:
        consumer.close()


def send_with_aiokafka(user: KafkaUser) -> None:
    async def send() -> None:
        producer = aiokafka.AIOKafkaProducer(**user.aiokafka)
        try:
            await producer.start()
            await producer.send_and_wait(TOPIC, b"aiokafka")
        finally:
            await producer.stop()

    asyncio.run(send())


def send_with_kafka_python(user: KafkaUser) -> None:
    # It repeats a failed login until this time is over.
    bootstrap_ms = LOGIN_MS if user.password == WRONG else PATIENCE_S * 1000
    producer = kafka.KafkaProducer(**user.kafka_python, bootstrap_timeout_ms=bootstrap_ms)
    try:
        producer.send(TOPIC, b"kafka-python").get(PATIENCE_S)
    finally:
        producer.close(0)


def send_with_barnabas(user: KafkaUser) -> None:
    with barnabas.Producer(**user.barnabas) as producer:
        producer.send(TOPIC, b"barnabas").result()


Send = Callable[[KafkaUser], None]
CLIENTS: dict[str, Send] = {
    "confluent": send_with_confluent,
    "aiokafka": send_with_aiokafka,
    "kafka-python": send_with_kafka_python,
    "barnabas": send_with_barnabas,
}
each_client = pytest.mark.parametrize("client", CLIENTS)


@each_client
def test_a_user_with_the_right_writes(secured: SecuredBroker, client: str) -> None:
    CLIENTS[client](secured.users["writer"])
    CLIENTS[client](secured.admin)


# The error of each client for a topic that the user may not write.
NOT_ALLOWED: dict[str, tuple[type[Exception], str]] = {
    "confluent": (confluent_kafka.KafkaException, "TOPIC_AUTHORIZATION_FAILED"),
    "aiokafka": (aiokafka.errors.TopicAuthorizationFailedError, "orders"),
    "kafka-python": (kafka.errors.TopicAuthorizationFailedError, "orders"),
    "barnabas": (barnabas.BrokerError, "TOPIC_AUTHORIZATION_FAILED"),
}
# The error of each client for a wrong password.
NOT_AUTHENTICATED: dict[str, tuple[type[Exception], str]] = {
    "confluent": (confluent_kafka.KafkaException, "_AUTHENTICATION"),
    "aiokafka": (aiokafka.errors.KafkaConnectionError, "Unable to bootstrap"),
    # The log of kafka-python has the reason.
    "kafka-python": (kafka.errors.KafkaTimeoutError, "Unable to bootstrap"),
    "barnabas": (barnabas.AuthenticationError, "SCRAM-SHA-512"),
}


@each_client
def test_a_user_without_the_right_is_refused(secured: SecuredBroker, client: str) -> None:
    kind, text = NOT_ALLOWED[client]
    with pytest.raises(kind, match=text):
        CLIENTS[client](secured.users["reader"])


@each_client
def test_a_wrong_password_is_refused(secured: SecuredBroker, client: str) -> None:
    kind, text = NOT_AUTHENTICATED[client]
    with pytest.raises(kind, match=text):
        CLIENTS[client](secured.users["writer"].with_password(WRONG))


def test_a_reader_reads_in_the_permitted_groups_only(secured: SecuredBroker) -> None:
    send_with_confluent(secured.users["writer"])
    reader = secured.users["reader"]
    assert read_with_confluent(reader, "read-1")
    with pytest.raises(confluent_kafka.KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        read_with_confluent(reader, "other")


def test_java_logs_in_with_its_properties(
    secured: SecuredBroker, tool_host: ToolHost, tmp_path: Path
) -> None:
    def with_file(user: KafkaUser) -> tuple[str, ...]:
        file = tmp_path / f"{user.name}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in user.java.items()))
        return "--bootstrap-server", secured.bootstrap, "--command-config", str(file)

    writer, reader = secured.users["writer"], secured.users["reader"]
    sent = tool_host.run("ConsoleProducer", *with_file(writer), "--topic", TOPIC, stdin="java\n")
    assert sent.returncode == 0, sent.stderr
    limits = ("--from-beginning", "--max-messages", "1", "--group", "read-java")
    read = tool_host.run("consumer.ConsoleConsumer", *with_file(reader), "--topic", TOPIC, *limits)
    assert "Processed a total of 1 messages" in read.stderr + read.stdout
    refused = tool_host.run("TopicCommand", *with_file(writer.with_password(WRONG)), "--list")
    assert refused.returncode == 1
    assert "Authentication failed" in refused.stdout + refused.stderr


def test_users_survive_a_restart(secured: SecuredBroker) -> None:
    secured.restart()
    send_with_barnabas(secured.users["writer"])


def test_all_brokers_of_a_secured_cluster_know_a_new_user() -> None:
    with SecuredCluster(2, settings=CLUSTER_SETTINGS) as cluster:
        cluster.create_topic(TOPIC, partitions=2)
        writer = cluster.add_user("writer", produce=TOPIC)
        for node in cluster.brokers:
            host, _, port = node.address.rpartition(":")
            keys = {**writer.barnabas, "bootstrap_servers": f"{host}:{port}"}
            with barnabas.Producer(**keys, acks="all") as producer:
                producer.send(TOPIC, b"to each broker").result()
