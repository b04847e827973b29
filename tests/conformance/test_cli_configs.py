"""`barnabas configs` and `topics purge` as processes, against each kind of broker."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.testing.broker_process import BrokerProcess
from conformance.cli_shell import Shell
from conformance.client_brokers import KafkaProcess, broker
from waiting import eventually_equal

pytestmark = pytest.mark.conformance
__all__ = ["broker"]


@pytest.fixture
def shell(broker: BrokerProcess | KafkaProcess) -> Shell:
    """A shell whose topic has two partitions with five records each."""
    made = Shell(broker.bootstrap)
    made.ok("topics", "create", made.topic, "--partitions", "2")
    for partition in "01":
        made.ok("produce", made.topic, "-p", partition, stdin="0\n1\n2\n3\n4\n")
    return made


def test_configs_are_set_described_with_their_source_and_unset(shell: Shell) -> None:
    words = ("topic", shell.topic)

    def entry() -> Any:
        key = ("retention.ms", "--sources")
        (found,) = shell.json("configs", "describe", *words, *key)["configs"]
        return found

    def value_source_and_type() -> tuple[str, str, str]:
        found = entry()
        return found["value"], found["source"], found["type"]

    shell.ok("configs", "set", *words, "retention.ms=12345", "--dry-run")
    assert value_source_and_type() == ("604800000", "default", "long")
    shell.ok("configs", "set", *words, "retention.ms=12345")
    eventually_equal(value_source_and_type, ("12345", "topic", "long"))
    assert [each["key"] for each in entry()["sources"]][:1] == ["retention.ms"]
    shell.ok("configs", "unset", *words, "retention.ms")
    eventually_equal(value_source_and_type, ("604800000", "default", "long"))


def test_a_wrong_key_or_value_of_a_config_is_reported(shell: Shell) -> None:
    wrong = shell.run("configs", "describe", "topic", shell.topic, "retention.sm")
    assert wrong.returncode == 1
    assert "did you mean retention.ms?" in wrong.stderr
    wrong = shell.run("configs", "set", "topic", shell.topic, "retention.ms=soon")
    assert wrong.returncode == 1
    assert "INVALID_CONFIG" in wrong.stderr
    wrong = shell.run("configs", "describe", "broker", "4711")
    assert wrong.returncode == 1
    assert "the brokers are: 1" in wrong.stderr


def test_a_default_of_all_brokers_shows_as_the_source(shell: Shell) -> None:
    shell.ok("configs", "set", "broker", "default", "log.retention.ms=777777")

    def value_and_source() -> tuple[str, str]:
        words = ("configs", "describe", "topic", shell.topic, "retention.ms")
        (entry,) = shell.json(*words)["configs"]
        return entry["value"], entry["source"]

    try:
        eventually_equal(value_and_source, ("777777", "dynamic default broker"))
    finally:
        shell.ok("configs", "unset", "broker", "default", "log.retention.ms")
    eventually_equal(value_and_source, ("604800000", "default"))


def test_purged_records_are_deleted(shell: Shell) -> None:
    assert shell.ok(
        "topics", "purge", f"{shell.topic}:0", "--before-offset", "3", "--no-header"
    ) == (f"{shell.topic}\t0\t3\n")
    shell.ok("topics", "purge", f"{shell.topic}:1", "--all")
    left = shell.ok("consume", shell.topic, "--from", "beginning", "-e", "-f", "%p:%o\\n")
    assert left.split() == ["0:3", "0:4"]


def test_resources_with_configs_are_listed(shell: Shell) -> None:
    listed = shell.ok("configs", "list").splitlines()
    assert f"topic\t{shell.topic}" in listed
    assert "broker\t1" in listed
