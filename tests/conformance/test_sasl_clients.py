"""Clients log in by PLAIN and SCRAM, write and read; wrong credentials are refused.

Each test runs against Barnabas and against Apache Kafka.
"""

from __future__ import annotations

import asyncio
import json
import logging
import logging.handlers
import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError

import barnabas
from barnabas.client.admin.credentials import ScramDeletion, ScramMechanism, ScramUpsertion
from barnabas.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE
from conformance.kafkajs import run_kafkajs
from conformance.sasl_brokers import MECHANISMS, SESSION_MS, SaslBarnabas, SaslKafka
from jvm.tool_host import ToolHost
from selection import nightly_unless
from waiting import PATIENCE_S, eventually

Broker = SaslBarnabas | SaslKafka
SCRAM_USER = "carol"


class Login(NamedTuple):
    """The listener and the user of a client's login."""

    bootstrap: str
    mechanism: str
    username: str
    password: str
    topic: str


# The mechanisms with which all clients log in; `make nightly` tests all.
CHOSEN = {"PLAIN", "SCRAM-SHA-512"}


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A broker with a user of each mechanism."""
    directory = tmp_path_factory.mktemp(request.param)
    made = SaslKafka(directory) if request.param == "kafka" else SaslBarnabas(directory)
    made.start()
    try:
        with barnabas.Admin(made.bootstrap) as admin:
            for mechanism in ScramMechanism:
                upsertion = ScramUpsertion(SCRAM_USER, mechanism, f"pass,={mechanism}")
                admin.alter_scram_credentials([upsertion])
            eventually(lambda: len(admin.describe_scram_credentials([SCRAM_USER])) == 1)
        yield made
    finally:
        made.kill()


def login_of(broker: Broker, mechanism: str) -> Login:
    topic = f"sasl-{uuid.uuid4().hex[:8]}"
    with barnabas.Client(broker.bootstrap) as client:
        client.create_topic(topic, 1, 1)
    if mechanism == "PLAIN":
        return Login(broker.sasl_bootstrap, mechanism, "alice", "alice-secret", topic)
    password = f"pass,={1 if mechanism == 'SCRAM-SHA-256' else 2}"
    return Login(broker.sasl_bootstrap, mechanism, SCRAM_USER, password, topic)


class RefusedError(Exception):
    """The client reports that its login was refused."""


# -- clients --------------------------------------------------------------------------------------


def with_ours(login: Login) -> bytes:
    keys = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": login.mechanism,
        "sasl_plain_username": login.username,
        "sasl_plain_password": login.password,
        "default_api_timeout_ms": 10_000,
    }
    try:
        with barnabas.Producer(login.bootstrap, **keys) as producer:
            producer.send(login.topic, b"ours").result(10)
    except barnabas.AuthenticationError as error:
        raise RefusedError from error
    with barnabas.Consumer(
        login.topic,
        bootstrap_servers=login.bootstrap,
        group_id=login.topic,
        auto_offset_reset="earliest",
        **keys,
    ) as consumer:
        return next(iter(consumer)).value


def with_ours_async(login: Login) -> bytes:
    async def run() -> bytes:
        keys = {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": login.mechanism,
            "sasl_username": login.username,
            "sasl_password": login.password,
        }
        async with barnabas.aio.Producer(login.bootstrap, **keys) as producer:
            await (await producer.send(login.topic, b"ours"))
        async with barnabas.aio.Consumer(
            login.topic,
            bootstrap_servers=login.bootstrap,
            group_id=login.topic,
            auto_offset_reset="earliest",
            **keys,
        ) as consumer:
            async for record in consumer:
                return bytes(record.value)
        raise AssertionError("no record")

    try:
        return asyncio.run(run())
    except barnabas.AuthenticationError as error:
        raise RefusedError from error


def with_librdkafka(login: Login) -> bytes:
    errors: list[KafkaError] = []
    keys = {
        "bootstrap.servers": login.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": login.mechanism,
        "sasl.username": login.username,
        "sasl.password": login.password,
        "logger": logging.getLogger("librdkafka"),
        "error_cb": errors.append,
    }
    producer = Producer(keys)
    producer.produce(login.topic, b"librdkafka")
    deadline = time.monotonic() + 20
    while len(producer) and time.monotonic() < deadline:
        producer.poll(0.1)
        if any(error.code() == KafkaError._AUTHENTICATION for error in errors):
            producer.purge()
            raise RefusedError
    consumer = Consumer({**keys, "group.id": login.topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([login.topic])
    try:
        found = consumer.poll(20)
        if found is None or found.error() is not None:
            raise KafkaException(found and found.error())
        return bytes(found.value())
    finally:
        consumer.close()


def with_aiokafka(login: Login) -> bytes:
    async def run() -> bytes:
        keys = {
            "bootstrap_servers": login.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": login.mechanism,
            "sasl_plain_username": login.username,
            "sasl_plain_password": login.password,
        }
        producer = AIOKafkaProducer(**keys)
        try:
            await producer.start()
            await producer.send_and_wait(login.topic, b"aiokafka")
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(login.topic, auto_offset_reset="earliest", **keys)
        await consumer.start()
        try:
            return bytes((await consumer.getone()).value)
        finally:
            await consumer.stop()

    try:
        return asyncio.run(run())
    except AioKafkaError as error:
        raise RefusedError from error


def kafka_python_producer(keys: dict[str, str]) -> KafkaProducer:
    """Return a connected producer. It retries refused logins and logs why they fail."""
    handler = logging.handlers.BufferingHandler(10_000)
    logger = logging.getLogger("kafka")
    logger.addHandler(handler)
    deadline = time.monotonic() + PATIENCE_S
    try:
        while True:
            try:
                return KafkaProducer(**keys, max_block_ms=5000, bootstrap_timeout_ms=1000)
            except KafkaPythonError as error:
                logged = [record.getMessage() for record in handler.buffer]
                if any("SaslAuthenticationFailedError" in message for message in logged):
                    raise RefusedError from error
                if time.monotonic() > deadline:
                    raise
    finally:
        logger.removeHandler(handler)


def with_kafka_python(login: Login) -> bytes:
    keys = {
        "bootstrap_servers": login.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": login.mechanism,
        "sasl_plain_username": login.username,
        "sasl_plain_password": login.password,
    }
    producer = kafka_python_producer(keys)
    try:
        producer.send(login.topic, b"kafka-python").get(10)
    finally:
        producer.close(1)
    consumer = KafkaConsumer(
        login.topic, auto_offset_reset="earliest", consumer_timeout_ms=20_000, **keys
    )
    try:
        return bytes(next(consumer).value)
    finally:
        consumer.close()


def with_kafkajs(login: Login) -> bytes:
    result = run_kafkajs(**login._asdict())
    if "error" in result:
        assert result["error"] == "KafkaJSSASLAuthenticationError", result
        raise RefusedError(result["detail"])
    return str(result["value"]).encode()


CLIENTS: list[Callable[[Login], bytes]] = [
    with_ours,
    with_ours_async,
    with_librdkafka,
    with_aiokafka,
    with_kafka_python,
    with_kafkajs,
]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("mechanism", nightly_unless(CHOSEN.__contains__, MECHANISMS))
def test_a_client_logs_in_writes_and_reads(
    broker: Broker, client: Callable[[Login], bytes], mechanism: str
) -> None:
    assert client(login_of(broker, mechanism))


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    "mechanism", nightly_unless("SCRAM-SHA-512".__eq__, ["PLAIN", "SCRAM-SHA-512"])
)
@pytest.mark.parametrize(
    "change",
    nightly_unless(
        lambda each: "password" in each, [{"password": "wrong"}, {"username": "absent"}]
    ),
)
def test_a_client_is_refused(
    broker: Broker, client: Callable[[Login], bytes], mechanism: str, change: dict[str, str]
) -> None:
    with pytest.raises(RefusedError):
        client(login_of(broker, mechanism)._replace(**change))


# -- Java's tools ---------------------------------------------------------------------------------


def properties(login: Login, directory: Path) -> str:
    """Write a file for --command-config as in Kafka's documentation, and return its path."""
    module = PLAIN_MODULE if login.mechanism == "PLAIN" else SCRAM_MODULE
    file = directory / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        f"sasl.mechanism={login.mechanism}\n"
        f'sasl.jaas.config={module} required username="{login.username}" '
        f'password="{login.password}";\n'
    )
    return str(file)


@pytest.mark.parametrize("mechanism", nightly_unless(CHOSEN.__contains__, MECHANISMS))
def test_java_tools_produce_and_consume(
    broker: Broker, tool_host: ToolHost, tmp_path: Path, mechanism: str
) -> None:
    login = login_of(broker, mechanism)
    server = ("--bootstrap-server", login.bootstrap, "--topic", login.topic)
    file = properties(login, tmp_path)
    sent = tool_host.run("ConsoleProducer", *server, "--command-config", file, stdin="java\n")
    assert sent.returncode == 0, sent.stderr
    read = tool_host.run(
        "consumer.ConsoleConsumer", *server, "--command-config", file,
        "--from-beginning", "--max-messages", "1", "--timeout-ms", "30000",
    )  # fmt: skip
    assert read.stdout.strip() == "java", read.stderr


@pytest.mark.parametrize("mechanism", nightly_unless("PLAIN".__eq__, ["PLAIN", "SCRAM-SHA-256"]))
def test_java_tools_with_a_wrong_password_are_refused(
    broker: Broker, tool_host: ToolHost, tmp_path: Path, mechanism: str
) -> None:
    login = login_of(broker, mechanism)._replace(password="wrong")
    file = properties(login, tmp_path)
    words = ("--bootstrap-server", login.bootstrap, "--command-config", file, "--list")
    done = tool_host.run("TopicCommand", *words)
    assert done.returncode != 0
    assert "Authentication failed" in done.stdout + done.stderr


# -- sessions that end ----------------------------------------------------------------------------


def test_librdkafka_authenticates_again_on_its_open_connection(broker: Broker) -> None:
    login = login_of(broker, "SCRAM-SHA-256")
    seen: list[dict[str, Any]] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.short_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": login.mechanism,
            "sasl.username": login.username,
            "sasl.password": login.password,
            "statistics.interval.ms": 100,
            "stats_cb": lambda text: seen.append(json.loads(text)),
        }
    )
    ends_at = time.monotonic() + 2.2 * SESSION_MS / 1000
    while time.monotonic() < ends_at:
        producer.produce(login.topic, b"value")
        assert producer.flush(PATIENCE_S) == 0
        time.sleep(0.05)
    eventually(
        lambda: (
            producer.poll(0.1) or seen[-1]["ts"] / 1e6 > seen[0]["ts"] / 1e6 + 2 * SESSION_MS / 1000
        )
    )
    (connection,) = [
        each
        for each in seen[-1]["brokers"].values()
        if each["source"] != "logical" and each["toppars"]
    ]
    assert (connection["connects"], connection["disconnects"]) == (1, 0)


def test_java_authenticates_again_on_its_open_connection(
    broker: Broker, tool_host: ToolHost, tmp_path: Path
) -> None:
    login = login_of(broker, "SCRAM-SHA-256")
    done = tool_host.run(
        "ProducerPerformance", "--bootstrap-server", broker.short_bootstrap,
        "--command-config", properties(login, tmp_path), "--topic", login.topic,
        "--num-records", "110", "--throughput", "10", "--record-size", "10", "--print-metrics",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

    def metric(name: str) -> float:
        found = re.findall(rf"producer-metrics:{name}:{{.*}} *: ([0-9.]+)", done.stdout)
        assert len(found) == 1, done.stdout
        return float(found[0])

    assert metric("successful-reauthentication-total") >= 2
    assert metric("failed-authentication-total") == 0
    assert metric("connection-close-total") == 0


def test_kafka_configs_sets_shows_and_deletes_scram_users(
    broker: Broker, tool_host: ToolHost, tmp_path: Path
) -> None:
    user = f"user-{uuid.uuid4().hex[:8]}"
    file = properties(login_of(broker, "PLAIN"), tmp_path)

    def configs(*words: str) -> str:
        server = ("--bootstrap-server", broker.sasl_bootstrap, "--command-config", file)
        entity = ("--entity-type", "users", "--entity-name", user)
        done = tool_host.run("kafka.admin.ConfigCommand", *server, *entity, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    configs("--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=first]")
    configs("--alter", "--add-config", "SCRAM-SHA-512=[password=second]")
    eventually(lambda: "SCRAM-SHA-512=iterations=4096" in configs("--describe"))
    assert "SCRAM-SHA-256=iterations=8192" in configs("--describe")
    login = login_of(broker, "SCRAM-SHA-256")._replace(username=user)
    assert with_ours(login._replace(password="first")) == b"ours"
    assert with_librdkafka(login._replace(mechanism="SCRAM-SHA-512", password="second"))
    configs("--alter", "--delete-config", "SCRAM-SHA-256")
    eventually(lambda: "SCRAM-SHA-256" not in configs("--describe"))
    with pytest.raises(RefusedError):
        with_ours(login._replace(password="first"))


def test_a_changed_or_deleted_password_is_refused(broker: Broker) -> None:
    user, mechanism = f"user-{uuid.uuid4().hex[:8]}", ScramMechanism.SCRAM_SHA_256
    login = login_of(broker, "SCRAM-SHA-256")._replace(username=user)
    with barnabas.Admin(broker.bootstrap) as admin:

        def changed(password: str) -> None:
            admin.alter_scram_credentials([ScramUpsertion(user, mechanism, password)])

        def logs_in(password: str) -> bool:
            try:
                with_ours(login._replace(password=password))
            except RefusedError:
                return False
            return True

        changed("first")
        eventually(lambda: logs_in("first"))
        changed("second")
        eventually(lambda: logs_in("second"))
        assert not logs_in("first")
        admin.alter_scram_credentials(deletions=[ScramDeletion(user, mechanism)])
        eventually(lambda: not logs_in("second"))
