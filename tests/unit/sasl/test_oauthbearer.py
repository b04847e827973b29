"""OAUTHBEARER: messages, claims and tokens without a signature."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from barnabas.sasl.mechanism import Identity, SaslError
from barnabas.sasl.oauthbearer import (
    INVALID_TOKEN,
    OAuthBearerClient,
    OAuthBearerServer,
    bearer_message,
    check_extensions,
    parse_bearer,
)
from barnabas.sasl.token_claims import (
    ClaimRules,
    claims_of,
    identity_of,
    make_unsecured,
    read_unsecured,
)

NOW_MS = 1_000_000_000
NOW_S = NOW_MS // 1000


def claims(**changes: Any) -> dict[str, Any]:
    """Claims that the rules of `rules` accept, with changes; None removes a claim."""
    made = {
        "sub": "alice",
        "iss": "https://issuer",
        "aud": "kafka",
        "iat": NOW_S - 10,
        "exp": NOW_S + 100,
        **changes,
    }
    return {name: value for name, value in made.items() if value is not None}


def rules(**changes: Any) -> ClaimRules:
    return ClaimRules(**{"audiences": ("kafka",), "issuer": "https://issuer", **changes})


# -- messages -------------------------------------------------------------------------------------


def test_the_message_of_rfc_7628_is_read() -> None:
    token = "vF9dft4qmTc2Nvb3RlckBhbHRhdmlzdGEuY29tCg=="
    message = f"n,a=user@example.com,\x01auth=Bearer {token}\x01host=h\x01\x01".encode()
    found = parse_bearer(message)
    assert (found.token, found.authorization_id) == (token, "user@example.com")
    assert found.extensions == {"host": "h"}


def test_what_a_client_writes_is_read() -> None:
    found = parse_bearer(bearer_message("a.b.c", {"traceId": "x=1,y"}))
    assert (found.token, found.extensions) == ("a.b.c", {"traceId": "x=1,y"})


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,\x01auth=Bearer t\x01",
        b"n,\x01auth=Bearer t\x01\x01",
        b"p=x,,\x01auth=Bearer t\x01\x01",
        b"n,b=x,\x01auth=Bearer t\x01\x01",
        b"n,,\x01auth=Basic t\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer t t\x01\x01",
        b"n,,\x01key=value\x01\x01",
        b"n,,\x01auth=Bearer t\x01auth=Bearer t\x01\x01",
        b"n,,\x01auth=Bearer t\x01k1=v\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
    ],
)
def test_a_malformed_message_is_rejected(message: bytes) -> None:
    with pytest.raises(SaslError) as caught:
        parse_bearer(message)
    assert caught.value.shown is not None


@given(st.binary(max_size=200) | st.text("n,\x01auth=Bearer k", max_size=60).map(str.encode))
def test_any_bytes_are_a_message_or_an_error(message: bytes) -> None:
    try:
        parse_bearer(message)
    except SaslError:
        return


@pytest.mark.parametrize("extensions", [{"auth": "x"}, {"a1": "x"}, {"": "x"}, {"a": "\x01"}])
def test_an_extension_that_cannot_be_sent_is_refused(extensions: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="extension"):
        check_extensions(extensions)


# -- the exchange ---------------------------------------------------------------------------------


def accept(token: str) -> Identity:
    if token != "good":
        raise SaslError("not good")
    return Identity("alice", expiry_ms=5)


def test_a_good_token_is_accepted_with_one_message() -> None:
    server, client = OAuthBearerServer(accept), OAuthBearerClient("good", {"a": "b"})
    assert client.respond(server.respond(client.first())) is None
    assert client.is_complete
    assert server.identity == Identity("alice", expiry_ms=5)


def test_a_bad_token_is_answered_with_an_error_that_the_client_confirms() -> None:
    server, client = OAuthBearerServer(accept), OAuthBearerClient("bad")
    error = server.respond(client.first())
    assert error == INVALID_TOKEN.encode()
    confirmation = client.respond(error)
    assert confirmation == b"\x01"
    with pytest.raises(SaslError, match="not good") as caught:
        server.respond(confirmation)
    assert caught.value.shown == INVALID_TOKEN
    assert server.identity is None
    assert not client.is_complete
    with pytest.raises(SaslError, match="has rejected the token"):
        client.respond(b"")


def test_another_authorization_id_is_rejected() -> None:
    with pytest.raises(SaslError, match="different from the token's principal"):
        OAuthBearerServer(accept).respond(b"n,a=bob,\x01auth=Bearer good\x01\x01")
    server = OAuthBearerServer(accept)
    assert server.respond(b"n,a=alice,\x01auth=Bearer good\x01\x01") == b""


# -- claims ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"aud": ["other", "kafka"]},
        {"exp": NOW_S - 29},
        {"nbf": NOW_S + 29},
        {"scope": "a b"},
        {"scope": ["a", "b"]},
        {"scope": 5},
        {"exp": NOW_S + 0.5},
    ],
)
def test_claims_that_fit_are_accepted(changes: dict[str, Any]) -> None:
    found = identity_of(claims(**changes), rules(), NOW_MS)
    assert found.name == "alice"
    assert found.expiry_ms == int(1000 * claims(**changes)["exp"])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exp": NOW_S - 31}, "has expired"),
        ({"exp": None}, "no claim exp"),
        ({"exp": "soon"}, "no claim exp"),
        ({"exp": True}, "no claim exp"),
        ({"exp": 1e300}, "no claim exp"),
        ({"exp": -1}, "no claim exp"),
        ({"iat": None}, "no claim iat"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"nbf": "x"}, "no claim nbf"),
        ({"aud": None}, "audience"),
        ({"aud": "other"}, "audience"),
        ({"aud": [["kafka"]]}, "audience"),
        ({"aud": {"kafka": 1}}, "audience"),
        ({"iss": None}, "issuer"),
        ({"iss": "https://issuer/"}, "issuer"),
        ({"sub": None}, "claim sub"),
        ({"sub": " "}, "claim sub"),
        ({"sub": 5}, "claim sub"),
        ({"scope": [5]}, "claim scope"),
    ],
)
def test_claims_that_do_not_fit_are_rejected(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(SaslError, match=reason):
        identity_of(claims(**changes), rules(), NOW_MS)


def test_rules_may_name_other_claims_and_scopes() -> None:
    other = rules(subject_claim="name", scope_claim="scp", scopes=("a", "b"))
    given_claims = claims(name="bob", scp=["a", "b", "c"])
    assert identity_of(given_claims, other, NOW_MS).name == "bob"
    with pytest.raises(SaslError, match="does not have the scope b"):
        identity_of({**given_claims, "scp": "a"}, other, NOW_MS)


def test_audience_and_issuer_are_optional() -> None:
    free = ClaimRules(needs_issue_time=False)
    assert identity_of({"sub": "alice", "exp": NOW_S + 1}, free, NOW_MS).name == "alice"


# -- tokens without a signature -------------------------------------------------------------------


def test_an_unsecured_token_is_read() -> None:
    token = make_unsecured({"sub": "älice"})
    assert read_unsecured(token) == {"sub": "älice"}
    assert claims_of(token) == {"sub": "älice"}


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        make_unsecured({"sub": "a"}) + "signature",
        make_unsecured({"sub": "a"}).replace("eyJhbGciOiJub25lIn0", "eyJhbGciOiJIUzI1NiJ9"),
        "!.!.",
        "W10.W10.",
        "e30.e30.",
    ],
)
def test_other_tokens_are_refused_as_unsecured_tokens(token: str) -> None:
    with pytest.raises(SaslError):
        read_unsecured(token)


def test_the_claims_of_a_malformed_token_are_empty() -> None:
    for text in ("", "opaque", "a.!.c", "a.W10.c"):
        assert claims_of(text) == {}


def test_a_message_with_too_many_keys_is_refused() -> None:
    keys = "".join(f"k{'x' * number}=v\x01" for number in range(200))
    with pytest.raises(SaslError, match="more than 100 keys"):
        parse_bearer(f"n,,\x01auth=Bearer x\x01{keys}\x01".encode())
