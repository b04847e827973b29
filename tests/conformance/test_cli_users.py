"""`barnabas users`, and the credentials of commands, against each kind of broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.cli_shell import Shell
from conformance.sasl_brokers import SaslBarnabas, SaslKafka
from waiting import eventually, eventually_equal

Broker = SaslBarnabas | SaslKafka
ADMIN = ("-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN",
         "-X", "sasl.username=admin", "-X", "sasl.password=admin-secret")  # fmt: skip


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp(request.param)
    made = SaslKafka(directory) if request.param == "kafka" else SaslBarnabas(directory)
    made.start()
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture
def shell(broker: Broker) -> Shell:
    return Shell(broker.sasl_bootstrap)


@pytest.fixture
def name() -> str:
    return f"user-{uuid.uuid4().hex[:8]}"


def logs_in(shell: Shell, name: str, mechanism: str, password: str, directory: Path) -> bool:
    """Return whether a command with these credentials in a file succeeds."""
    file = directory / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        f"sasl.mechanism={mechanism}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{name}" password="{password}";\n'
    )
    done = shell.run_in_process("topics", "list", "--config-file", str(file), "--timeout", "20")
    assert done.returncode == 0 or "has refused user" in done.stderr, done.stderr
    return done.returncode == 0


def test_users_are_added_listed_and_removed(shell: Shell, name: str, tmp_path: Path) -> None:
    def listed() -> list[dict[str, object]]:
        found = shell.run_in_process("users", "list", name, "--json", *ADMIN)
        return [] if found.returncode else shell.json("users", "list", name, *ADMIN)

    words = ("users", "add", name, "--password-file", "-", *ADMIN)
    added = shell.run_in_process(*words, stdin="first\n")
    assert added.stdout == f"user {name} can log in by SCRAM-SHA-512\n", added.stderr
    eventually(lambda: logs_in(shell, name, "SCRAM-SHA-512", "first", tmp_path))
    both = ("--mechanism", "SCRAM-SHA-256", "--mechanism", "scram-sha-512", "--iterations", "4096")
    assert shell.run_in_process(*words, *both, stdin="second\n").returncode == 0
    expected = [
        {"mechanism": mechanism, "iterations": 4096}
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    ]
    eventually_equal(listed, [{"user": name, "credentials": expected}])
    assert logs_in(shell, name, "SCRAM-SHA-256", "second", tmp_path)
    assert not logs_in(shell, name, "SCRAM-SHA-512", "first", tmp_path)
    removed = shell.run_in_process("users", "remove", name, "--mechanism", "SCRAM-SHA-256", *ADMIN)
    assert removed.stdout == f"user {name} cannot log in by SCRAM-SHA-256\n"
    eventually(lambda: not logs_in(shell, name, "SCRAM-SHA-256", "second", tmp_path))
    assert logs_in(shell, name, "SCRAM-SHA-512", "second", tmp_path)
    assert shell.run_in_process("users", "remove", name, *ADMIN).returncode == 0
    eventually_equal(listed, [])


def test_a_missing_user_is_an_error(shell: Shell, name: str) -> None:
    for command in ("list", "remove"):
        done = shell.run_in_process("users", command, name, *ADMIN)
        assert done.returncode == 1
        assert name in done.stderr


def test_a_password_is_prompted_for_only_on_a_terminal(shell: Shell, name: str) -> None:
    done = shell.run("users", "add", name, *ADMIN)
    assert done.returncode == 2
    assert "--password-file" in done.stderr
    empty = shell.run_in_process("users", "add", name, "--password-file", "-", *ADMIN, stdin="\n")
    assert empty.returncode == 2


def test_a_credentials_file_may_be_named_by_the_environment(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "admin.properties"
    file.write_text("\n".join(word for word in ADMIN if word != "-X") + "\n")
    shell.environment["BARNABAS_CONFIG"] = str(file)
    assert shell.run_in_process("brokers", "list").returncode == 0
    file.write_text(
        f"{file.read_text()}bootstrap.servers={shell.environment.pop('BARNABAS_BOOTSTRAP')}"
    )
    assert shell.run_in_process("brokers", "list").returncode == 0
    shell.environment["BARNABAS_CONFIG"] = str(tmp_path / "missing")
    done = shell.run_in_process("brokers", "list")
    assert done.returncode == 2
    assert "cannot be read" in done.stderr


def test_the_doctor_reports_the_required_security_protocol(shell: Shell) -> None:
    done = shell.run_in_process("doctor", shell.environment["BARNABAS_BOOTSTRAP"])
    assert done.returncode == 1
    assert "wants a login by" in done.stdout
    words = ("doctor", shell.environment["BARNABAS_BOOTSTRAP"], *ADMIN, "--json")
    refused = ("does not answer requests", "login by")
    printed = shell.run_in_process(*words).stdout
    assert not any(text in printed for text in refused), printed
