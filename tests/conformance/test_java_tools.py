"""Apache Kafka's own command line tools, 4.3.1, against a broker."""

from __future__ import annotations

import json
import re
import time

import pytest

from conformance import client_scenarios
from conformance.client_program import ClientProgram
from jvm.java import run_java

TOOLS = "org.apache.kafka.tools."


class Tools:
    """Runs a tool and returns what it printed."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def run(self, tool: str, *words: str, stdin: str | None = None) -> str:
        done = run_java(
            "kafka-tools", tool, "--bootstrap-server", self.bootstrap, *words, stdin=stdin
        )
        assert done.returncode == 0, f"{tool} {words}\n{done.stdout}\n{done.stderr[-3000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def tools(clients_bootstrap: str) -> Tools:
    return Tools(clients_bootstrap)


@pytest.fixture(scope="module")
def topic(tools: Tools) -> str:
    """A topic with three records in partition 0 and a group that has read two."""
    program = ClientProgram([], tools.bootstrap)
    name = client_scenarios.make_topic(program, 2)
    now = int(time.time() * 1000) - 60_000
    values = ["first", "second", "third"]
    client_scenarios.fill(program, name, values, timestamp=lambda number: now + number)
    return name


def test_kafka_topics(tools: Tools) -> None:
    name = client_scenarios.new_name("tools")
    command = TOOLS + "TopicCommand"
    tools.run(
        command, "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=1"
    )
    tools.run(command, "--alter", "--topic", name, "--partitions", "3")
    described = tools.run(command, "--describe", "--topic", name)
    assert re.search(
        r"PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: .*retention.ms=1", described
    )
    assert name in tools.run(command, "--list").split()
    tools.run(command, "--delete", "--topic", name)
    assert name not in tools.run(command, "--list").split()


def test_kafka_configs(tools: Tools, topic: str) -> None:
    command = "kafka.admin.ConfigCommand"
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tools.run(command, *entity, "--alter", "--add-config", "max.message.bytes=54321")
    assert "max.message.bytes=54321" in tools.run(command, *entity, "--describe")
    tools.run(command, *entity, "--alter", "--delete-config", "max.message.bytes")
    assert "54321" not in tools.run(command, *entity, "--describe", "--all")


def test_the_console_producer_and_consumer(tools: Tools) -> None:
    program = ClientProgram([], tools.bootstrap)
    name = client_scenarios.make_topic(program)
    words = ("--topic", name, "--compression-codec", "zstd")
    words += ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    tools.run(TOOLS + "ConsoleProducer", *words, stdin="a:1\nb:2\n")
    read = tools.run(
        TOOLS + "consumer.ConsoleConsumer",
        *("--topic", name, "--from-beginning", "--max-messages", "2", "--timeout-ms", "20000"),
        *("--formatter-property", "print.key=true", "--group", f"group-{name}"),
    )
    assert read.split() == ["a", "1", "b", "2"]


def test_kafka_consumer_groups(tools: Tools, topic: str) -> None:
    command, group = TOOLS + "consumer.group.ConsumerGroupCommand", f"tools-{topic}"
    words = ("--group", group, "--topic", f"{topic}:0")
    tools.run(command, "--reset-offsets", *words, "--to-offset", "1", "--execute")
    described = tools.run(command, "--describe", "--group", group)
    # Group, topic, partition, current offset, log end offset, lag.
    assert re.search(rf"{group}\s+{topic}\s+0\s+1\s+3\s+2\s", described), described
    assert group in tools.run(command, "--list").split()
    tools.run(command, "--delete", "--group", group)
    assert group not in tools.run(command, "--list").split()


def test_kafka_get_offsets(tools: Tools, topic: str) -> None:
    command = TOOLS + "GetOffsetShell"
    assert f"{topic}:0:3" in tools.run(command, "--topic", topic).split()
    assert f"{topic}:0:0" in tools.run(command, "--topic", topic, "--time", "earliest").split()
    assert f"{topic}:0:2" in tools.run(command, "--topic", topic, "--time", "max-timestamp").split()


def test_kafka_log_dirs(tools: Tools, topic: str) -> None:
    printed = tools.run(TOOLS + "LogDirsCommand", "--describe", "--topic-list", topic)
    found = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    directories = found["brokers"][0]["logDirs"]
    partitions = {p["partition"]: p["size"] for each in directories for p in each["partitions"]}
    assert set(partitions) == {f"{topic}-0", f"{topic}-1"}
    assert partitions[f"{topic}-0"] > 0
    assert partitions[f"{topic}-1"] == 0


def test_kafka_broker_api_versions(tools: Tools) -> None:
    printed = tools.run(TOOLS + "BrokerApiVersionsCommand")
    assert re.search(r"Produce\(0\): 0 to 13 \[usable: 13\]", printed)
    assert re.search(r"Fetch\(1\): \d to 18 \[usable: 18\]", printed)
