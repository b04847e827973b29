"""Tools of Apache Kafka on a cluster with links: they show them, and change their settings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer

from barnabas.testing.broker_process import BROKER_SETTINGS, BrokerProcess
from conformance.java_tools import CONSUMER_GROUPS, Tools
from conformance.linked_clusters import LINK, Linked, commit_offset
from group_offsets import committed_offsets
from waiting import eventually_equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jvm.tool_host import ToolHost

pytestmark = pytest.mark.nightly

SETTINGS = {**BROKER_SETTINGS, "offsets.topic.num.partitions": "2"}
CONFIGS, TOPICS = "kafka.admin.ConfigCommand", "TopicCommand"
ALL_BROKERS = ("--entity-type", "brokers", "--entity-default")
TOPIC, GROUP, PASSWORD = "orders", "readers", "hidden-password"
PREFIX = f"barnabas.link.{LINK}"


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Linked]:
    """A link with a mirror of two partitions, and a group whose offsets are copied."""
    directory: Path = tmp_path_factory.mktemp("links")
    with (
        BrokerProcess(directory / "source", SETTINGS) as source,
        BrokerProcess(directory / "target", SETTINGS) as target,
    ):
        made = Linked(source.bootstrap, target.bootstrap, directory)
        made.create_topic(TOPIC, 2, {"retention.ms": "123456789"})
        made.create_link(TOPIC, GROUP, **{"ssl.truststore.password": PASSWORD})
        made.produce(TOPIC, [f"record-{number}" for number in range(50)])
        commit_offset(source.bootstrap, GROUP, TOPIC, 1)
        made.await_mirrored(TOPIC, 2)
        eventually_equal(lambda: committed(target.bootstrap), {0: 1})
        yield made


@pytest.fixture(scope="module")
def tools(linked: Linked, tool_host: ToolHost) -> Tools:
    return Tools(tool_host, linked.target, is_kafka=False)


def committed(bootstrap: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    return committed_offsets(consumer, TOPIC, [0])


def alter(tools: Tools, change: str) -> None:
    tools.run(CONFIGS, *ALL_BROKERS, "--alter", "--add-config", f"{PREFIX}.{change}")


def test_kafka_configs_shows_the_settings_of_links_without_secrets(tools: Tools) -> None:
    tools.await_output(rf"{PREFIX}\.topic\.{TOPIC}=active", CONFIGS, *ALL_BROKERS, "--describe")
    shown = tools.run(CONFIGS, *ALL_BROKERS, "--describe")

    assert f"{PREFIX}.topics={TOPIC} " in shown
    assert f"{PREFIX}.groups={GROUP} " in shown
    assert f"{PREFIX}.ssl.truststore.password=null sensitive=true" in shown
    assert PASSWORD not in shown
    broker = ("--entity-type", "brokers", "--entity-name", "1", "--describe", "--all")
    assert PASSWORD not in tools.run(CONFIGS, *broker)


def test_kafka_topics_shows_a_mirror_with_its_configs(tools: Tools) -> None:
    shape = r"PartitionCount: 2\s+ReplicationFactor: 1\s+Configs: .*retention\.ms=123456789"
    tools.await_output(shape, TOPICS, "--describe", "--topic", TOPIC)

    assert len(tools.table(TOPICS, "--describe", "--topic", TOPIC)) == 2
    assert TOPIC in tools.run(TOPICS, "--list").split()
    for problem in ("--unavailable-partitions", "--under-replicated-partitions"):
        assert tools.rows(TOPICS, "--describe", problem) == []


def test_kafka_consumer_groups_shows_the_copied_offsets(tools: Tools) -> None:
    (row,) = tools.table(CONSUMER_GROUPS, "--describe", "--group", GROUP)
    assert row[:4] == [GROUP, TOPIC, "0", "1"]
    assert int(row[5]) == int(row[4]) - 1
    assert GROUP in tools.run(CONSUMER_GROUPS, "--list").split()
    assert "Empty" in tools.run(CONSUMER_GROUPS, "--describe", "--group", GROUP, "--state")


def test_kafka_configs_changes_settings_of_links(linked: Linked, tools: Tools) -> None:
    alter(tools, "group.sync.ms=300")
    tools.await_output(rf"{PREFIX}\.group\.sync\.ms=300 ", CONFIGS, *ALL_BROKERS, "--describe")
    alter(tools, "state=paused")
    eventually_equal(lambda: linked.described()["state"], "paused")
    alter(tools, "state=active")
    eventually_equal(lambda: linked.described()["state"], "active")
    tools.run(CONFIGS, *ALL_BROKERS, "--alter", "--delete-config", f"{PREFIX}.group.sync.ms")
    linked.produce(TOPIC, ["later"])
    linked.await_mirrored(TOPIC, 2)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("group.sync.ms=soon", "'soon' is not a whole number"),
        ("group.sync=300", "neither links nor clients have a key group.sync"),
        ("state=stoped", "'stoped' is not one of active, paused, reversed"),
        ("topics=(", "missing"),
    ],
)
def test_kafka_configs_reports_why_a_change_of_a_link_is_refused(
    linked: Linked, tools: Tools, change: str, reason: str
) -> None:
    words = ("--alter", "--add-config", f"{PREFIX}.{change}")
    printed = tools.refused(CONFIGS, *ALL_BROKERS, *words)

    assert reason in printed
    assert "`barnabas links create --help` shows the settings of links" in printed
    assert linked.described()["state"] == "active"


def test_kafka_configs_reports_that_links_are_not_set_on_one_broker(tools: Tools) -> None:
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    words = ("--alter", "--add-config", f"{PREFIX}.state=paused")
    printed = tools.refused(CONFIGS, *broker, *words)

    assert "barnabas configs set broker default" in printed


def test_kafka_tools_report_that_mirrors_are_read_only(tools: Tools, tmp_path: Path) -> None:
    file = tmp_path / "deletion.json"
    file.write_text(
        f'{{"partitions": [{{"topic": "{TOPIC}", "partition": 0, "offset": 1}}], "version": 1}}'
    )
    printed = tools.run("DeleteRecordsCommand", "--offset-json-file", str(file))
    assert re.search(rf"partition: {TOPIC}-0\s+error: .*", printed), printed
