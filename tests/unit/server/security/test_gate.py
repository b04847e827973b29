"""A listener with SASL: its responses before a login, after it, and after a failed one."""

from __future__ import annotations

import gc
import logging
from typing import Any

import pytest

from barnabas.network.connection import Connection
from barnabas.network.network_error import NetworkErrorKind
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.connection import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.schema import Message
from barnabas.runtime.line_limit import LINES_MAX, PERIOD_MS
from barnabas.server.security.sasl.gate import LOGIN_MS_MAX
from unit.server.security_settings import PREFIX, sasl_settings
from unit.server.simulated_broker import SimulatedBroker, SimulatedClient

GOOD = b"\0alice\0alice-secret"
WRONG = b"\0alice\0alice-wrong"
METADATA = MetadataRequest(topics=[])
HANDSHAKE = SaslHandshakeRequest(mechanism="PLAIN")


@pytest.fixture
def broker() -> SimulatedBroker:
    return SimulatedBroker(**sasl_settings())


def message(auth_bytes: bytes) -> SaslAuthenticateRequest:
    return SaslAuthenticateRequest(auth_bytes=auth_bytes)


def log_in(client: SimulatedClient, auth_bytes: bytes = GOOD) -> Any:
    assert client.ask(HANDSHAKE, 1).error_code == 0
    return client.ask(message(auth_bytes), 2)


def another(broker: SimulatedBroker, name: str = "other") -> SimulatedClient:
    return SimulatedClient(broker.world, f"{name}-{broker.world.scheduler.now_ms}")


def connection_of(broker: SimulatedBroker, client: SimulatedClient) -> Any:
    assert broker.node.broker is not None
    (listener,) = broker.node.broker.listeners
    (found,) = (each for each in listener.connections if each.peer == client.channel.local)
    return found


def is_closed(broker: SimulatedBroker, client: SimulatedClient) -> bool:
    return broker.world.run_until(lambda: bool(client.closed))


def test_an_authenticated_client_has_its_principal_and_is_served(broker: SimulatedBroker) -> None:
    client = broker.client
    assert connection_of(broker, client).principal is None
    assert client.ask(ApiVersionsRequest(), 2).error_code == 0
    done = log_in(client)
    assert (done.error_code, done.error_message, done.session_lifetime_ms) == (0, "", 0)
    assert str(connection_of(broker, client).principal) == "User:alice"
    assert client.ask(METADATA, 1).brokers
    late = client.ask(HANDSHAKE, 1)
    assert late.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.ask(message(GOOD), 2).error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_a_wrong_password_is_answered_after_the_delay_and_logged_without_secrets(
    broker: SimulatedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    client = broker.client
    began_ms = broker.world.scheduler.now_ms
    done = log_in(client, WRONG)
    assert done.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert broker.world.scheduler.now_ms - began_ms >= 100
    assert is_closed(broker, client)
    (line,) = (each for each in caplog.messages if each.startswith("Authentication failed"))
    assert "user='alice'" in line
    assert "mechanism=PLAIN" in line
    assert "alice-" not in caplog.text


def test_an_unknown_mechanism_is_answered_with_those_that_are_enabled(
    broker: SimulatedBroker,
) -> None:
    response = broker.client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == ["PLAIN", "SCRAM-SHA-256"]
    assert is_closed(broker, broker.client)


@pytest.mark.parametrize(
    "requests",
    [
        [(METADATA, 1)],
        [(message(GOOD), 1)],
        [(ApiVersionsRequest(), 2), (METADATA, 1)],
        [(ApiVersionsRequest(), 2), (ApiVersionsRequest(), 2)],
        [(HANDSHAKE, 1), (METADATA, 1)],
    ],
)
def test_another_request_before_the_login_ends_the_connection_without_an_answer(
    broker: SimulatedBroker, requests: list[tuple[Message, int]]
) -> None:
    client = broker.client
    for request, version in requests[:-1]:
        client.ask(request, version)
    outcome = client.send(*requests[-1])
    assert is_closed(broker, client)
    ((response, error),) = outcome
    assert response is None
    assert error is not None
    assert error.kind is NetworkErrorKind.DISCONNECTED


@pytest.mark.parametrize("request_", [HANDSHAKE, ApiVersionsRequest()])
def test_a_request_of_an_earlier_step_is_an_illegal_state(
    broker: SimulatedBroker, request_: Message
) -> None:
    client = broker.client
    client.ask(HANDSHAKE, 1)
    assert client.ask(request_, 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert is_closed(broker, client)


def test_a_client_may_ask_for_versions_again_after_an_error(broker: SimulatedBroker) -> None:
    client = broker.client
    bad = ApiVersionsRequest(client_software_name="-", client_software_version="1")
    assert client.ask(bad, 3).error_code == ErrorCode.INVALID_REQUEST
    assert client.ask(ApiVersionsRequest(), 2).error_code == 0
    assert log_in(client).error_code == 0


def test_a_frame_above_the_limit_is_not_received_before_the_login(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = SimulatedBroker(**sasl_settings(sasl_server_max_receive_size="2000"))
    client = broker.client
    large = ApiVersionsRequest(client_software_name="x" * 3000, client_software_version="1")
    client.send(large, 3)
    assert is_closed(broker, client)
    assert "2000 are allowed" in caplog.text
    second = another(broker)
    log_in(second)
    many = MetadataRequest(topics=None)
    assert second.ask(many, 1).brokers
    assert second.ask(large, 3).error_code == 0, "larger frames are accepted after the login"


def test_a_client_has_to_authenticate_again_before_its_session_ends() -> None:
    broker = SimulatedBroker(**{**sasl_settings(), f"{PREFIX}.connections.max.reauth.ms": "5000"})
    client = broker.client
    assert log_in(client).session_lifetime_ms == 5000
    broker.world.run_for(3000)
    assert log_in(client).session_lifetime_ms == 5000
    broker.world.run_for(3000)
    assert client.ask(METADATA, 1).brokers
    broker.world.run_for(3000)
    client.send(METADATA, 1)
    assert is_closed(broker, client)


def test_the_limit_of_a_mechanism_counts_before_the_one_of_its_listener() -> None:
    keys = {
        "connections.max.reauth.ms": "1",
        f"{PREFIX}.connections.max.reauth.ms": "2",
        f"{PREFIX}.plain.connections.max.reauth.ms": "3000",
    }
    broker = SimulatedBroker(**{**sasl_settings(), **keys})
    assert log_in(broker.client).session_lifetime_ms == 3000


def test_many_failures_have_a_limited_number_of_lines(
    broker: SimulatedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    def lines() -> list[str]:
        return [each for each in caplog.messages if each.startswith("Authentication failed:")]

    for _ in range(LINES_MAX + 5):
        client = another(broker)
        client.send(METADATA, 1)
        assert is_closed(broker, client)
    assert len(lines()) == LINES_MAX
    assert broker.node.shared.failed_logins.failures == LINES_MAX + 5
    broker.world.run_for(PERIOD_MS)
    with caplog.at_level(logging.WARNING):
        another(broker).send(METADATA, 1)
        assert broker.world.run_until(lambda: len(lines()) == LINES_MAX + 1)
    assert "Authentication failures not logged: count=5" in caplog.messages


def test_the_registration_names_the_protocol_of_the_listener(broker: SimulatedBroker) -> None:
    image = broker.node.shared.cluster.image
    (endpoint,) = image.brokers[1].listeners.values()
    assert endpoint.security_protocol == 2


@pytest.mark.parametrize("idle_ms", ["600000", "-1"])
def test_a_login_has_to_end_in_time_whatever_the_client_sends(idle_ms: str) -> None:
    broker = SimulatedBroker(**sasl_settings(), connections_max_idle_ms=idle_ms)
    silent, half_done = another(broker, "silent"), another(broker, "half-done")
    half_done.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
    log_in(broker.client)
    broker.world.run_for(LOGIN_MS_MAX / 2)
    # A byte of a frame is activity, but no login.
    stream = half_done.channel._stream
    assert stream is not None
    stream.write([b"\0"])
    assert not silent.closed
    broker.world.run_for(LOGIN_MS_MAX)
    assert silent.closed
    assert half_done.closed
    assert broker.client.ask(METADATA, 1).brokers, "a client with a login stays"


def test_delayed_failures_hold_neither_later_logins_nor_memory(broker: SimulatedBroker) -> None:
    failing = [another(broker, f"failing-{number}") for number in range(50)]
    peers = {connection_of(broker, client).peer for client in failing}
    assert len(peers) == len(failing)
    for client in failing:
        client.send(HANDSHAKE, 1)
        client.send(message(WRONG), 2)
    began_ms = broker.world.scheduler.now_ms
    assert log_in(broker.client).error_code == 0
    assert broker.world.scheduler.now_ms - began_ms < 100, "a right login does not wait for them"
    assert broker.world.run_until(lambda: all(client.closed for client in failing))
    broker.world.run_for(1_000)
    assert broker.node.broker is not None
    (listener,) = broker.node.broker.listeners
    assert len(listener) == 1
    gc.collect()
    connections = [each for each in gc.get_objects() if isinstance(each, Connection)]
    assert [each.peer for each in connections if each.peer in peers] == []
