"""Logins of a channel: at its start, before the session ends, and failed ones."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from barnabas.network.channel import Channel, ChannelDependencies
from barnabas.network.framed_protocol import new_receive_buffer
from barnabas.network.network_error import NetworkError, NetworkErrorKind
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.sasl.client_login import PasswordLogin
from barnabas.waiting.timing_wheel import TimingWheel
from unit.server.security_settings import PREFIX, sasl_settings
from unit.server.simulated_broker import HOST, PORT, TIMEOUT_MS, SimulatedBroker

METADATA = MetadataRequest(topics=[])


class Client:
    """A channel with credentials, and its responses."""

    def __init__(
        self, broker: SimulatedBroker, mechanism: str = "PLAIN", password: str = "alice-secret"
    ) -> None:
        self.world = broker.world
        self.host = self.world.host(f"sasl-{self.world.scheduler.now_ms}")
        runtime = self.host.runtime
        self.login = PasswordLogin(mechanism, ("alice", password), runtime.executor, runtime.rng)
        dependencies = ChannelDependencies(
            runtime.clock,
            runtime.timer,
            runtime.sockets,
            TimingWheel(runtime.clock, runtime.timer),
            new_receive_buffer(),
        )
        self.closed: list[NetworkError] = []
        self.connected: list[NetworkError | None] = []
        self.outcomes: list[tuple[Any, NetworkError | None]] = []
        self.channel = Channel(
            replace(dependencies, login=self.login), "c", lambda _, error: self.closed.append(error)
        )

    def connect(self) -> NetworkError | None:
        self.channel.connect(HOST, PORT, TIMEOUT_MS, self.connected.append)
        assert self.world.run_until(lambda: bool(self.connected))
        return self.connected[0]

    def send(self, count: int = 1) -> None:
        for _ in range(count):
            self.channel.send(
                METADATA, 1, lambda *outcome: self.outcomes.append(outcome), TIMEOUT_MS
            )

    def await_outcomes(self, count: int) -> list[NetworkError | None]:
        assert self.world.run_until(lambda: len(self.outcomes) == count)
        return [error for _, error in self.outcomes]


def short_sessions(length_ms: int) -> SimulatedBroker:
    keys = {f"{PREFIX}.connections.max.reauth.ms": str(length_ms)}
    return SimulatedBroker(**{**sasl_settings(), **keys})


def logins(broker: SimulatedBroker) -> int:
    """Number of SaslAuthenticate requests that the broker has served."""
    return broker.node.shared.statistics.of(36, "", 2, METADATA.__class__).requests


def test_requests_follow_the_login() -> None:
    client = Client(SimulatedBroker(**sasl_settings()))
    assert client.connect() is None
    client.send(3)
    assert client.await_outcomes(3) == [None] * 3
    assert not client.closed


def test_requests_wait_during_a_due_login() -> None:
    broker = short_sessions(4000)
    client = Client(broker)
    assert client.connect() is None
    client.send(2)
    client.await_outcomes(2)
    before = logins(broker)
    broker.world.run_for(3500)
    client.send(3)
    assert client.channel.in_flight == 4, "the handshake, and three requests behind it"
    assert client.await_outcomes(5) == [None] * 5
    assert logins(broker) == before + 1
    broker.world.run_for(3000)
    client.send()
    assert client.await_outcomes(6) == [None] * 6
    assert logins(broker) == before + 1, "the next login is not due"


def test_an_idle_connection_logs_in_again_at_its_next_request() -> None:
    broker = short_sessions(4000)
    client = Client(broker)
    assert client.connect() is None
    broker.world.run_for(60_000)
    assert logins(broker) == 1
    client.send()
    assert client.await_outcomes(1) == [None]
    assert logins(broker) == 2


def test_sessions_shorter_than_the_brokers_limit_are_renewed() -> None:
    broker = short_sessions(900)
    client = Client(broker)
    assert client.connect() is None
    for number in range(1, 40):
        broker.world.run_for(100)
        client.send()
        client.await_outcomes(number)
    served = [error for error in client.await_outcomes(39) if error is None]
    assert len(served) >= 8


def test_a_password_that_becomes_wrong_closes_the_connection_with_the_reason() -> None:
    broker = short_sessions(4000)
    client = Client(broker)
    assert client.connect() is None
    client.login._password = "other"
    broker.world.run_for(3500)
    client.send(2)
    errors = client.await_outcomes(2)
    assert [error.kind for error in errors if error] == [NetworkErrorKind.NOT_AUTHENTICATED] * 2
    assert broker.world.run_until(lambda: bool(client.closed))
    assert client.closed[0].kind is NetworkErrorKind.NOT_AUTHENTICATED


@pytest.mark.parametrize(
    ("mechanism", "password", "reason"),
    [
        ("PLAIN", "wrong", "has refused user 'alice' with sasl.mechanism=PLAIN"),
        ("SCRAM-SHA-256", "x", "has refused user 'alice' with sasl.mechanism=SCRAM-SHA-256"),
        (
            "SCRAM-SHA-512",
            "x",
            "is not enabled on the broker, which offers: PLAIN, SCRAM-SHA-256",
        ),
    ],
)
def test_a_failed_login_is_reported_with_its_reason(
    mechanism: str, password: str, reason: str
) -> None:
    client = Client(SimulatedBroker(**sasl_settings()), mechanism, password)
    error = client.connect()
    assert error is not None
    assert error.kind is NetworkErrorKind.NOT_AUTHENTICATED
    assert reason in error.detail
    assert not error.retriable
    client.world.run_for(1000)
    assert client.connected == [error], "it is told once"
    assert not client.closed, "it was never open for its owner"


def test_a_listener_without_sasl_is_reported() -> None:
    error = Client(SimulatedBroker()).connect()
    assert error is not None
    assert "set security.protocol=PLAINTEXT" in error.detail


def test_a_canceled_login_is_not_reported() -> None:
    broker = SimulatedBroker(**sasl_settings())
    client = Client(broker)
    client.channel.connect(HOST, PORT, TIMEOUT_MS, client.connected.append)
    assert broker.world.run_until(lambda: client.channel.in_flight == 1)
    client.channel.close()
    broker.world.run_for(5000)
    assert not client.connected
    assert not client.closed


def test_a_connection_lost_during_the_login_is_an_error() -> None:
    broker = SimulatedBroker(**sasl_settings())
    client = Client(broker)
    client.channel.connect(HOST, PORT, TIMEOUT_MS, client.connected.append)
    assert broker.world.run_until(lambda: client.channel.in_flight == 1)
    broker.host.kill()
    assert broker.world.run_until(lambda: bool(client.connected))
    (error,) = client.connected
    assert error is not None
    assert error.kind is NetworkErrorKind.DISCONNECTED
    assert not client.closed
