"""Properties files of Confluent's registry are settings of this one."""

from __future__ import annotations

import pytest

from barnabas.cli.common.profiles import (
    BOOTSTRAP_VARIABLE,
    CONFIG_VARIABLE,
    PROFILE_VARIABLE,
)
from barnabas.cli.nodes.registry_child import registry_environment, take_registry_properties
from barnabas.cli.nodes.registry_properties import read_registry_properties
from barnabas.registry.config import RegistrySettings
from barnabas.settings.key import ConfigError

# As in the file that Confluent's package has.
FILE = {
    "listeners": "http://0.0.0.0:8081",
    "kafkastore.bootstrap.servers": "PLAINTEXT://a.example:9092,b.example:9092",
    "kafkastore.topic": "_schemas",
    "kafkastore.timeout.ms": "500",
    "debug": "false",
}
SASL = {
    "kafkastore.security.protocol": "SASL_PLAINTEXT",
    "kafkastore.sasl.mechanism": "SCRAM-SHA-512",
    "kafkastore.sasl.username": "registry",
    "kafkastore.sasl.password": "secret",
}


def read(properties: dict[str, str], bootstrap: str | None = "a:9092") -> RegistrySettings:
    return read_registry_properties(properties, {}, bootstrap)


def test_the_usual_file_of_confluents_registry(caplog: pytest.LogCaptureFixture) -> None:
    settings = read(FILE, None)
    assert (settings.host, settings.port) == ("0.0.0.0", 8081)
    assert settings.bootstrap == "PLAINTEXT://a.example:9092,b.example:9092"
    assert (settings.topic, settings.group_id) == ("_schemas", "schema-registry")
    assert not settings.has_login
    for name in ("debug", "kafkastore.timeout.ms"):
        assert f"{name} has no effect" in caplog.text


def test_the_defaults() -> None:
    settings = read({})
    assert (settings.host, settings.port, settings.level) == ("127.0.0.1", 8081, "BACKWARD")
    assert settings.leader_eligibility


def test_keys_of_clients_have_a_prefix() -> None:
    settings = read(SASL)
    assert settings.client == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "registry",
        "sasl.password": "secret",
    }
    assert settings.mechanism == "SCRAM-SHA-512"


def test_clients_log_in_where_the_registry_logs_in() -> None:
    assert read(SASL).has_login
    assert not read({**SASL, "authentication.method": "NONE"}).has_login


@pytest.mark.parametrize(
    "properties",
    [
        {"authentication.method": "BASIC"},
        {"authentication.method": "DIGEST"},
        {"listeners": "ftp://127.0.0.1:8081"},
        {"listeners": "8081"},
        {"listeners": "http://127.0.0.1:many"},
        {"listeners": "https://127.0.0.1:8081"},
        {"schema.compatibility.level": "sometimes"},
        {"kafkastore.no.such.key": "1"},
        {"kafkastore.topic.replication.factor": "two"},
    ],
    ids=lambda properties: next(iter(properties)),
)
def test_a_wrong_value_is_an_error(properties: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        read(properties)


def test_brokers_are_needed() -> None:
    with pytest.raises(ConfigError, match=r"kafkastore.bootstrap.servers"):
        read({}, None)


def test_a_broker_gives_its_registry_the_keys_with_the_prefix() -> None:
    properties = {
        "num.partitions": "3",
        "super.users": "User:admin",
        "barnabas.registry.listener": "127.0.0.1:8081",
        "barnabas.registry.kafkastore.topic": "_mine",
    }
    assert take_registry_properties(properties) == {
        "listeners": "http://127.0.0.1:8081",
        "kafkastore.topic": "_mine",
        "super.users": "User:admin",
    }
    assert properties == {"num.partitions": "3", "super.users": "User:admin"}
    assert take_registry_properties(properties) == {}


def test_keys_of_a_registry_need_its_address() -> None:
    with pytest.raises(ConfigError, match=r"barnabas.registry.listener"):
        take_registry_properties({"barnabas.registry.kafkastore.topic": "_mine"})


def test_the_registry_of_a_broker_belongs_to_no_profile() -> None:
    choices = dict.fromkeys((BOOTSTRAP_VARIABLE, CONFIG_VARIABLE, PROFILE_VARIABLE), "other")
    assert registry_environment({"PATH": "/bin", **choices}) == {"PATH": "/bin"}
