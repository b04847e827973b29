"""Shell completion, quotas, a broker that disappears, and imports of help."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time

import pytest

from barnabas.testing.broker_process import BrokerProcess
from conformance.cli_shell import Shell
from conformance.client_brokers import KafkaProcess, broker
from waiting import PATIENCE_S, eventually_equal

pytestmark = pytest.mark.conformance
__all__ = ["broker"]


@pytest.fixture
def shell(broker: BrokerProcess | KafkaProcess) -> Shell:
    """A shell whose topic has one partition."""
    made = Shell(broker.bootstrap)
    made.ok("topics", "create", made.topic, "-p", "1")
    return made


# Completion


def complete(shell: Shell, line: str) -> list[str]:
    """Return the completions that bash gets if TAB is pressed at the end of `line`."""
    words = line.split(" ")
    environment = {
        **shell.environment,
        "_BARNABAS_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run(
        shell.command(), env=environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return [each.partition(",")[2] for each in done.stdout.split()]


def test_commands_options_topics_groups_and_keys_are_completed(shell: Shell) -> None:
    shell.ok("produce", shell.topic, stdin="1\n")
    shell.ok("consume", shell.topic, "-g", shell.topic, "--from", "beginning", "-e")
    assert complete(shell, "barnabas gr") == ["groups"]
    assert "describe" in complete(shell, "barnabas groups d")
    assert complete(shell, "barnabas consume --from-b") == ["--from-beginning"]
    # Completion ignores a broker that does not respond immediately.
    topics, groups = (
        f"barnabas topics describe {shell.topic[:8]}",
        f"barnabas groups reset {shell.topic}",
    )
    eventually_equal(lambda: complete(shell, topics), [shell.topic])
    eventually_equal(lambda: complete(shell, groups), [shell.topic])
    assert complete(shell, "barnabas configs set topic t retention.b") == ["retention.bytes"]
    assert complete(shell, "barnabas configs set broker 1 num.part") == ["num.partitions"]


def test_completion_without_a_broker_prints_nothing() -> None:
    assert complete(Shell("127.0.0.1:1"), "barnabas topics describe x") == []


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(name: str) -> None:
    script = Shell("127.0.0.1:1").ok("completion", name)
    assert f"_BARNABAS_COMPLETE={name}_complete" in script
    if name == "bash":
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


# Quotas


def quotas(shell: Shell, *words: str) -> dict[str, float]:
    """Return the quotas of one entity."""
    listed = shell.json("quotas", "list", "--strict", *words)
    assert len(listed) <= 1
    return listed[0]["quotas"] if listed else {}


def await_quotas(shell: Shell, expected: dict[str, float], *words: str) -> None:
    eventually_equal(lambda: quotas(shell, *words), expected)


def test_quotas_are_set_listed_and_removed(shell: Shell) -> None:
    entity = ("--user", shell.topic, "--default-client-id")
    shell.ok("quotas", "set", *entity, "producer_byte_rate=1000", "--dry-run")
    assert quotas(shell, *entity) == {}
    shell.ok("quotas", "set", *entity, "producer_byte_rate=1000", "request_percentage=12.5")
    await_quotas(shell, {"producer_byte_rate": 1000.0, "request_percentage": 12.5}, *entity)
    line = f"user {shell.topic}, client-id (default)\tproducer_byte_rate\t1000"
    assert line in shell.ok("quotas", "list").splitlines()
    shell.ok("quotas", "unset", *entity, "producer_byte_rate", "request_percentage")
    await_quotas(shell, {}, *entity)


def test_a_quota_that_does_not_exist_is_refused(shell: Shell) -> None:
    done = shell.run("quotas", "set", "--user", "u", "beer_rate=1")
    assert done.returncode == 1
    assert "beer_rate" in done.stderr
    assert shell.run("quotas", "set", "beer_rate=1").returncode == 2


# An unreachable broker


def read_until(process: subprocess.Popen[bytes], words: str) -> str:
    """Return the standard error of the process up to a line with `words`."""
    assert process.stderr is not None
    output = b""
    deadline = time.monotonic() + PATIENCE_S
    with selectors.DefaultSelector() as selector:
        selector.register(process.stderr, selectors.EVENT_READ)
        while words.encode() not in output:
            assert selector.select(max(0.0, deadline - time.monotonic())), output
            output += os.read(process.stderr.fileno(), 4096)
    return output.decode()


@pytest.mark.parametrize("group", [[], ["-g", "shared"]], ids=["alone", "in a group"])
def test_consume_reports_that_the_broker_is_gone_and_back(
    broker_process: BrokerProcess, group: list[str]
) -> None:
    shell = Shell(broker_process.bootstrap)
    shell.ok("topics", "create", shell.topic, "-p", "1")
    process = subprocess.Popen(
        shell.command("consume", shell.topic, "--from", "beginning", *group),
        env=shell.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        shell.ok("produce", shell.topic, stdin="one\n")
        assert process.stdout.readline() == b"one\n"
        broker_process.kill()
        output = read_until(process, "retrying until")
        assert "warning: " in output
        # The last error of the connection can be either of these.
        assert "Connection refused" in output or "the connection was closed" in output
        broker_process.start()
        read_until(process, "answers again")
        shell.ok("produce", shell.topic, stdin="two\n")
        assert process.stdout.readline() == b"two\n"
    finally:
        process.kill()
        process.wait()


# Start-up


@pytest.mark.parametrize("words", [["--help"], ["version"], ["topics", "--help"]])
def test_help_imports_nothing_that_takes_long(words: list[str]) -> None:
    script = (
        "import sys\n"
        "from barnabas.cli.group import group\n"
        f"group.main({words!r}, standalone_mode=False)\n"
        "heavy = {'rich', 'uvloop', 'asyncio', 'aiokafka', 'barnabas.client.facade',"
        " 'barnabas.storage', 'barnabas.server'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "HEAVY []"
