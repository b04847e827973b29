"""Keys of TLS for all listeners and for single ones."""

from __future__ import annotations

import logging

import pytest

from barnabas.runtime.tls.tls_options import ClientAuth
from barnabas.server.configs.configuration import read_configuration
from barnabas.server.configs.endpoints import SecurityProtocol
from barnabas.server.configs.tls_config import tls_options
from barnabas.settings.definition import ConfigError

BASE = {"listeners": "SSL://h:1,EXTRA://h:2", "listener.security.protocol.map": "SSL:SSL,EXTRA:SSL"}


def options_of(
    given: dict[str, str], listener: str, protocol: SecurityProtocol = SecurityProtocol.SSL
) -> object:
    configuration = read_configuration({**BASE, **given})
    return tls_options(configuration.parsed, configuration.given, listener, protocol)


def test_a_listener_key_overrides_the_general_key() -> None:
    given = {
        "ssl.keystore.location": "/all.p12",
        "ssl.keystore.password": "p",
        "listener.name.extra.ssl.keystore.location": "/extra.pem",
        "listener.name.extra.ssl.keystore.type": "PEM",
    }
    assert options_of(given, "SSL").keys.location == "/all.p12"  # type: ignore[attr-defined]
    extra = options_of(given, "EXTRA")
    assert extra.keys.location == "/extra.pem"  # type: ignore[attr-defined]
    assert extra.keys.type == "PEM"  # type: ignore[attr-defined]
    assert extra.keys.password == "p"  # type: ignore[attr-defined]


def test_defaults_are_those_of_kafka() -> None:
    options = options_of({}, "SSL")
    assert options.enabled_protocols == ("TLSv1.2", "TLSv1.3")  # type: ignore[attr-defined]
    assert options.check_host_name  # type: ignore[attr-defined]
    assert options.client_auth is ClientAuth.NONE  # type: ignore[attr-defined]


def test_an_empty_algorithm_switches_the_check_of_host_names_off() -> None:
    options = options_of({"ssl.endpoint.identification.algorithm": ""}, "SSL")
    assert not options.check_host_name  # type: ignore[attr-defined]


def test_with_sasl_only_the_listener_key_enables_client_certificates() -> None:
    given = {"ssl.client.auth": "required"}
    assert options_of(given, "SSL").client_auth is ClientAuth.REQUIRED  # type: ignore[attr-defined]
    found = options_of(given, "SSL", SecurityProtocol.SASL_SSL)
    assert found.client_auth is ClientAuth.NONE  # type: ignore[attr-defined]
    given["listener.name.ssl.ssl.client.auth"] = "requested"
    found = options_of(given, "SSL", SecurityProtocol.SASL_SSL)
    assert found.client_auth is ClientAuth.REQUESTED  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ssl.client.auth", "maybe"),
        ("ssl.keystore.type", "BKS"),
        ("ssl.enabled.protocols", "TLSv1.9"),
        ("ssl.endpoint.identification.algorithm", "ldaps"),
        ("principal.builder.class", "com.example.Builder"),
        ("listener.name.ssl.ssl.engine.factory.class", "com.example.Factory"),
        ("security.inter.broker.protocol", "SASL_SSL"),
    ],
)
def test_unusable_values_are_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_configuration({**BASE, key: value})
    assert raised.value.key == key


def test_an_inter_broker_protocol_is_the_name_of_a_listener() -> None:
    given = {"listeners": "PLAINTEXT://h:1,SSL://h:2", "security.inter.broker.protocol": "SSL"}
    assert read_configuration(given).inter_broker_listener == "SSL"
    with pytest.raises(ConfigError, match=r"for other names use inter\.broker\.listener\.name"):
        read_configuration({**given, "listeners": "PLAINTEXT://h:1"})
    with pytest.raises(ConfigError, match="only one of"):
        read_configuration({**given, "inter.broker.listener.name": "SSL"})


def test_secrets_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        read_configuration(
            {
                **BASE,
                "ssl.keystore.password": "hush1",
                "listener.name.ssl.ssl.keystore.password": "hush2",
                "listener.name.nosuch.ssl.keystore.password": "hush3",
                "ssl.nosuch.password": "hush4",
            }
        )
    assert "listener.name.nosuch.ssl.keystore.password has no effect" in caplog.text
    assert "ssl.nosuch.password has no effect" in caplog.text
    assert "hush" not in caplog.text
    assert "listener.name.ssl." not in caplog.text


def test_the_protocols_of_listeners_and_of_controllers_elsewhere_are_known() -> None:
    configuration = read_configuration(
        {
            "process.roles": "broker",
            "node.id": "2",
            "listeners": "INTERNAL://h:1,PLAINTEXT://h:2",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "h:3",
            "listener.security.protocol.map": "INTERNAL:SSL,PLAINTEXT:PLAINTEXT,CONTROLLER:SSL",
        }
    )
    assert configuration.protocols == {
        "INTERNAL": SecurityProtocol.SSL,
        "PLAINTEXT": SecurityProtocol.PLAINTEXT,
        "CONTROLLER": SecurityProtocol.SSL,
    }
    assert [each.security_protocol.name for each in configuration.endpoints] == [
        "SSL",
        "PLAINTEXT",
    ]
