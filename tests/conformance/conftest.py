"""Fixtures of the conformance tests: a shared broker, topics, raw requests.

With BARNABAS_CONFORMANCE_BOOTSTRAP=kafka, the tests run against Apache Kafka, and with HOST:PORT
against that broker. A test that fails on Apache Kafka has a wrong expectation. Clients that need
API versions before 4.0 run against Apache Kafka 3.9.
"""

from __future__ import annotations

import itertools
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from conformance.java_tools import Tools
    from jvm.tool_host import ToolHost

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from barnabas.testing.broker_process import BrokerProcess
from barnabas.testing.cluster_process import ClusterProcess
from conformance.raw_client import RawClient
from jvm.kafka_process import KafkaProcess
from jvm.three_brokers import three_brokers_of
from waiting import eventually

# pytest rewrites the assertions of these modules, so that failures show values.
pytest.register_assert_rewrite(
    "conformance.client_scenarios", "conformance.client_program", "conformance.java_tools"
)

# A working broker responds within this time.
SECONDS = 60

_numbers = itertools.count(1)

# Settings of the broker for client scenarios: short rebalances and sessions; missing topics are not
# created.
CLIENTS_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "3",
    "auto.create.topics.enable": "false",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/conformance/" in str(item.path):
            item.add_marker(pytest.mark.conformance)


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """HOST:PORT of the broker under test."""
    target = os.environ.get("BARNABAS_CONFORMANCE_BOOTSTRAP")
    if target and target != "kafka":
        return target
    process = request.getfixturevalue("reference_broker" if target else "broker")
    address: str = process.bootstrap
    return address


@contextmanager
def _clients_broker(directory: Path, jars: str) -> Iterator[str]:
    """HOST:PORT for the client scenarios; an external broker must have CLIENTS_SETTINGS."""
    target = os.environ.get("BARNABAS_CONFORMANCE_BOOTSTRAP")
    if target and target != "kafka":
        yield target
        return
    process: BrokerProcess | KafkaProcess
    if target:
        process = KafkaProcess(directory, CLIENTS_SETTINGS, jars)
    else:
        process = BrokerProcess(directory, CLIENTS_SETTINGS)
    try:
        yield process.start().bootstrap
    finally:
        process.close()


@pytest.fixture(scope="session")
def clients_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The broker for current clients."""
    with _clients_broker(tmp_path_factory.mktemp("clients"), "kafka") as bootstrap:
        yield bootstrap


@pytest.fixture(scope="session")
def old_clients_bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The same broker, or the last Apache Kafka version that supports these old clients."""
    if os.environ.get("BARNABAS_CONFORMANCE_BOOTSTRAP") != "kafka":
        yield request.getfixturevalue("clients_bootstrap")
        return
    with _clients_broker(tmp_path_factory.mktemp("old-clients"), "kafka-3.9") as bootstrap:
        yield bootstrap


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def tools(request: pytest.FixtureRequest, tool_host: ToolHost) -> Tools:
    """Kafka's shell tools against a broker of each kind; their output must be equal."""
    # The scenarios of these tools need this file.
    from conformance.java_tools import Tools

    is_kafka = request.param == "kafka"
    if is_kafka:
        bootstrap = request.getfixturevalue("reference_broker").bootstrap
    else:
        bootstrap = request.getfixturevalue("clients_bootstrap")
    return Tools(tool_host, bootstrap, is_kafka)


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def await_leaders(admin: AdminClient, topic: str, partitions: int) -> None:
    """Wait until all partitions have leaders, because Kafka responds before that.

    Kafka's metadata also names a leader before that broker leads.
    """
    requests = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}

    def all_have_leaders() -> bool:
        found = admin.list_topics(topic, SECONDS).topics[topic].partitions.values()
        if len(found) != partitions or any(each.leader < 0 for each in found):
            return False
        try:
            for offset in admin.list_offsets(requests).values():
                offset.result(SECONDS)
        except KafkaException:
            return False
        return True

    eventually(all_have_leaders, topic)


@pytest.fixture
def make_topic(admin: AdminClient) -> Callable[..., str]:
    """Create topics with unique names, and return the names."""

    def make(partitions: int = 1, **config: str) -> str:
        name = f"conformance-{os.getpid()}-{next(_numbers)}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        created = admin.create_topics([NewTopic(name, partitions, 1, config=settings)])
        created[name].result(SECONDS)
        await_leaders(admin, name, partitions)
        return name

    return make


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    """A topic with one partition."""
    return make_topic()


@pytest.fixture
def raw(bootstrap: str) -> Iterator[RawClient]:
    """A socket that sends and receives frames."""
    client = RawClient(bootstrap)
    yield client
    client.close()


@pytest.fixture(scope="session", params=["barnabas", "kafka"])
def three_brokers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterProcess]:
    """A cluster of three brokers of each kind, which is restored after each test."""
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "3",
        "transaction.state.log.num.partitions": "1",
        "auto.create.topics.enable": "false",
        # Apache Kafka also detects a failed broker quickly.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "1000",
        # Do not move leaders away from the brokers that tests have chosen.
        "auto.leader.rebalance.enable": "false",
    }
    with three_brokers_of(request, tmp_path_factory, settings) as cluster:
        yield cluster
