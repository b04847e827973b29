"""Tokens from files: what a file may contain, which files are read, and when."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from barnabas.client.config import ClientConfig
from barnabas.client.errors import ClientConfigError
from barnabas.client.sasl import check_sasl
from barnabas.sasl.jaas import OAUTHBEARER_MODULE
from barnabas.sasl.mechanism import SaslError
from barnabas.sasl.token_claims import make_unsecured
from barnabas.sasl.token_login import ALLOWED_FILES, TokenFile, token_file
from barnabas.server.configs.configuration import read_configuration
from barnabas.server.configs.oauth_settings import TokenLoginSettings
from barnabas.settings.key import ConfigError

TOKEN = make_unsecured({"sub": "alice", "exp": 4_000_000_000})


def test_a_token_is_read_each_time_with_its_expiry(tmp_path: Path) -> None:
    path = tmp_path / "a token"
    path.write_text(f"\n{TOKEN}\n")
    source = token_file(path.as_uri(), {"tenant": "x"}, {})
    token = source(0)
    assert (token.text, token.expiry_ms, token.extensions) == (
        TOKEN,
        4_000_000_000_000,
        {"tenant": "x"},
    )
    path.write_text(make_unsecured({"sub": "bob"}))
    assert source(0).text != TOKEN


@pytest.mark.parametrize(
    "content", ["", "root:x:0:0:secret", "a.b.c", f"{TOKEN}.x", "x" * 2_000_000]
)
def test_a_file_that_is_no_token_is_not_sent(tmp_path: Path, content: str) -> None:
    path = tmp_path / "passwd"
    path.write_text(content)
    with pytest.raises(SaslError, match=str(path)) as raised:
        token_file(path.as_uri(), {}, {})(0)
    assert "secret" not in str(raised.value)
    # The file may be written at this moment.
    assert raised.value.is_transient


def test_devices_and_pipes_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path / "absent"):
        with pytest.raises(SaslError):
            TokenFile(str(path))(0)


@pytest.mark.parametrize("url", ["file:token", "file://host/token", "file:", "file:///a%00b"])
def test_a_url_has_an_absolute_path_on_this_machine(url: str) -> None:
    with pytest.raises(ValueError, match="file:///PATH"):
        token_file(url, {}, {})


def test_a_variable_limits_the_files() -> None:
    variables = {ALLOWED_FILES: "/run/secrets/token, /other"}
    assert token_file("file:///run/secrets/token", {}, variables).path == "/run/secrets/token"
    for url in ("file:///etc/passwd", "file:///run/secrets/token/../../../etc/passwd"):
        with pytest.raises(ValueError, match=ALLOWED_FILES):
            token_file(url, {}, variables)
    with pytest.raises(ValueError, match=ALLOWED_FILES):
        token_file("file:///run/secrets/token", {}, {ALLOWED_FILES: ""})


def client_config(url: str) -> ClientConfig:
    return ClientConfig(
        bootstrap_servers="h:1",
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=url,
    )


def test_a_client_takes_its_token_from_a_file_without_credentials() -> None:
    check_sasl(client_config("file:///run/secrets/token"))
    with pytest.raises(ClientConfigError, match="file:///PATH"):
        check_sasl(client_config("file:token"))
    with pytest.raises(ClientConfigError, match="or file:///PATH"):
        check_sasl(client_config("ftp://host/token"))


def node_settings(url: str) -> dict[str, str]:
    jaas = f'{OAUTHBEARER_MODULE} required extension_tenant="x" unsecuredLoginStringClaim_sub="n";'
    return {
        "process.roles": "broker",
        "controller.quorum.voters": "2@c:1",
        "listeners": "PLAINTEXT://h:1",
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "listener.name.plaintext.oauthbearer.sasl.jaas.config": jaas,
        "sasl.oauthbearer.jwks.endpoint.url": "file:///keys",
        "sasl.oauthbearer.allow.unverified.audience": "true",
        "sasl.oauthbearer.allow.unverified.issuer": "true",
        "sasl.oauthbearer.token.endpoint.url": url,
    }


def test_a_node_takes_its_token_from_a_file_without_credentials() -> None:
    found = read_configuration(node_settings("file:///run/secrets/token")).logins["PLAINTEXT"]
    assert isinstance(found, TokenLoginSettings)
    assert found.source == TokenFile("/run/secrets/token", {"tenant": "x"})
    for url in ("file:token", "ftp://host/token"):
        with pytest.raises(ConfigError, match="file:///") as raised:
            read_configuration(node_settings(url))
        assert raised.value.key.endswith("sasl.oauthbearer.token.endpoint.url")
