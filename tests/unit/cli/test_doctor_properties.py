"""`barnabas doctor FILE`: what it says about the keys of a properties file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from barnabas.cli.doctor.diagnosis import Diagnosis
from barnabas.cli.doctor.directory import examine_properties

TOKENS = """\
listeners=SASL_PLAINTEXT://127.0.0.1:0
inter.broker.listener.name=SASL_PLAINTEXT
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.enabled.mechanisms=PLAIN,OAUTHBEARER
listener.name.sasl_plaintext.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required \
username="node" password="secret" user_node="secret";
listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config=\
org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
sasl.oauthbearer.jwks.endpoint.url=https://issuer.example/keys
sasl.oauthbearer.expected.issuer=https://issuer.example
sasl.oauthbearer.expected.audience=barnabas
"""
REGISTRY = "listeners=PLAINTEXT://127.0.0.1:0\nbarnabas.registry.listener=http://127.0.0.1:0"


def findings(directory: Path, text: str) -> list[tuple[str, str]]:
    """Return the verdicts and texts for a file whose data directory is empty."""
    file = directory / "server.properties"
    file.write_text(f"log.dirs={directory / 'data'}\n{text}")
    diagnosis = Diagnosis()
    examine_properties(str(file), diagnosis)
    return [(each.verdict, each.what) for each in diagnosis.findings]


def problems(directory: Path, text: str) -> list[str]:
    """Return what is wrong with the file."""
    return [what for verdict, what in findings(directory, text) if verdict == "wrong"]


@pytest.mark.parametrize(
    ("line", "is_praised"),
    [("node.id=1", True), ("compression.type=best", False), ("no.such.key=1", False)],
)
def test_all_keys_are_praised_only_if_all_are_good(
    line: str, is_praised: bool, tmp_path: Path
) -> None:
    praise = ("ok", "2 keys, all known and with allowed values")
    assert (praise in findings(tmp_path, line)) is is_praised


def test_a_file_for_which_a_package_is_missing_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert problems(tmp_path, TOKENS) == []
    monkeypatch.setitem(sys.modules, "jwt", None)
    (wrong,) = problems(tmp_path, TOKENS)
    assert "'OAUTHBEARER' is not allowed" in wrong
    assert "pip install '.[oauth]'" in wrong


def test_a_registry_whose_packages_are_missing_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert problems(tmp_path, REGISTRY) == []
    assert not any("has no effect" in what for _, what in findings(tmp_path, REGISTRY))
    monkeypatch.setitem(sys.modules, "barnabas.registry.serving", None)
    (wrong,) = problems(tmp_path, REGISTRY)
    assert "barnabas.registry.listener is given, but the package" in wrong


def test_keys_of_an_issuer_that_cannot_be_read_are_wrong(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    text = TOKENS.replace("https://issuer.example/keys", keys.as_uri())
    (wrong,) = problems(tmp_path, text)
    assert wrong.startswith(f"the keys of the issuer of tokens cannot be read: {keys}: ")
    keys.write_text('{"keys": []}')
    assert problems(tmp_path, text) == []


def test_the_processes_of_a_node_are_examined(tmp_path: Path) -> None:
    node = "listeners=PLAINTEXT://127.0.0.1:0\nbarnabas.node.brokers=2"
    found = findings(tmp_path, node)
    assert ("ok", "a node of several processes: controller 1, broker 101, broker 102") in found
    folders = [f"{tmp_path}/data/{name}" for name in ("controller.1", "broker.101", "broker.102")]
    for folder in folders:
        assert any(what.startswith(f"{folder} does not exist yet") for _, what in found)


def test_processes_of_a_node_that_would_share_a_port_are_wrong(tmp_path: Path) -> None:
    (wrong,) = problems(
        tmp_path,
        "listeners=PLAINTEXT://127.0.0.1:29092\nbarnabas.node.brokers=2\n"
        "barnabas.node.broker.2.listeners=PLAINTEXT://127.0.0.1:29092",
    )
    assert "broker 101 already uses 29092" in wrong
