"""`barnabas topics`, `produce` and `consume` as processes, against each kind of broker."""

from __future__ import annotations

import json

import pytest

from barnabas.testing.broker_process import BrokerProcess
from conformance.cli_shell import Shell
from conformance.client_brokers import broker
from jvm.kafka_process import KafkaProcess
from waiting import eventually, eventually_equal

pytestmark = pytest.mark.conformance
__all__ = ["broker"]


@pytest.fixture
def shell(broker: BrokerProcess | KafkaProcess) -> Shell:
    made = Shell(broker.bootstrap)
    created = made.run_in_process("topics", "create", made.topic, "--partitions", "1")
    assert created.returncode == 0, created.stderr
    return made


def test_lines_are_produced_and_consumed(shell: Shell) -> None:
    lines = "".join(f"line {number}\n" for number in range(5_000))
    shell.ok("produce", shell.topic, "-z", "lz4", stdin=lines)
    assert shell.ok("consume", shell.topic, "--from-beginning", "-e") == lines


def test_keys_headers_and_templates_are_supported(shell: Shell) -> None:
    shell.ok("produce", shell.topic, "-K", ":", "-H", "h=1", stdin="a:x\nb:\n")
    printed = shell.ok("consume", shell.topic, "--from-beginning", "-e", "-f", "%o %k=%s %h\\n")
    assert printed == "0 a=x h=1\n1 b= h=1\n"


def keep_old_records(shell: Shell) -> None:
    """Set endless retention: a broker deletes old records half a minute after its start."""
    altered = shell.run_in_process("topics", "alter", shell.topic, "-c", "retention.ms=-1")
    assert altered.returncode == 0, altered.stderr


def test_json_output_can_be_produced_again(shell: Shell) -> None:
    keep_old_records(shell)
    line = {"key": "k", "value": {"a": [1, None]}, "headers": {"h": "v"}, "timestamp": 5}
    shell.ok("produce", shell.topic, "--from-json", stdin=json.dumps(line))
    printed = shell.ok("consume", shell.topic, "--from-beginning", "-e", "--json")
    shell.ok("produce", shell.topic, "--from-json", stdin=printed)
    first, second = map(
        json.loads, shell.ok("consume", shell.topic, "-o", "0", "-e", "--json").splitlines()
    )
    assert first["value"] == '{"a":[1,null]}'
    assert {**second, "offset": 0} == first


def test_a_number_of_records_from_an_offset_or_the_end(shell: Shell) -> None:
    shell.ok("produce", shell.topic, stdin="0\n1\n2\n3\n4\n")
    assert shell.ok("consume", shell.topic, "-o", "1", "-n", "2") == "1\n2\n"
    assert shell.ok("consume", shell.topic, "-o", "-2", "-e") == "3\n4\n"


def test_from_accepts_positions_times_and_durations(shell: Shell) -> None:
    keep_old_records(shell)
    old = {"value": "old", "timestamp": 1_000_000_000_000}
    shell.ok("produce", shell.topic, "--from-json", stdin=json.dumps(old))
    shell.ok("produce", shell.topic, "-K", ":", "-H", "h=1", stdin="k:new\n")
    places = {
        "beginning": "old\nnew\n",
        "end": "",
        "1": "new\n",
        "-1": "new\n",
        "2001-01-01": "old\nnew\n",
        "2002-01-01T00:00": "new\n",
        "1h": "new\n",
    }
    for place, expected in places.items():
        assert (
            shell.run_in_process("consume", shell.topic, "--from", place, "-e").stdout == expected
        ), place
    with_key = shell.ok("consume", shell.topic, "--from", "1", "-e", "--key", "--headers")
    assert with_key == "h=1\tk\tnew\n"


def test_a_group_continues_at_its_committed_offset(shell: Shell) -> None:
    shell.ok("produce", shell.topic, stdin="0\n1\n2\n")
    words = ("consume", shell.topic, "-g", shell.topic, "--from-beginning", "-e")
    assert shell.ok(*words, "-n", "2") == "0\n1\n"
    assert shell.ok(*words) == "2\n"
    assert shell.ok(*words) == ""


def test_topics_are_listed_described_and_deleted(shell: Shell) -> None:
    assert shell.topic in shell.ok("topics", "list", "cli-.*").splitlines()
    shell.ok("topics", "alter", shell.topic, "-p", "3", "-c", "retention.ms=9999")

    def partitions_and_configs() -> tuple[int, dict[str, str]]:
        described = json.loads(shell.ok("topics", "describe", shell.topic, "--json"))
        return len(described["partitions"]), described["configs"]

    eventually_equal(partitions_and_configs, (3, {"retention.ms": "9999"}))
    shell.ok("topics", "delete", shell.topic)
    eventually(lambda: shell.topic not in shell.ok("topics", "list").splitlines())


def test_an_undelivered_record_is_an_error(shell: Shell) -> None:
    shell.ok("topics", "alter", shell.topic, "-c", "max.message.bytes=100")
    # The broker accepts such records until it has applied the limit.
    done = eventually(
        lambda: (tried := shell.run("produce", shell.topic, stdin="x" * 500)).returncode and tried
    )
    assert done.returncode == 1
    assert "max.message.bytes" in done.stderr


def test_the_error_of_a_wrong_address_contains_the_address() -> None:
    words = ("topics", "list", "-X", "default.api.timeout.ms=1500")
    done = Shell("127.0.0.1:1").run(*words)
    assert done.returncode == 1
    assert "dialed: 127.0.0.1:1 Connection refused" in done.stderr
