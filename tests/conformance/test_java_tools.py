"""Apache Kafka's own command line tools, 4.3.1: topics, configs, the console, versions.

The same assertions hold for Barnabas and for Apache Kafka 4.4.
"""

from __future__ import annotations

import re

from conformance import client_scenarios
from conformance.java_tools import Tools


def test_kafka_topics_manages_topics(tools: Tools) -> None:
    name = client_scenarios.new_name("tools")
    command = "TopicCommand"
    tools.run(
        command, "--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=1"
    )
    tools.await_output(rf"(?m)^{name}$", command, "--list")
    tools.run(command, "--alter", "--topic", name, "--partitions", "3")
    grown = r"PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: .*retention.ms=1"
    tools.await_output(grown, command, "--describe", "--topic", name)
    assert name in tools.run(command, "--list").split()
    tools.run(command, "--delete", "--topic", name)
    tools.await_output(rf"^((?!{name}\n)[\s\S])*$", command, "--list")


def test_kafka_configs_manages_configs(tools: Tools) -> None:
    command = "kafka.admin.ConfigCommand"
    entity = ("--entity-type", "topics", "--entity-name", tools.new_topic())
    tools.run(command, *entity, "--alter", "--add-config", "max.message.bytes=54321")
    tools.await_output("max.message.bytes=54321", command, *entity, "--describe")
    tools.run(command, *entity, "--alter", "--delete-config", "max.message.bytes")
    tools.await_output(
        r"max.message.bytes=1048588 .*DEFAULT_CONFIG", command, *entity, "--describe", "--all"
    )


def test_the_console_tools_produce_and_consume(tools: Tools) -> None:
    name = tools.new_topic()
    words = ("--topic", name, "--compression-codec", "zstd")
    words += ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    tools.run("ConsoleProducer", *words, stdin="a:1\nb:2\n")
    read = tools.run(
        "consumer.ConsoleConsumer",
        *("--topic", name, "--from-beginning", "--max-messages", "2", "--timeout-ms", "60000"),
        *("--formatter-property", "print.key=true", "--group", f"group-{name}"),
    )
    assert read.split() == ["a", "1", "b", "2"]


def test_kafka_broker_api_versions_lists_versions(tools: Tools) -> None:
    printed = tools.run("BrokerApiVersionsCommand")
    assert re.search(r"Produce\(0\): 0 to 13 \[usable: 13\]", printed)
    assert re.search(r"Fetch\(1\): \d to 18 \[usable: 18\]", printed)
