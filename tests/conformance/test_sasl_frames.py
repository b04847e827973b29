"""SASL frames get the same responses from Barnabas and from Apache Kafka."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.connection import (
    ApiVersionsRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from barnabas.protocol.messages.metadata import MetadataRequest
from conformance.raw_client import RawClient
from conformance.sasl_brokers import MECHANISMS, SESSION_MS, SaslBarnabas, SaslKafka

GOOD = b"\0alice\0alice-secret"
METADATA = MetadataRequest(topics=[])


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SaslBarnabas | SaslKafka]:
    directory = tmp_path_factory.mktemp(request.param)
    made = SaslKafka(directory) if request.param == "kafka" else SaslBarnabas(directory)
    made.start()
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture
def client(broker: SaslBarnabas | SaslKafka) -> Iterator[RawClient]:
    made = RawClient(broker.sasl_bootstrap)
    yield made
    made.close()


@pytest.fixture
def short(broker: SaslBarnabas | SaslKafka) -> Iterator[RawClient]:
    """A connection whose session ends."""
    made = RawClient(broker.short_bootstrap)
    yield made
    made.close()


def handshake(client: RawClient, mechanism: str = "PLAIN", version: int = 1) -> Any:
    return client.ask(SaslHandshakeRequest(mechanism=mechanism), version)


def authenticate(client: RawClient, message: bytes, version: int = 2) -> Any:
    return client.ask(SaslAuthenticateRequest(auth_bytes=message), version)


def log_in(client: RawClient, message: bytes = GOOD) -> Any:
    assert handshake(client).error_code == 0
    return authenticate(client, message)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_right_password_is_accepted_in_every_version(client: RawClient, version: int) -> None:
    offered = handshake(client)
    assert set(offered.mechanisms) == set(MECHANISMS)
    done = authenticate(client, GOOD, version)
    assert (done.error_code, done.error_message, done.auth_bytes) == (0, "", b"")
    assert done.session_lifetime_ms == 0
    response: Any = client.ask(METADATA, 1)
    assert len(response.brokers) == 1


def test_a_password_in_a_bare_frame_is_accepted_after_a_handshake_v0(client: RawClient) -> None:
    assert handshake(client, version=0).error_code == 0
    client.send_frame(GOOD)
    assert client.receive_frame() == b""
    response: Any = client.ask(METADATA, 1)
    assert len(response.brokers) == 1


def test_a_wrong_password_in_a_bare_frame_ends_the_connection(client: RawClient) -> None:
    handshake(client, version=0)
    client.send_frame(b"\0alice\0wrong")
    assert client.is_closed_by_broker()


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0\0alice-secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"alice-secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0\0\0\0\0\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    ],
)
def test_a_wrong_message_gets_an_error_and_the_connection_ends(
    client: RawClient, message: bytes, text: str
) -> None:
    began = time.monotonic()
    done = log_in(client, message)
    assert done.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert done.error_message == text
    assert time.monotonic() - began >= 0.09, "connection.failed.authentication.delay.ms"
    assert client.is_closed_by_broker()


def test_the_id_of_another_user_is_refused(client: RawClient) -> None:
    done = log_in(client, b"bob\0alice\0alice-secret")
    assert "authorization id that is different from username" in done.error_message
    assert client.is_closed_by_broker()


def test_the_id_of_the_user_is_accepted(client: RawClient) -> None:
    assert log_in(client, b"alice\0alice\0alice-secret").error_code == 0


@pytest.mark.parametrize("version", [0, 1])
def test_a_mechanism_that_is_not_enabled_is_refused(client: RawClient, version: int) -> None:
    offered = handshake(client, "GSSAPI", version)
    assert offered.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert set(offered.mechanisms) == set(MECHANISMS)
    assert client.is_closed_by_broker()


@pytest.mark.parametrize(
    "requests",
    [
        [(METADATA, 1)],
        [(SaslAuthenticateRequest(auth_bytes=GOOD), 1)],
        [(ApiVersionsRequest(), 2), (METADATA, 1)],
        [(ApiVersionsRequest(), 2), (ApiVersionsRequest(), 2)],
    ],
)
def test_a_request_before_the_login_ends_the_connection(
    client: RawClient, requests: list[tuple[Any, int]]
) -> None:
    for request, version in requests[:-1]:
        client.ask(request, version)
    client.send(*requests[-1])
    assert client.is_closed_by_broker()


@pytest.mark.parametrize(
    "frame", [b"", b"\0", b"hello, this is no request", b"\0\x11\0\x07\0\0\0\0\0\0", b"\xff" * 40]
)
def test_a_frame_that_is_no_request_ends_the_connection(client: RawClient, frame: bytes) -> None:
    client.send_frame(frame)
    assert client.is_closed_by_broker()


@pytest.mark.parametrize("length", [524_289, 0x7FFFFFFF, -5])
def test_a_length_above_the_limit_ends_the_connection(client: RawClient, length: int) -> None:
    client.send_bytes(struct.pack(">i", length))
    assert client.is_closed_by_broker()


def test_api_versions_may_be_requested_again_after_an_error(client: RawClient) -> None:
    bad = ApiVersionsRequest(client_software_name="-a", client_software_version="b")
    first: Any = client.ask(bad, 3)
    assert first.error_code == ErrorCode.INVALID_REQUEST
    second: Any = client.ask(ApiVersionsRequest(), 0)
    assert second.error_code == 0
    assert {17, 36} <= {each.api_key for each in second.api_keys}
    assert log_in(client).error_code == 0


@pytest.mark.parametrize(
    "request_", [SaslHandshakeRequest(mechanism="PLAIN"), ApiVersionsRequest()]
)
def test_a_step_back_during_the_login_is_an_illegal_state(client: RawClient, request_: Any) -> None:
    handshake(client)
    response: Any = client.ask(request_, 1)
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.is_closed_by_broker()


def test_sasl_after_the_login_is_an_illegal_state_and_harmless(client: RawClient) -> None:
    log_in(client)
    late = handshake(client)
    assert (late.error_code, late.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    refused = authenticate(client, GOOD)
    assert refused.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert refused.error_message == (
        "SaslAuthenticate request received after successful authentication"
    )
    response: Any = client.ask(METADATA, 1)
    assert len(response.brokers) == 1


def test_sasl_on_an_open_listener_is_an_illegal_state(broker: SaslBarnabas | SaslKafka) -> None:
    client = RawClient(broker.bootstrap)
    assert handshake(client).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert authenticate(client, GOOD).error_code == ErrorCode.ILLEGAL_SASL_STATE
    client.close()


def test_frames_may_arrive_together(client: RawClient) -> None:
    client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    client.send(SaslAuthenticateRequest(auth_bytes=GOOD), 2)
    client.send(METADATA, 1)
    assert client.receive(SaslHandshakeRequest, 1).error_code == 0  # type: ignore[attr-defined]
    assert client.receive(SaslAuthenticateRequest, 2).error_code == 0  # type: ignore[attr-defined]
    assert len(client.receive(MetadataRequest, 1).brokers) == 1  # type: ignore[attr-defined]


# -- KIP-368 --------------------------------------------------------------------------------------


def test_a_session_ends_unless_the_client_authenticates_again(short: RawClient) -> None:
    assert log_in(short).session_lifetime_ms == SESSION_MS
    time.sleep((SESSION_MS - 100) / 1000)
    assert log_in(short).session_lifetime_ms == SESSION_MS
    time.sleep(0.5)
    response: Any = short.ask(METADATA, 1)
    assert len(response.brokers) == 1
    time.sleep(SESSION_MS / 1000)
    short.send(METADATA, 1)
    assert short.is_closed_by_broker()


def test_an_expired_session_can_still_be_extended(short: RawClient) -> None:
    log_in(short)
    time.sleep(SESSION_MS / 1000 + 0.2)
    assert log_in(short).session_lifetime_ms == SESSION_MS
    response: Any = short.ask(METADATA, 1)
    assert len(response.brokers) == 1


def test_a_second_login_within_a_second_is_an_illegal_state(
    broker: SaslBarnabas | SaslKafka,
) -> None:
    def error_within_a_second() -> int | None:
        """Return the error of the second login; None if the machine paused for too long."""
        client = RawClient(broker.short_bootstrap)
        log_in(client)
        began = time.monotonic()
        log_in(client)
        error: int = handshake(client).error_code
        is_in_time = time.monotonic() - began < 1.0
        if is_in_time:
            response: Any = client.ask(METADATA, 1)
            assert len(response.brokers) == 1
        client.close()
        return error if is_in_time else None

    attempts = (error_within_a_second() for _ in range(50))
    error = next(each for each in attempts if each is not None)
    assert error == ErrorCode.ILLEGAL_SASL_STATE


def test_another_user_cannot_take_over_a_connection(short: RawClient) -> None:
    log_in(short)
    done = log_in(short, b"\0bob\0bob-secret")
    assert done.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert done.error_message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    assert short.is_closed_by_broker()


def test_another_mechanism_cannot_take_over_a_connection(short: RawClient) -> None:
    log_in(short)
    assert handshake(short, "SCRAM-SHA-256").error_code == 0
    short.send(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=x"), 2)
    assert short.is_closed_by_broker()


def test_bare_frames_authenticate_again_too(short: RawClient) -> None:
    for _ in range(2):
        assert handshake(short, version=0).error_code == 0
        short.send_frame(GOOD)
        assert short.receive_frame() == b""
    response: Any = short.ask(METADATA, 1)
    assert len(response.brokers) == 1
