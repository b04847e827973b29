"""A test suite with old pins, which test_isolated_plugin.py runs in an environment of its own."""

from __future__ import annotations

import asyncio
import importlib.metadata
import importlib.util

import aiokafka
import pytest
from aiokafka.errors import TopicAuthorizationFailedError


async def send(topic: str, **login: object) -> int:
    producer = aiokafka.AIOKafkaProducer(**login)
    await producer.start()
    try:
        return (await producer.send_and_wait(topic, b"one order")).offset
    finally:
        await producer.stop()


def test_the_environment_keeps_its_pins() -> None:
    assert importlib.metadata.version("aiokafka") == "0.11.0"
    assert importlib.metadata.version("cryptography") == "42.0.8"
    for name in ("barnabas", "msgspec", "uvloop", "cramjam"):
        assert importlib.util.find_spec(name) is None


def test_a_broker_on_the_loop_needs_barnabas_here() -> None:
    with pytest.raises(ImportError, match="install Barnabas in this environment"):
        from pytest_barnabas import running_broker as running_broker


def test_a_broker_has_a_topic(kafka_broker, kafka_topic: str) -> None:
    assert asyncio.run(send(kafka_topic, bootstrap_servers=kafka_broker.bootstrap)) == 0
    kafka_broker.kill()


def test_a_killed_broker_runs_again(kafka_broker, kafka_topic: str) -> None:
    assert asyncio.run(send(kafka_topic, bootstrap_servers=kafka_broker.bootstrap)) == 0


def test_users_log_in(secured_kafka) -> None:
    secured_kafka.create_topic("orders")
    users = secured_kafka.users
    assert asyncio.run(send("orders", **users["ann"].aiokafka)) == 0
    with pytest.raises(TopicAuthorizationFailedError):
        asyncio.run(send("orders", **users["bob"].aiokafka))


def test_a_cluster_survives_a_cut_link(kafka_cluster) -> None:
    kafka_cluster.create_topic("payments", partitions=3)
    kafka_cluster.cut((1, 2))
    kafka_cluster.heal()
    login = {"bootstrap_servers": kafka_cluster.bootstrap, "acks": "all"}
    assert asyncio.run(send("payments", **login)) == 0
