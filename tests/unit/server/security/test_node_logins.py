"""Nodes of a cluster log in to each other: brokers at brokers, and all at controllers."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from barnabas.network.channel import Channel, ChannelDependencies
from barnabas.network.framed_protocol import new_receive_buffer
from barnabas.network.network_error import NetworkError, NetworkErrorKind
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.schema import Message
from barnabas.record.builder import BatchBuilder
from barnabas.sasl.client_login import PasswordLogin
from barnabas.sasl.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE
from barnabas.sasl.token_login import ClientCredentials, TokenLogin, unsecured
from barnabas.server.configs.configuration import read_configuration
from barnabas.server.configs.oauth_settings import UNSECURED, TokenLoginSettings
from barnabas.settings.key import ConfigError
from barnabas.waiting.timing_wheel import TimingWheel
from unit.server.simulated_broker import produce_request
from unit.server.simulated_cluster import CLIENT_PORT, TIMEOUT_MS, SimulatedCluster

MAP = "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"
USERS = 'user_node="node-secret" user_alice="alice-secret"'


def jaas(password: str = "node-secret") -> str:
    return f'{PLAIN_MODULE} required username="node" password="{password}" {USERS};'


def settings(**passwords: str) -> dict[str, str]:
    return {
        "listener.security.protocol.map": MAP,
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "min.insync.replicas": "2",
        **{
            f"listener.name.{name}.plain.sasl.jaas.config": jaas(passwords.get(name, "node-secret"))
            for name in ("plaintext", "controller")
        },
    }


class LoggedIn:
    """A client of a cluster, logged in as alice."""

    def __init__(self, cluster: SimulatedCluster, password: str = "alice-secret") -> None:
        self.cluster = cluster
        runtime = cluster.world.host("client").runtime
        wheel = TimingWheel(runtime.clock, runtime.timer)
        dependencies = ChannelDependencies(
            runtime.clock, runtime.timer, runtime.sockets, wheel, new_receive_buffer()
        )
        login = PasswordLogin("PLAIN", ("alice", password), runtime.executor, runtime.rng)
        self.dependencies = replace(dependencies, login=login)

    def connect(self, node_id: int) -> tuple[Channel, NetworkError | None]:
        channel = Channel(self.dependencies, "client", lambda *_: None)
        outcome: list[NetworkError | None] = []
        channel.connect(f"node-{node_id}", CLIENT_PORT, TIMEOUT_MS, outcome.append)
        self.cluster.until(lambda: bool(outcome))
        return channel, outcome[0]

    def ask(self, node_id: int, request: Message, version: int) -> Any:
        channel, error = self.connect(node_id)
        assert error is None, error
        outcome: list[Any] = []
        channel.send(request, version, lambda *found: outcome.append(found), TIMEOUT_MS)
        self.cluster.until(lambda: bool(outcome))
        response, error = outcome[0]
        assert error is None, error
        return response


def test_a_cluster_whose_nodes_log_in_replicates_and_forwards() -> None:
    roles = dict.fromkeys((1, 2, 3), "broker,controller")
    cluster = SimulatedCluster(roles, **settings()).start()
    cluster.until(lambda: cluster.live_brokers(1) == {1, 2, 3})
    client = LoggedIn(cluster)
    follower = next(node_id for node_id in roles if node_id != cluster.active)
    topic = CreatableTopic(
        name="t", num_partitions=1, replication_factor=3, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
    assert client.ask(follower, request, 5).topics[0].error_code == 0
    metadata = client.ask(1, MetadataRequest(topics=None), 9)
    (partition,) = metadata.topics[0].partitions
    builder = BatchBuilder()
    builder.append(0, None, b"value")
    produced = client.ask(
        partition.leader_id, produce_request("t", bytes(builder.build()), acks=-1), 9
    )
    assert produced.responses[0].partition_responses[0].error_code == 0


def test_a_wrong_password_of_a_node_is_logged_and_keeps_it_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = SimulatedCluster({1: "broker,controller", 2: "broker"}, **settings())
    cluster.launch(1)
    cluster.settings = settings(controller="wrong-secret")
    cluster.launch(2)
    cluster.until(lambda: cluster.ready == {1})
    cluster.world.run_for(25_000)
    assert cluster.ready == {1}
    lines = [each for each in caplog.messages if each.startswith("Login at another node failed")]
    assert 2 <= len(lines) <= 9
    assert "node-1:9093: the broker has refused user 'node'" in lines[0]
    assert "wrong-secret" not in caplog.text


def test_a_wrong_password_of_a_client_is_an_error_with_a_reason() -> None:
    cluster = SimulatedCluster({1: "broker,controller", 2: "broker"}, **settings()).start()
    _, error = LoggedIn(cluster, "wrong").connect(2)
    assert error is not None
    assert error.kind is NetworkErrorKind.NOT_AUTHENTICATED
    assert "has refused user 'alice' with sasl.mechanism=PLAIN" in error.detail
    assert "wrong" not in error.detail


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sasl.mechanism.inter.broker.protocol", "GSSAPI"),
        ("sasl.mechanism.controller.protocol", "GSSAPI"),
        ("listener.name.controller.plain.sasl.jaas.config", f"{PLAIN_MODULE} required {USERS};"),
        ("listener.name.plaintext.plain.sasl.jaas.config", f"{PLAIN_MODULE} required {USERS};"),
    ],
)
def test_missing_credentials_of_a_node_are_named_at_its_start(key: str, value: str) -> None:
    cluster = SimulatedCluster({1: "broker,controller", 2: "broker"}, **{**settings(), key: value})
    with pytest.raises(ConfigError) as caught:
        read_configuration(cluster.properties(2))
    assert caught.value.key == key
    assert "secret" not in str(caught.value)


NODE_TOKEN = f'{OAUTHBEARER_MODULE} required unsecuredLoginStringClaim_sub="node";'
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"


def token_settings(module: str = NODE_TOKEN, **more: str) -> dict[str, str]:
    return {
        "listener.security.protocol.map": MAP,
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.server.callback.handler.class": UNSECURED,
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.mechanism.controller.protocol": "OAUTHBEARER",
        **{
            f"listener.name.{name}.oauthbearer.sasl.jaas.config": module
            for name in ("plaintext", "controller")
        },
        **more,
    }


def test_nodes_that_log_in_by_tokens_authenticate_again_on_open_connections(
    caplog: pytest.LogCaptureFixture,
) -> None:
    roles = dict.fromkeys((1, 2, 3), "broker,controller")
    session = {"connections.max.reauth.ms": "3000", "min.insync.replicas": "3"}
    cluster = SimulatedCluster(roles, **token_settings(), **session).start()
    cluster.until(lambda: cluster.live_brokers(1) == {1, 2, 3})
    cluster.world.run_for(10_000)
    assert cluster.live_brokers(1) == {1, 2, 3}
    client = LoggedIn(cluster)
    runtime = cluster.world.host("client").runtime
    login = TokenLogin(unsecured({"sub": "alice"}), "user 'alice'", runtime)
    client.dependencies = replace(client.dependencies, login=login)
    topic = CreatableTopic(
        name="t", num_partitions=1, replication_factor=3, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
    assert client.ask(1, request, 5).topics[0].error_code == 0
    metadata = client.ask(1, MetadataRequest(topics=None), 9)
    (partition,) = metadata.topics[0].partitions
    builder = BatchBuilder()
    builder.append(0, None, b"value")
    produced = client.ask(
        partition.leader_id, produce_request("t", bytes(builder.build()), acks=-1), 9
    )
    assert produced.responses[0].partition_responses[0].error_code == 0
    assert not [each for each in caplog.messages if each.startswith("Login at another node failed")]


def test_a_node_gets_its_tokens_from_an_issuer() -> None:
    module = (
        f'{OAUTHBEARER_MODULE} required clientId="old" clientSecret="old-secret" scope="nodes" '
        f'extension_traceId="7";'
    )
    more = {ENDPOINT: "https://issuer/token", CLIENT_ID: "node", CLIENT_SECRET: "node-secret"}
    for given, expected in ((more, ("node", "node-secret")), ({}, ("old", "old-secret"))):
        found = token_settings(module, **{ENDPOINT: more[ENDPOINT], **given})
        cluster = SimulatedCluster({1: "broker,controller", 2: "broker"}, **found)
        logins = read_configuration(cluster.properties(2)).logins
        assert len(logins) == 2
        for login in logins.values():
            assert isinstance(login, TokenLoginSettings)
            assert login.source == ClientCredentials(
                "https://issuer/token", *expected, "nodes", {"traceId": "7"}
            )
            assert "secret" not in repr(login)


@pytest.mark.parametrize(
    ("module", "more", "key"),
    [
        (f"{OAUTHBEARER_MODULE} required;", {}, ENDPOINT),
        (NODE_TOKEN, {ENDPOINT: "issuer"}, ENDPOINT),
        (NODE_TOKEN, {ENDPOINT: "https://issuer"}, CLIENT_ID),
        (NODE_TOKEN, {ENDPOINT: "https://issuer", CLIENT_ID: "node"}, CLIENT_SECRET),
        (NODE_TOKEN, {"sasl.login.callback.handler.class": "org.example.Handler"},
         "sasl.login.callback.handler.class"),
        (
            NODE_TOKEN.replace(";", ' extension_auth="x";'),
            {ENDPOINT: "https://issuer", CLIENT_ID: "node", CLIENT_SECRET: "node-secret"},
            "sasl.jaas.config",
        ),
    ],
)  # fmt: skip
def test_missing_sources_of_tokens_are_named_at_the_start(
    module: str, more: dict[str, str], key: str
) -> None:
    found = token_settings(module, **more)
    cluster = SimulatedCluster({1: "broker,controller", 2: "broker"}, **found)
    with pytest.raises(ConfigError) as caught:
        read_configuration(cluster.properties(2))
    assert caught.value.key.endswith(key)
    assert "node-secret" not in str(caught.value)
