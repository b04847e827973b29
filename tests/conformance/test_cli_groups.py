"""`barnabas groups` as a process, against each kind of broker."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from barnabas.testing.broker_process import BrokerProcess
from conformance.cli_shell import Shell
from conformance.client_brokers import KafkaProcess, broker
from waiting import eventually

pytestmark = pytest.mark.conformance
__all__ = ["broker"]

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def shell(broker: BrokerProcess | KafkaProcess) -> Shell:
    """A shell whose topic has two partitions with five records each."""
    made = Shell(broker.bootstrap)
    made.ok("topics", "create", made.topic, "--partitions", "2")
    for partition in "01":
        made.ok("produce", made.topic, "-p", partition, stdin="0\n1\n2\n3\n4\n")
    return made


@pytest.fixture
def member(shell: Shell, broker: BrokerProcess | KafkaProcess) -> Iterator[Consumer]:
    """A consumer that has joined the group named like the topic, and has read all records."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": shell.topic,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([shell.topic])
    seen: set[tuple[int, int]] = set()

    def has_read() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            seen.add((message.partition(), message.offset()))
        return len(seen) == 10

    eventually(has_read)
    ends = [TopicPartition(shell.topic, partition, 5) for partition in (0, 1)]
    consumer.commit(offsets=ends, asynchronous=False)
    yield consumer
    consumer.close()


def offsets(shell: Shell) -> list[int | None]:
    described = shell.json("groups", "describe", shell.topic)
    return [each["offset"] for each in described["partitions"]]


def consume_two(shell: Shell) -> None:
    """Commit offset 2 of both partitions in the group, which has no members afterwards."""
    for partition in "01":
        words = ("-g", shell.topic, "-p", partition, "--from", "beginning", "-n", "2")
        shell.ok("consume", shell.topic, *words)


@pytest.mark.usefixtures("member")
def test_a_group_is_described_with_its_members_and_lag(shell: Shell) -> None:
    shell.ok("produce", shell.topic, "-p", "1", stdin="5\n6\n")
    listed = {group["group"]: group for group in shell.json("groups", "list")}
    assert listed[shell.topic]["state"] == "Stable"
    described = shell.json("groups", "describe", shell.topic)
    assert (described["state"], described["lag"]) == ("Stable", 2)
    assert [each["lag"] for each in described["partitions"]] == [0, 2]
    (reader,) = described["members"]
    assert reader["client"] == "reader"
    assert [each["partition"] for each in reader["reads"]] == [0, 1]
    assert {each["member"] for each in described["partitions"]} == {reader["member"]}


@pytest.mark.usefixtures("member")
def test_a_group_with_members_is_neither_reset_nor_deleted(shell: Shell) -> None:
    words = ("groups", "reset", shell.topic, "--all-topics", "--to-earliest", "--execute")
    refused = shell.run(*words)
    assert refused.returncode == 1
    assert "1 member(s): stop them first" in refused.stderr
    refused = shell.run("groups", "delete", shell.topic)
    assert refused.returncode == 1
    assert "stop them first" in refused.stderr


def test_a_reset_shows_its_plan_and_is_executed_on_request(shell: Shell) -> None:
    consume_two(shell)
    words = ("groups", "reset", shell.topic, "--topic", f"{shell.topic}:1", "--to-earliest")
    assert shell.json(*words, "--dry-run") == (dry := shell.json(*words))
    assert shell.run(*words, "--dry-run", "--execute").returncode == 2
    assert not dry["executed"]
    assert dry["partitions"] == [
        {"topic": shell.topic, "partition": 1, "before": 2, "after": 0, "clipped": False}
    ]
    assert offsets(shell) == [2, 2]
    assert shell.json(*words, "--execute")["executed"]
    assert offsets(shell) == [2, 0]


TARGETS = [
    (("--to-latest",), [5, 5]),
    (("--to-offset", "3"), [3, 3]),
    (("--to-current",), [3, 3]),
    (("--shift-by", "-1"), [2, 2]),
    (("--shift-by", "99"), [5, 5]),
    (("--to-datetime", "2001-01-01"), [0, 0]),
    (("--to-datetime", "2099-01-01"), [5, 5]),
    (("--by-duration", "1d"), [0, 0]),
    (("--by-duration", "PT0S"), [5, 5]),
]


def test_offsets_are_reset_in_each_format(shell: Shell) -> None:
    consume_two(shell)
    for target, expected in TARGETS:
        words = ("groups", "reset", shell.topic, "--all-topics", *target, "--execute")
        assert [each["after"] for each in shell.json(*words)["partitions"]] == expected, target
    assert offsets(shell) == TARGETS[-1][1]


def test_offsets_and_groups_are_deleted(shell: Shell) -> None:
    consume_two(shell)
    shell.ok("groups", "delete-offsets", shell.topic, f"{shell.topic}:0")
    described = shell.json("groups", "describe", shell.topic)
    assert [each["partition"] for each in described["partitions"]] == [1]
    shell.ok("groups", "delete", shell.topic)
    gone = shell.run("groups", "describe", shell.topic)
    assert gone.returncode == 1
    assert "there is no such group" in gone.stderr


def test_tables_have_headings_and_colors_only_on_a_terminal(shell: Shell) -> None:
    consume_two(shell)
    shown = shell.on_terminal("groups", "describe", shell.topic)
    assert "partition" in shown
    assert "\x1b[" in shown
    plain = shell.on_terminal("groups", "describe", shell.topic, NO_COLOR="1")
    assert "partition" in plain
    assert "\x1b[3" not in plain
    piped = shell.ok("groups", "describe", shell.topic).splitlines()
    assert piped[1].split("\t") == ["topic", "partition", "offset", "end", "lag", "read by"]
    assert max(len(ESCAPES.sub("", line)) for line in plain.splitlines()) <= 80
