"""PLAIN: the rules of Kafka's server for the three parts of the message."""

from __future__ import annotations

import pytest

from barnabas.sasl.mechanism import Identity, SaslError
from barnabas.sasl.plain import PlainClient, PlainServer

OTHER_ID = (
    "Authentication failed: Client requested an authorization id that is different from username"
)
USERS = {"alice": "secret", "bob": "päss word", "empty": ""}


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (b"\0alice\0secret", "alice"),
        (b"alice\0alice\0secret", "alice"),
        (PlainClient("bob", "päss word").first(), "bob"),
    ],
)
def test_a_right_password_is_accepted(message: bytes, name: str) -> None:
    server = PlainServer(USERS)
    assert server.respond(message) == b""
    assert server.identity == Identity(name)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0secret", "Authentication failed: Invalid username or password"),
        (b"\0empty\0x", "Authentication failed: Invalid username or password"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0empty\0", "Authentication failed: password not specified"),
        (
            b"bob\0alice\0secret",
            OTHER_ID,
        ),
        (b"alice\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0" * 100, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0al\xffice\0secret", "Authentication failed: Invalid username or password"),
    ],
)
def test_other_messages_are_rejected(message: bytes, shown: str | None) -> None:
    server = PlainServer(USERS)
    with pytest.raises(SaslError) as caught:
        server.respond(message)
    assert caught.value.shown == shown
    assert server.identity is None
    assert "secret" not in caught.value.reason


@pytest.mark.parametrize("name", ["alice", "nobody"])
@pytest.mark.parametrize("password", ["x", "a much longer password than the right one"])
def test_the_comparison_has_the_same_length_for_all_users_and_passwords(
    name: str, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return one == other

    monkeypatch.setattr("barnabas.sasl.plain.hmac.compare_digest", compare)
    with pytest.raises(SaslError, match="Invalid username or password"):
        PlainServer({"alice": "secret"}).respond(f"\0{name}\0{password}".encode())
    assert compared == [(32, 32)]
