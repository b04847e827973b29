"""SASL keys of the client, in the names of Java, librdkafka and kafka-python."""

from __future__ import annotations

import pytest

from barnabas.client.config import ClientConfig
from barnabas.client.errors import ClientConfigError
from barnabas.client.sasl import client_login
from barnabas.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE
from barnabas.sasl.oauthbearer import parse_bearer
from barnabas.sasl.token_claims import read_unsecured
from barnabas.sim.world import sim_runtime

BASE = {"bootstrap.servers": "h:1", "security.protocol": "sasl_plaintext"}
JAAS = f'{PLAIN_MODULE} required username="alice" password="secret";'


def first_message(**keys: str) -> bytes:
    """Return the first message of a login with these keys."""
    config = ClientConfig.parse({**BASE, **keys})
    world, runtime = sim_runtime(1)
    login = client_login(config, runtime)
    assert login is not None
    found: list[bytes] = []
    login.begin(lambda exchange, _: found.append(exchange.first() if exchange else b""))
    assert world.run_until(lambda: bool(found))
    return found[0]


@pytest.mark.parametrize(
    "keys",
    [
        {"sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS},
        {"sasl.mechanisms": "PLAIN", "sasl.username": "alice", "sasl.password": "secret"},
        {
            "sasl_mechanism": "plain",
            "sasl_plain_username": "alice",
            "sasl_plain_password": "secret",
        },
    ],
)
def test_the_keys_of_every_client_are_accepted(keys: dict[str, str]) -> None:
    assert first_message(**keys) == b"\0alice\0secret"


def test_a_delegation_token_is_marked_in_the_first_message() -> None:
    jaas = f'{SCRAM_MODULE} required username="id" password="hmac" tokenauth="true";'
    keys = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas}
    assert first_message(**keys).endswith(b",tokenauth=true")
    plain = jaas.replace(' tokenauth="true"', "")
    assert b"tokenauth" not in first_message(**{**keys, "sasl.jaas.config": plain})


def test_the_unsecured_tokens_of_librdkafka_are_made() -> None:
    text = "principalClaimName=azp principal=admin scopeClaimName=roles scope=a,b extension_id=7"
    message = first_message(
        **{
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": text,
        }
    )
    found = parse_bearer(message)
    claims = read_unsecured(found.token)
    assert (claims["azp"], claims["roles"]) == ("admin", ["a", "b"])
    assert found.extensions == {"id": "7"}
    with pytest.raises(ClientConfigError, match=r"needs .*config=principal=NAME"):
        first_message(
            **{"sasl.mechanism": "OAUTHBEARER", "enable.sasl.oauthbearer.unsecure.jwt": "true"}
        )


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({}, "sasl.mechanism is missing"),
        ({"sasl.mechanism": "GSSAPI"}, "is not one of: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"sasl.mechanism": "PLAIN"}, "needs a user name"),
        ({"sasl.mechanism": "PLAIN", "sasl.username": "alice"}, "needs a password"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS, "sasl.username": "alice"},
            "contradict it",
        ),
        ({"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": JAAS}, f"use {SCRAM_MODULE}"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": "secret"}, "sasl.jaas.config"),
        (
            {"security.protocol": "PLAINTEXT", "sasl.username": "alice"},
            "have no effect with security.protocol=PLAINTEXT",
        ),
    ],
)
def test_contradictory_keys_are_refused(keys: dict[str, str], text: str) -> None:
    with pytest.raises(ClientConfigError, match=text) as caught:
        ClientConfig.parse({**BASE, **keys})
    assert "secret" not in str(caught.value)


def test_a_mechanism_without_sasl_has_no_effect() -> None:
    config = ClientConfig.parse({"bootstrap.servers": "h:1", "sasl.mechanism": "PLAIN"})
    assert client_login(config, sim_runtime(1)[1]) is None


def test_passwords_are_not_shown() -> None:
    for keys in (
        {"sasl.username": "alice", "sasl.password": "secret"},
        {"sasl.jaas.config": JAAS},
    ):
        config = ClientConfig.parse({**BASE, "sasl.mechanism": "PLAIN", **keys})
        assert "secret" not in repr(config)
