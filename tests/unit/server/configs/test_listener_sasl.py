"""The SASL keys of a server.properties, as Kafka reads them."""

from __future__ import annotations

import logging

import pytest

from barnabas.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE
from barnabas.server.configs.configuration import Configuration, read_configuration
from barnabas.settings.key import ConfigError

PREFIX = "listener.name.sasl_plaintext"
PLAIN_KEY = f"{PREFIX}.plain.sasl.jaas.config"
HANDLER_KEY = f"{PREFIX}.plain.sasl.server.callback.handler.class"
JAAS = f'{PLAIN_MODULE} required username="admin" password="secret" user_admin="secret";'
BASE = {"listeners": "SASL_PLAINTEXT://h:9092", "sasl.enabled.mechanisms": "PLAIN"}


def read(**more: str) -> Configuration:
    given = {**BASE, PLAIN_KEY: JAAS, **more}
    return read_configuration({key: value for key, value in given.items() if value})


def test_users_and_limits_of_a_listener_are_read() -> None:
    found = read(
        **{
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
            "connections.max.reauth.ms": "1",
            f"{PREFIX}.connections.max.reauth.ms": "2",
            f"{PREFIX}.plain.connections.max.reauth.ms": "3",
            f"{PREFIX}.sasl.server.max.receive.size": "4",
            "connection.failed.authentication.delay.ms": "5",
        }
    ).sasl["SASL_PLAINTEXT"]
    assert list(found.mechanisms) == ["SCRAM-SHA-512", "PLAIN"]
    plain, scram = found.mechanisms["PLAIN"], found.mechanisms["SCRAM-SHA-512"]
    assert plain.module is not None
    assert plain.module.users() == {"admin": "secret"}
    assert scram.module is None, "SCRAM needs no login module"
    assert (plain.session_ms_max, scram.session_ms_max) == (3, 2)
    assert (found.frame_bytes_max, found.failure_delay_ms) == (4, 5)


def test_a_listener_may_enable_other_mechanisms() -> None:
    found = read(**{f"{PREFIX}.sasl.enabled.mechanisms": "SCRAM-SHA-256"})
    assert list(found.sasl["SASL_PLAINTEXT"].mechanisms) == ["SCRAM-SHA-256"]


def test_a_listener_of_another_name_has_its_own_keys() -> None:
    given = {
        "listeners": "PLAINTEXT://h:9092,CLIENTS://h:9094",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:sasl_plaintext",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": JAAS,
    }
    configuration = read_configuration(given)
    assert list(configuration.sasl) == ["CLIENTS"]
    assert configuration.inter_broker_listener == "PLAINTEXT"


def test_the_protocol_between_brokers_names_their_listener() -> None:
    given = {"listeners": "PLAINTEXT://h:9091,SASL_PLAINTEXT://h:9092"}
    found = read(**given, **{"security.inter.broker.protocol": "SASL_PLAINTEXT"})
    assert found.inter_broker_listener == "SASL_PLAINTEXT"
    assert read(**given).inter_broker_listener == "PLAINTEXT"


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms"),
        ({"sasl.enabled.mechanisms": "PLAIN,GSSAPI"}, "sasl.enabled.mechanisms"),
        ({f"{PREFIX}.sasl.enabled.mechanisms": "X"}, f"{PREFIX}.sasl.enabled.mechanisms"),
        ({PLAIN_KEY: ""}, PLAIN_KEY),
        ({HANDLER_KEY: "com.example.LdapHandler"}, HANDLER_KEY),
        ({PLAIN_KEY: "secret"}, PLAIN_KEY),
        ({PLAIN_KEY: f"{SCRAM_MODULE} required;"}, PLAIN_KEY),
        ({"connection.failed.authentication.delay.ms": "-1"},
         "connection.failed.authentication.delay.ms"),
        ({f"{PREFIX}.plain.connections.max.reauth.ms": "x"}, "connections.max.reauth.ms"),
        ({"security.inter.broker.protocol": "SSL"}, "security.inter.broker.protocol"),
        (
            {
                "security.inter.broker.protocol": "SASL_PLAINTEXT",
                "inter.broker.listener.name": "SASL_PLAINTEXT",
            },
            "security.inter.broker.protocol",
        ),
        (
            {"listener.security.protocol.map": "SASL_PLAINTEXT:SASL"},
            "listener.security.protocol.map",
        ),
    ],
)  # fmt: skip
def test_contradictory_keys_are_refused(more: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(**more)
    assert caught.value.key == key
    assert "secret" not in str(caught.value)


def test_secrets_are_neither_logged_nor_shown(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        found = read(
            **{
                "sasl.jaas.config": JAAS,
                "listener.name.other.plain.sasl.jaas.config": JAAS,
                "ssl.key.password": "secret",
            }
        )
    assert "secret" not in caplog.text
    assert "listener.name.other.plain.sasl.jaas.config has no effect" in caplog.text
    assert PLAIN_KEY not in caplog.text, "the key is known"
    assert found.parsed.text("sasl.jaas.config") is None
