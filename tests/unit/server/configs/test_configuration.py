"""Broker configuration: keys, defaults, refused values."""

from __future__ import annotations

import logging

import pytest

from barnabas.server.configs.config import request_memory
from barnabas.server.configs.configuration import BROKER_KEYS, read_configuration
from barnabas.server.configs.endpoints import Endpoint, advertised_endpoints
from barnabas.settings.definition import ConfigError


def test_defaults_are_kafkas() -> None:
    parsed = read_configuration({}).parsed
    expected = {
        "num.partitions": 1,
        "default.replication.factor": 1,
        "log.segment.bytes": 1 << 30,
        "log.retention.hours": 168,
        "message.max.bytes": 1_048_588,
        "socket.request.max.bytes": 104_857_600,
        "fetch.max.bytes": 57_671_680,
        "offsets.topic.num.partitions": 50,
        "offsets.topic.replication.factor": 3,
        "connections.max.idle.ms": 600_000,
        "auto.create.topics.enable": True,
        "max.incremental.fetch.session.cache.slots": 1000,
        "replica.lag.time.max.ms": 30_000,
        "broker.heartbeat.interval.ms": 2000,
        "broker.session.timeout.ms": 9000,
    }
    assert {name: parsed[name] for name in expected} == expected


def test_the_old_name_of_the_node_id_is_accepted() -> None:
    assert read_configuration({"broker.id": "7"}).node_id == 7


def test_an_unknown_key_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        read_configuration({"no.such.key": "1"})
    assert "no.such.key has no effect" in caplog.text
    assert "did you mean" not in caplog.text


def test_the_warning_for_a_misspelt_key_suggests_the_correct_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        read_configuration({"log.retntion.hours": "1"})
    assert "did you mean log.retention.hours?" in caplog.text


def test_a_bad_value_is_an_error_that_names_key_value_and_range() -> None:
    with pytest.raises(ConfigError) as raised:
        read_configuration({"num.partitions": "0"})
    assert str(raised.value) == (
        "num.partitions: '0' is not allowed; allowed: an int (-2147483648 to 2147483647), "
        "at least 1"
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listeners", "nonsense"),
        ("listeners", ""),
        ("listeners", "A://h:1,A://h:2"),
        ("listeners", "OTHER://h"),
        ("listeners", "CONTROLLER://h:1"),
        ("advertised.listeners", "nonsense"),
        ("process.roles", "broker,broker"),
        ("process.roles", "zookeeper"),
        ("controller.quorum.voters", "2@h:9093"),
        ("inter.broker.listener.name", "NOPE"),
        ("listener.security.protocol.map", "PLAINTEXT"),
        ("listener.security.protocol.map", "OTHER:PLAINTEXT"),
        ("security.inter.broker.protocol", "SSL"),
        ("authorizer.class.name", "org.example.StandardAuthorizer"),
    ],
)
def test_unsupported_values_are_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_configuration({key: value})
    assert raised.value.key == key


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "sasl_ssl"])
def test_a_sasl_listener_needs_a_mechanism_that_is_implemented(protocol: str) -> None:
    """Kafka's default is GSSAPI."""
    given = {
        "listeners": "PLAINTEXT://h:9092,PUBLIC://h:9094",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT, PUBLIC:{protocol}",
    }
    with pytest.raises(ConfigError, match=r"sasl\.enabled\.mechanisms.*Kerberos"):
        read_configuration(given)


def test_a_listener_may_have_any_name_that_is_mapped_to_plaintext() -> None:
    configuration = read_configuration(
        {
            "listeners": "SSL_LATER://h:9092,CONTROLLER://h:9093",
            "listener.security.protocol.map": "SSL_LATER:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
        }
    )
    assert configuration.endpoints == [Endpoint("SSL_LATER", "h", 9092)]


def test_a_single_nodes_quorum_may_name_this_node() -> None:
    configuration = read_configuration(
        {
            "controller.quorum.voters": "1@h:9093",
            "listeners": "PLAINTEXT://h:9092,CONTROLLER://h:9093",
        }
    )
    assert configuration.endpoints == [Endpoint("PLAINTEXT", "h", 9092)]
    assert configuration.controller_endpoints == [Endpoint("CONTROLLER", "h", 9093)]
    assert configuration.cluster.is_alone


VOTERS = "1@a:9093,2@b:9093"
COMBINED = {
    "node.id": "1",
    "controller.quorum.voters": VOTERS,
    "listeners": "PLAINTEXT://a:9092,CONTROLLER://a:9093",
}
CONTROLLER_ALONE = {
    "process.roles": "controller",
    "node.id": "2",
    "controller.quorum.voters": VOTERS,
    "listeners": "CONTROLLER://:9093",
}
BROKER_ALONE = {
    "process.roles": "broker",
    "node.id": "3",
    "controller.quorum.voters": VOTERS,
    "listeners": "PLAINTEXT://c:9092",
}


def test_a_node_of_several_is_broker_controller_or_both() -> None:
    both = read_configuration(COMBINED)
    assert (both.cluster.is_broker, both.cluster.is_controller) == (True, True)
    assert both.cluster.voters == {1: ("a", 9093), 2: ("b", 9093)}
    assert not both.cluster.is_alone
    controller = read_configuration(CONTROLLER_ALONE)
    assert (controller.cluster.is_broker, controller.cluster.is_controller) == (False, True)
    assert controller.endpoints == []
    # Where it listens on every interface, the list of voters says how to reach it.
    assert controller.advertised_controller_endpoints == [Endpoint("CONTROLLER", "b", 9093)]
    broker = read_configuration(BROKER_ALONE)
    assert (broker.cluster.is_broker, broker.cluster.is_controller) == (True, False)
    assert broker.controller_endpoints == []


@pytest.mark.parametrize(
    ("base", "key", "value"),
    [
        (COMBINED, "controller.quorum.voters", "2@b:9093,3@c:9093"),
        (COMBINED, "controller.quorum.voters", "1@a:9093,1@b:9093"),
        (COMBINED, "controller.quorum.voters", "1,2"),
        (COMBINED, "controller.quorum.bootstrap.servers", "b:9093"),
        (COMBINED, "listeners", "PLAINTEXT://a:9092"),
        (COMBINED, "cluster.id", "not a uuid"),
        (CONTROLLER_ALONE, "listeners", "PLAINTEXT://b:9092,CONTROLLER://b:9093"),
        (CONTROLLER_ALONE, "controller.quorum.voters", "1@a:9093"),
        (BROKER_ALONE, "listeners", "PLAINTEXT://c:9092,CONTROLLER://c:9093"),
        (BROKER_ALONE, "controller.quorum.voters", "3@c:9093"),
        (BROKER_ALONE, "controller.quorum.voters", ""),
    ],
)
def test_contradictory_roles_voters_and_listeners_are_refused(
    base: dict[str, str], key: str, value: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        read_configuration({**base, key: value})
    assert raised.value.key == key


def test_a_dynamic_quorum_is_found_by_its_bootstrap_servers() -> None:
    given = {**BROKER_ALONE, "controller.quorum.bootstrap.servers": "a:9093,[::1]:9093"}
    del given["controller.quorum.voters"]
    cluster = read_configuration(given).cluster
    assert cluster.bootstrap_servers == (("a", 9093), ("::1", 9093))
    assert not cluster.is_alone


def test_brokers_connect_to_the_inter_broker_listener() -> None:
    listeners = "PUBLIC://h:9092,PRIVATE://h:9094"
    named = {"listeners": listeners, "inter.broker.listener.name": "private"}
    assert read_configuration(named).inter_broker_listener == "PRIVATE"
    assert read_configuration({"listeners": listeners}).inter_broker_listener == "PUBLIC"


def test_the_bound_port_is_advertised_by_default() -> None:
    parsed = read_configuration(
        {"listeners": "PLAINTEXT://h:0,OTHER://h:0", "advertised.listeners": "OTHER://public:1234"}
    ).parsed
    bound = [Endpoint("PLAINTEXT", "h", 5001), Endpoint("OTHER", "h", 5002)]
    assert advertised_endpoints(parsed, bound) == [
        Endpoint("PLAINTEXT", "h", 5001),
        Endpoint("OTHER", "public", 1234),
    ]


def test_every_interface_needs_an_advertised_address() -> None:
    with pytest.raises(ConfigError, match=r"advertised\.listeners"):
        read_configuration({"listeners": "PLAINTEXT://0.0.0.0:9092"})
    read_configuration(
        {"listeners": "PLAINTEXT://0.0.0.0:9092", "advertised.listeners": "PLAINTEXT://public:9092"}
    )


def test_every_key_has_a_description() -> None:
    assert all(key.doc.endswith(".") for key in BROKER_KEYS)


def test_the_memory_for_requests_holds_at_least_one_request() -> None:
    key, largest = "queued.max.request.bytes", "socket.request.max.bytes"
    with pytest.raises(ConfigError, match=r"at least socket\.request\.max\.bytes"):
        read_configuration({key: "1000"})
    assert request_memory(read_configuration({}).parsed) == 256 << 20
    assert request_memory(read_configuration({largest: str(1 << 30)}).parsed) == 1 << 30
    assert request_memory(read_configuration({key: "1000", largest: "1000"}).parsed) == 1000
    for value in ("0", "-1", "-7"):
        assert request_memory(read_configuration({key: value}).parsed) is None


@pytest.mark.parametrize(
    "settings",
    [
        {"max.connections": "0"},
        {"listener.name.plaintext.max.connections": "0"},
        {"max.connections.per.ip": "0"},
    ],
)
def test_limits_that_refuse_every_client_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        read_configuration(settings)


def test_a_limit_of_zero_with_overrides_allows_the_listed_addresses() -> None:
    overrides = {"max.connections.per.ip.overrides": "127.0.0.1:3"}
    read_configuration({"max.connections.per.ip": "0", **overrides})


@pytest.mark.parametrize(
    ("host", "server", "begins"),
    [
        ("localhost", "localhost", True),
        ("127.0.0.1", "127.0.0.1", True),
        # Others could reach it there: it may be one of several nodes, with an empty disk.
        ("node-1.example", "node-1.example", False),
        ("localhost", "127.0.0.1", False),
    ],
)
def test_only_a_single_bootstrap_server_on_loopback_starts_a_quorum(
    host: str, server: str, begins: bool
) -> None:
    configuration = read_configuration(
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"{server}:9093",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{host}:9092,CONTROLLER://{host}:9093",
        }
    )
    assert configuration.cluster.may_found_cluster is begins
