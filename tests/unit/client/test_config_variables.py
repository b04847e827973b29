"""Variables in the configuration of a client."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.client.config import ClientConfig
from barnabas.client.errors import ClientConfigError

CLASS = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
GIVEN = {
    "bootstrap.servers": "127.0.0.1:9092",
    "config.providers": "env",
    "config.providers.env.class": CLASS,
}


def test_a_password_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD_OF_TEST", "geheim")
    config = ClientConfig.parse({
        **GIVEN,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": "${env:PASSWORD_OF_TEST}",
        "linger.ms": 7,
    })  # fmt: skip
    assert config.sasl_plain_password == "geheim"
    assert config.linger_ms == 7


def test_keyword_arguments_name_providers_with_underscores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ID_OF_TEST", "me")
    config = ClientConfig.parse({
        "bootstrap_servers": "127.0.0.1:9092",
        "config_providers": "env",
        "config_providers_env_class": CLASS,
        "client_id": "${env:ID_OF_TEST}",
    })  # fmt: skip
    assert config.client_id == "me"


def test_errors_have_no_resolved_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBER_OF_TEST", "geheim")
    with pytest.raises(ClientConfigError) as raised:
        ClientConfig.parse({**GIVEN, "linger.ms": "${env:NUMBER_OF_TEST}"})
    assert str(raised.value) == "linger.ms=[hidden] is not a whole number"


def test_an_absent_file_is_a_configuration_error(tmp_path: Path) -> None:
    given = {
        **GIVEN,
        "config.providers.env.class": CLASS.replace("EnvVar", "File"),
        "sasl.password": f"${{env:{tmp_path}/absent:password}}",
    }
    with pytest.raises(ClientConfigError, match=r"sasl\.password: .* cannot be resolved"):
        ClientConfig.parse(given)
