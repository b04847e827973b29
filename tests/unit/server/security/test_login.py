"""States of a login: what each of them allows, and where it leads."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.sasl.mechanism import Identity, SaslError
from barnabas.sasl.plain import PlainServer
from barnabas.server.security.sasl.login import (
    LOGIN_TABLE,
    Login,
    LoginEvent,
    LoginState,
    OfferedMechanism,
)
from barnabas.sim.world import SimWorld

GENERIC = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism "
    "STEPS"
)
GOOD = b"\0alice\0secret"


class Steps:
    """A mechanism of two messages, whose credential expires."""

    def __init__(self, identity: Identity) -> None:
        self._result = identity
        self._messages = 0
        self.identity: Identity | None = None
        self.claimed_name: str | None = None

    def respond(self, message: bytes) -> bytes:
        self.claimed_name = message.decode()
        if message == b"bad":
            raise SaslError("bad")
        self._messages += 1
        if self._messages == 2:
            self.identity = self._result
        return b"answer"


class Made:
    """A login, and the world whose time passes."""

    def __init__(self, session_ms: int = 0, expiry_in_ms: int | None = None) -> None:
        self.world = SimWorld(1)
        self.clock = self.world.host("broker").runtime.clock
        self.expiry_in_ms = expiry_in_ms
        self.login = Login(
            {
                "PLAIN": OfferedMechanism(
                    lambda: PlainServer({"alice": "secret", "bob": "b"}), session_ms
                ),
                "STEPS": OfferedMechanism(self._steps, session_ms),
            },
            self.clock,
        )

    def _steps(self) -> Steps:
        expiry = None if self.expiry_in_ms is None else self.clock.wall_ms() + self.expiry_in_ms
        return Steps(Identity("carol", expiry_ms=expiry))

    def log_in(self) -> None:
        assert self.login.on_handshake("PLAIN", 1) is ErrorCode.NONE
        assert self.login.on_message(GOOD).error is ErrorCode.NONE

    def pass_time(self, duration_ms: float) -> None:
        self.world.run_for(duration_ms)


def test_every_state_is_reached_and_only_the_failed_one_has_no_way_out() -> None:
    reached = {LoginState.INITIAL}
    for events in LOGIN_TABLE.values():
        reached |= set(events.values())
    assert reached == set(LoginState) == set(LOGIN_TABLE)
    for state, events in LOGIN_TABLE.items():
        assert (state is LoginState.FAILED) == (not events)
        assert state is LoginState.FAILED or events[LoginEvent.FAILURE] is LoginState.FAILED


def test_a_login_goes_from_the_handshake_to_the_last_message() -> None:
    login = Made().login
    login.note_versions_sent()
    assert login.state is LoginState.VERSIONS_KNOWN
    assert login.on_handshake("STEPS", 1) is ErrorCode.NONE
    assert login.on_message(b"x").message == b"answer"
    assert login.state is LoginState.AUTHENTICATING
    assert login.identity is None
    assert login.on_message(b"y").session_ms == 0
    assert login.state is LoginState.AUTHENTICATED
    assert login.identity == Identity("carol")
    assert login.session_end_ms is None
    assert not login.maybe_begin_again()


def test_a_mechanism_that_is_not_enabled_ends_the_login() -> None:
    login = Made().login
    assert login.on_handshake("GSSAPI", 1) is ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert login.state is LoginState.FAILED
    assert login.offered == ["PLAIN", "STEPS"]


@pytest.mark.parametrize(
    ("mechanism", "message", "shown"),
    [
        ("PLAIN", b"\0alice\0x", "Authentication failed: Invalid username or password"),
        (
            "STEPS",
            b"bad",
            GENERIC,
        ),
    ],
)
def test_a_rejected_message_ends_the_login(mechanism: str, message: bytes, shown: str) -> None:
    login = Made().login
    login.on_handshake(mechanism, 1)
    reply = login.on_message(message)
    assert reply.error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert reply.error_message == shown
    assert login.state is LoginState.FAILED
    assert login.claimed_name in ("alice", "bad")


def test_a_session_is_as_long_as_the_shorter_of_both_limits() -> None:
    for session_ms, expiry_in_ms, expected in (
        (1000, None, 1000),
        (0, 700, 700),
        (1000, 700, 700),
        (1000, 5000, 1000),
    ):
        made = Made(session_ms, expiry_in_ms)
        made.login.on_handshake("STEPS", 1)
        made.login.on_message(b"x")
        assert made.login.on_message(b"y").session_ms == expected
        made.pass_time(expected - 1)
        assert not made.login.is_session_over
        made.pass_time(2)
        assert made.login.is_session_over


def test_another_login_of_the_same_user_makes_the_session_longer() -> None:
    made = Made(session_ms=2000)
    made.log_in()
    made.pass_time(1500)
    assert made.login.maybe_begin_again()
    assert made.login.state is LoginState.REAUTHENTICATING
    made.log_in()
    made.pass_time(1500)
    assert not made.login.is_session_over
    made.pass_time(600)
    assert made.login.is_session_over


def test_a_login_may_begin_again_once_in_a_second() -> None:
    made = Made(session_ms=5000)
    made.log_in()
    assert made.login.maybe_begin_again()
    made.log_in()
    made.pass_time(900)
    assert not made.login.maybe_begin_again()
    assert made.login.state is LoginState.AUTHENTICATED
    made.pass_time(200)
    assert made.login.maybe_begin_again()


def test_another_user_cannot_take_over_the_connection() -> None:
    made = Made(session_ms=5000)
    made.log_in()
    assert made.login.maybe_begin_again()
    made.login.on_handshake("PLAIN", 1)
    reply = made.login.on_message(b"\0bob\0b")
    assert reply.error is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "Cannot change principals" in reply.error_message
    assert made.login.identity == Identity("alice")
    assert made.login.state is LoginState.FAILED


def test_another_mechanism_cannot_continue_the_session() -> None:
    made = Made(session_ms=5000)
    made.log_in()
    assert made.login.maybe_begin_again()
    assert made.login.on_handshake("STEPS", 1) is ErrorCode.NONE
    assert made.login.state is LoginState.MECHANISM_CHANGED
    assert made.login.mechanism == "PLAIN"


def test_an_event_that_the_state_does_not_allow_fails() -> None:
    login = Made().login
    with pytest.raises(AssertionError, match="a message in state INITIAL"):
        login.on_message(GOOD)
    login.on_handshake("PLAIN", 1)
    with pytest.raises(AssertionError, match="MECHANISM_CHOSEN is not allowed"):
        login.on_handshake("PLAIN", 1)
