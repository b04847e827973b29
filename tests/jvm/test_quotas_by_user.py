"""Quotas of authenticated users on Apache Kafka and on Barnabas, and their metrics."""

from __future__ import annotations

import http.client
import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

import barnabas
from barnabas.client.admin.credentials import ScramMechanism, ScramUpsertion
from barnabas.client.admin.topics import NewTopic
from barnabas.client.facade import Client
from barnabas.metadata.configs_image import QuotaEntity
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.connection import SaslAuthenticateRequest, SaslHandshakeRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from barnabas.record.builder import BatchBuilder
from barnabas.testing.free_ports import free_ports
from conformance.raw_client import RawClient
from conformance.sasl_brokers import SaslBarnabas, SaslKafka
from jvm.jmx import Jmx, machine_with_jmx
from quota_levels import LEVELS, Quotas, entity, limit_by_model
from selection import nightly_unless
from waiting import eventually, eventually_equal

pytestmark = pytest.mark.conformance
TOPIC = "quotas"
# Bytes per second: less than the size of any request, and more than that of all requests.
TINY, HUGE = 1.0, 1e12
PRODUCE, FETCH, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
MUTATION = "controller_mutation_rate"
CLIENTS = [*itertools.product(("alice", "bob"), ("c", "d", ""))]
# A name with characters to escape; SCRAM of Apache Kafka accepts only ASCII.
ESCAPED_USER = "a=b*c d~"
SANITIZED = "a%3Db%2Ac%20d%7E"
_names = itertools.count(1)


class Side(NamedTuple):
    """A broker, and a function that reads an attribute of a type of metric, by its tags."""

    broker: SaslBarnabas | SaslKafka
    read: Callable[[str, str], dict[tuple[str, str], float]]


@pytest.fixture(scope="module", params=nightly_unless("barnabas".__eq__, ["barnabas", "kafka"]))
def side(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Side]:
    directory = tmp_path_factory.mktemp(request.param)
    (port,) = free_ports(1)
    if request.param == "barnabas":
        address = f"127.0.0.1:{port}"
        with SaslBarnabas(directory, {"metrics.listener": address}) as ours:
            add_users(ours.bootstrap)
            yield Side(ours, lambda kind, attribute: scrape(address, kind, attribute))
        return
    kafka = SaslKafka(directory, machine=machine_with_jmx(port))
    kafka.start()
    try:
        with Jmx(kafka, port) as jmx:
            add_users(kafka.bootstrap)
            yield Side(kafka, lambda kind, attribute: read_mbeans(jmx, kind, attribute))
    finally:
        kafka.kill()


def add_users(bootstrap: str) -> None:
    """Create the topic of the tests and the SCRAM users."""
    with Client(bootstrap) as client:
        # The records have the timestamp 0.
        topic = NewTopic(TOPIC, 1, 1, {"retention.ms": "-1"})
        assert client.create_topics([topic])[TOPIC] is None
        user = ScramUpsertion(ESCAPED_USER, ScramMechanism.SCRAM_SHA_256, "secret", 4096)
        client.admin.alter_scram_credentials([user])


def scrape(address: str, kind: str, attribute: str) -> dict[tuple[str, str], float]:
    connection = http.client.HTTPConnection(address)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    expected_name = f"kafka_server_{kind}_{attribute.replace('-', '_')}".lower()
    return {
        (sample.labels["user"], sample.labels["client_id"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == expected_name
    }


def read_mbeans(jmx: Jmx, kind: str, attribute: str) -> dict[tuple[str, str], float]:
    found = {}
    for (name, each), value in jmx.values(f"kafka.server:type={kind},*").items():
        tags = dict(part.split("=", 1) for part in name.partition(":")[2].split(","))
        # The name lacks empty tags.
        if each == attribute and tags.keys() & {"user", "client-id"}:
            found[tags.get("user", ""), tags.get("client-id", "")] = float(value)
    return found


class QuotaSetter:
    """Sets quotas on one broker, and removes them at the end."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = barnabas.Admin(bootstrap)
        self._set: dict[QuotaEntity, set[str]] = {}

    def set(self, owner: QuotaEntity, key: str, value: float) -> None:
        self._admin.alter_quotas(owner, {key: value})
        self._set.setdefault(owner, set()).add(key)

    def clear(self) -> None:
        for owner, keys in self._set.items():
            self._admin.alter_quotas(owner, dict.fromkeys(keys))
        self._set.clear()
        eventually_equal(lambda: self._admin.describe_quotas({}), {})

    def close(self) -> None:
        self.clear()
        self._admin.close()


@pytest.fixture
def quotas(side: Side) -> Iterator[QuotaSetter]:
    made = QuotaSetter(side.broker.bootstrap)
    yield made
    made.close()


def connect(side: Side, user: str, client_id: str) -> RawClient:
    """Open a connection of a user that is not throttled yet."""
    client = RawClient(side.broker.sasl_bootstrap, client_id=client_id)
    client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    message = f"\0{user}\0{user}-secret".encode()
    response: Any = client.ask(SaslAuthenticateRequest(auth_bytes=message), 2)
    assert response.error_code == 0
    return client


def exchange(side: Side, user: str, client_id: str, request: Any, version: int) -> Any:
    """Send a request on a new connection, and return the response."""
    client = connect(side, user, client_id)
    try:
        return client.ask(request, version)
    finally:
        client.close()


def produce_request(size: int = 1000) -> ProduceRequest:
    builder = BatchBuilder()
    builder.append(0, None, bytes(size))
    data = PartitionProduceData(index=0, records=bytes(builder.build()))
    return ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
    )


def fetch_request() -> FetchRequest:
    partition = FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=1 << 20, current_leader_epoch=-1
    )
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=TOPIC, partitions=[partition])],
        forgotten_topics_data=[],
    )


def new_topic() -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=f"made-{next(_names)}",
        num_partitions=3,
        replication_factor=1,
        assignments=[],
        configs=[],
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


def is_throttled(side: Side, user: str, client_id: str) -> bool:
    response = exchange(side, user, client_id, produce_request(), 9)
    assert response.responses[0].partition_responses[0].error_code == 0
    return bool(response.throttle_time_ms > 0)


def throttled(side: Side) -> dict[tuple[str, str], bool]:
    return {client: is_throttled(side, *client) for client in CLIENTS}


def expected(given: Quotas) -> dict[tuple[str, str], bool]:
    found = {client: limit_by_model(given, *client) for client in CLIENTS}
    return {client: limit is not None and limit[0] == TINY for client, limit in found.items()}


def test_each_level_precedes_the_next(side: Side, quotas: QuotaSetter) -> None:
    given: Quotas = {}
    for value, level in zip(itertools.cycle((TINY, HUGE)), reversed(LEVELS), strict=False):
        owner = entity("alice", "c", level)
        given[owner] = value
        quotas.set(owner, PRODUCE, value)
        eventually_equal(lambda: throttled(side), expected(given))


@pytest.mark.parametrize("seed", range(8))
def test_random_quotas_apply_to_the_expected_clients(
    side: Side, quotas: QuotaSetter, seed: int
) -> None:
    rng = random.Random(seed)
    given: Quotas = {}
    for _ in range(rng.randint(1, 6)):
        owner = entity(*rng.choice(CLIENTS[:2] + CLIENTS[3:5]), rng.choice(LEVELS))
        given[owner] = rng.choice((TINY, HUGE))
        quotas.set(owner, PRODUCE, given[owner])
    eventually_equal(lambda: throttled(side), expected(given))


def test_a_fetch_over_the_quota_of_a_user_is_empty(side: Side, quotas: QuotaSetter) -> None:
    exchange(side, "alice", "c", produce_request(5000), 9)
    quotas.set((("user", "alice"),), FETCH, 100.0)

    def response(user: str) -> Any:
        return exchange(side, user, "c", fetch_request(), 12)

    eventually(lambda: response("alice").throttle_time_ms > 0)
    throttled_response = response("alice")
    assert throttled_response.throttle_time_ms > 0
    assert not throttled_response.responses
    other = response("bob")
    assert other.throttle_time_ms == 0
    assert other.responses[0].partitions[0].records


def test_the_time_of_a_user_is_limited(side: Side, quotas: QuotaSetter) -> None:
    quotas.set((("user", "alice"),), REQUEST, 1e-3)
    request = MetadataRequest(topics=[])
    eventually(lambda: exchange(side, "alice", "c", request, 12).throttle_time_ms > 0)
    # At most one window of quota.window.size.seconds.
    assert 0 < exchange(side, "alice", "d", request, 12).throttle_time_ms <= 1000
    assert exchange(side, "bob", "c", request, 12).throttle_time_ms == 0


def test_mutations_of_a_user_are_limited(side: Side, quotas: QuotaSetter) -> None:
    quotas.set((("user", "alice"),), MUTATION, 0.01)

    def made(user: str, version: int) -> tuple[int, bool]:
        response = exchange(side, user, "c", new_topic(), version)
        return response.topics[0].error_code, response.throttle_time_ms > 0

    refused = int(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    eventually_equal(lambda: made("alice", 7), (refused, True))
    # Clients with versions below the error are served, and throttled.
    assert made("alice", 5) == (0, True)
    assert made("bob", 7) == (0, False)
    assert ("alice", "") in side.read("ControllerMutation", "tokens")
    assert side.read("ControllerMutation", "tokens")["alice", ""] < 0
    assert side.read("ControllerMutation", "mutation-rate")["alice", ""] > 0
    assert ("alice", "") in side.read("ControllerMutation", "throttle-time")


def test_a_changed_quota_applies_to_an_open_connection(side: Side, quotas: QuotaSetter) -> None:
    client = connect(side, "alice", "c")
    response: Any = client.ask(produce_request(), 9)
    assert response.throttle_time_ms == 0
    quotas.set((("user", "alice"),), PRODUCE, TINY)
    throttle_times = []

    def is_limited() -> bool:
        response: Any = client.ask(produce_request(), 9)
        throttle_times.append(response.throttle_time_ms)
        return bool(response.throttle_time_ms > 0)

    eventually(is_limited)
    client.close()


def test_the_metrics_of_a_user_have_its_sanitized_name(side: Side, quotas: QuotaSetter) -> None:
    quotas.set((("user", ESCAPED_USER),), PRODUCE, TINY * 100)
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": ESCAPED_USER,
        "sasl.password": "secret",
    }

    def is_measured() -> bool:
        with barnabas.Producer(side.broker.sasl_bootstrap, **settings) as producer:
            producer.send(TOPIC, bytes(3000))
        times = side.read("Produce", "throttle-time")
        return times.get((SANITIZED, ""), 0) > 0

    eventually(is_measured)
    assert side.read("Produce", "byte-rate")[SANITIZED, ""] > 0
    assert side.read("Produce", "throttle-time")[SANITIZED, ""] > 0


def test_kafka_configs_sets_and_describes_quotas_of_users(
    side: Side, quotas: QuotaSetter, kafka_tools: Callable[..., Any]
) -> None:
    def configs(*words: str) -> str:
        done = kafka_tools(
            "kafka.admin.ConfigCommand", "--bootstrap-server", side.broker.bootstrap, *words
        )
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    user, client = ("--entity-type", "users"), ("--entity-type", "clients")
    owners = (
        (*user, "--entity-name", "alice"),
        (*user, "--entity-default"),
        (*user, "--entity-name", "alice", *client, "--entity-name", "c"),
        (*user, "--entity-name", "alice", *client, "--entity-default"),
        (*client, "--entity-name", "c"),
    )

    def describes(expected_name: str, *owner: str) -> bool:
        return expected_name in configs(*owner, "--describe")

    words = []
    for number, owner in enumerate(owners, 1):
        configs(*owner, "--alter", "--add-config", f"{PRODUCE}={number}000,{REQUEST}=50")
        expected_name = f"{PRODUCE}={number}000.0"
        eventually(partial(describes, expected_name, *owner))
        words.append(configs(*owner, "--describe").strip())
        assert f"{REQUEST}=50.0" in words[-1]
    assert words[0].startswith("Quota configs for user-principal 'alice' are ")
    assert "default user-principal" in words[1]
    assert "user-principal 'alice', client-id 'c'" in words[2]
    for owner in owners:
        configs(*owner, "--alter", "--delete-config", f"{PRODUCE},{REQUEST}")
    eventually(lambda: not any(throttled(side).values()))
