"""The state of links in `links list`, `links describe`, `why`, `doctor` and the metrics."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from confluent_kafka.admin import NewTopic
from prometheus_client.parser import text_string_to_metric_families

from barnabas.cli.links.mirrors import find_lags, read_table
from barnabas.client.facade import Client
from barnabas.metadata.configs_image import ALL_BROKERS, BROKER
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from barnabas.testing.broker_process import BROKER_SETTINGS, BrokerProcess
from conformance.linked_clusters import LINK, SECONDS, Linked, commit_offset
from conformance.raw_client import RawClient
from loop_turns import loop_turns
from waiting import eventually, eventually_equal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.conformance

SETTINGS = {
    **BROKER_SETTINGS,
    "offsets.topic.num.partitions": "2",
    "metrics.listener": "127.0.0.1:0",
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("source"), SETTINGS) as process:
        yield process


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("target"), SETTINGS) as process:
        yield process


@pytest.fixture
def linked(source: BrokerProcess, target: BrokerProcess, tmp_path: Path) -> Iterator[Linked]:
    if not source.is_running:
        source.start()
    made = Linked(source.bootstrap, target.bootstrap, tmp_path)
    yield made
    made.shell.run("links", "delete", LINK, "--force", "--yes")


@pytest.fixture
def topic() -> str:
    return f"status-{uuid.uuid4().hex[:8]}"


def only_link(linked: Linked) -> dict[str, Any]:
    (link,) = linked.shell.json("links", "list")
    return link


def test_a_link_shows_its_lag_and_the_time_of_its_last_records(linked: Linked, topic: str) -> None:
    linked.create_topic(topic, 2)
    linked.create_link(topic)
    linked.produce(topic, [f"record-{number}" for number in range(20)])
    linked.await_mirrored(topic, 2)

    eventually(lambda: only_link(linked)["lag"] == 0)
    shown = only_link(linked)
    assert (shown["state"], shown["active"], shown["behind_s"]) == ("active", 1, 0.0)
    state = linked.state(topic)
    assert [each["partition"] for each in state["partitions"]] == [0, 1]
    assert sum(each["source_end"] for each in state["partitions"]) == 20
    assert any(each["last_record_ms"] for each in state["partitions"])


def test_the_first_link_of_a_broker_does_not_block_the_event_loop(
    source: BrokerProcess, tmp_path: Path, topic: str
) -> None:
    with BrokerProcess(tmp_path / "first", SETTINGS) as first:
        linked = Linked(source.bootstrap, first.bootstrap, tmp_path)
        linked.create_topic(topic)
        linked.produce(topic, ["record"])
        before = loop_turns(first.metrics_address)
        linked.create_link(topic)
        linked.await_mirrored(topic)
        after = loop_turns(first.metrics_address)
        assert after.long_cpu_turns == before.long_cpu_turns, first.log()


def test_lags_without_times_are_those_that_a_promotion_waits_for(
    linked: Linked, topic: str
) -> None:
    linked.create_topic(topic)
    linked.create_link(topic)
    linked.produce(topic, ["record"])
    linked.await_mirrored(topic)
    with Client(linked.target) as client:
        mirror = read_table(client).mirrors[topic]
        timed = eventually(lambda: [each for each in find_lags(client, [mirror]) if each.lag == 0])
        assert timed[0].last_record_ms is not None
        (lag,) = find_lags(client, [mirror], with_times=False)
        assert (lag.partition, lag.end, lag.lag) == (0, 1, 0)
        assert lag.responded_ms is not None
        assert (lag.caught_up_ms, lag.last_record_ms) == (None, None)


def test_a_paused_link_shows_no_lag_that_it_does_not_know(linked: Linked, topic: str) -> None:
    linked.create_topic(topic)
    linked.create_link(topic)
    linked.produce(topic, ["record"])
    linked.await_mirrored(topic)
    linked.shell.ok("links", "pause", LINK)

    eventually(lambda: only_link(linked)["lag"] is None)
    assert only_link(linked)["state"] == "paused"


def test_a_topic_that_existed_before_is_a_conflict_until_it_is_deleted(
    linked: Linked, topic: str
) -> None:
    linked.create_topic(topic)
    linked.produce(topic, ["theirs"])
    own = NewTopic(topic, 1, 1)
    linked.target_admin.create_topics([own])[topic].result(SECONDS)
    linked.create_link(topic)
    eventually(lambda: linked.state(topic).get("state") == "conflict")

    assert "existed" in linked.state(topic)["reason"]
    assert only_link(linked)["conflict"] == 1
    refused = linked.shell.run("links", "pause", LINK, "--topic", topic)
    assert refused.returncode != 0
    assert "conflict" in refused.stderr
    linked.target_admin.delete_topics([topic])[topic].result(SECONDS)
    linked.await_mirrored(topic)
    assert linked.state(topic)["state"] == "active"


def test_a_conflict_ends_with_the_topic_of_the_source(linked: Linked, topic: str) -> None:
    linked.create_topic(topic)
    linked.target_admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(SECONDS)
    linked.create_link(topic)
    eventually(lambda: linked.state(topic).get("state") == "conflict")
    linked.source_admin.delete_topics([topic])[topic].result(SECONDS)

    eventually_equal(lambda: linked.state(topic), {})


def test_copied_groups_have_the_time_of_the_last_copy(linked: Linked, topic: str) -> None:
    group = f"readers-{topic}"
    linked.create_topic(topic)
    linked.produce(topic, [f"record-{number}" for number in range(10)])
    linked.create_link(topic, group)
    linked.await_mirrored(topic)
    commit_offset(linked.source, group, topic, 7)

    def copied() -> int | None:
        (found,) = linked.described()["groups"] or [{"copied_ms": None}]
        return found["copied_ms"]

    first = eventually(copied)
    eventually(lambda: copied() > first)
    assert [each["group"] for each in linked.described()["groups"]] == [group]
    assert group in linked.shell.ok("links", "describe", LINK)


def test_why_explains_a_mirror_and_a_stopped_mirror(linked: Linked, topic: str) -> None:
    linked.create_topic(topic)
    linked.create_link(topic)
    linked.produce(topic, ["old"])
    linked.await_mirrored(topic)

    def kinds() -> dict[str, list[str]]:
        done = linked.shell.run("why", "--topic", topic, "--seconds", "0.1", "--json")
        answers = json.loads(done.stdout)["answers"]
        return {each["subject"]: [why["kind"] for why in each["reasons"]] for each in answers}

    assert kinds()[f"topic {topic}"] == ["mirror-of-link"]
    linked.source_admin.delete_topics([topic])[topic].result(SECONDS)
    eventually(lambda: topic not in linked.source_admin.list_topics(timeout=SECONDS).topics)
    linked.create_topic(topic)
    eventually_equal(lambda: kinds()[f"topic {topic}"], ["mirror-stopped"])
    everything = linked.shell.run("why", "--seconds", "0.1")
    assert everything.returncode == 1
    assert "created again in the source" in everything.stdout


def test_doctor_and_why_name_a_link_whose_source_does_not_respond(
    linked: Linked, topic: str, source: BrokerProcess, target: BrokerProcess
) -> None:
    linked.create_topic(topic)
    linked.create_link(topic)
    linked.produce(topic, ["record"])
    linked.await_mirrored(topic)
    source.stop()
    target.stop()
    target.start()

    def examined(*words: str) -> str:
        return linked.shell.run(*words).stdout

    text = f"the source of link {LINK}, {linked.source}, has not responded"
    eventually(lambda: text in examined("doctor", linked.target))
    eventually(lambda: text in examined("why", "--seconds", "0.1"))
    source.start()
    linked.await_mirrored(topic)
    eventually(lambda: text not in examined("doctor", linked.target))


def test_metrics_have_the_states_lag_and_bytes_of_a_link(
    linked: Linked, topic: str, target: BrokerProcess
) -> None:
    linked.create_topic(topic)
    linked.produce(topic, [f"record-{number}" for number in range(30)])
    linked.create_link(topic)
    linked.await_mirrored(topic)

    def sample(name: str, **labels: str) -> float | None:
        with urlopen(f"http://{target.metrics_address}/metrics", timeout=SECONDS) as response:
            text = response.read().decode()
        wanted = {"link": LINK, **labels}
        return next(
            (
                each.value
                for family in text_string_to_metric_families(text)
                for each in family.samples
                if each.name == name and each.labels == wanted
            ),
            None,
        )

    eventually_equal(lambda: sample("barnabas_link_records_total"), 30.0)
    assert sample("barnabas_link_bytes_total") > 30 * len("record-0")
    assert sample("barnabas_link_partitions") == 1.0
    eventually_equal(lambda: sample("barnabas_link_lag_records"), 0.0)
    eventually_equal(lambda: sample("barnabas_link_failing_partitions"), 0.0)
    assert sample("barnabas_link_state", state="active") == 1.0
    assert sample("barnabas_link_mirrors", state="active") == 1.0
    linked.shell.ok("links", "pause", LINK)
    eventually_equal(lambda: sample("barnabas_link_state", state="paused"), 1.0)
    assert sample("barnabas_link_state", state="active") == 0.0


def test_settings_of_links_are_set_as_by_the_tools_of_kafka(linked: Linked) -> None:
    shell, link = linked.shell, "barnabas.link.byhand"
    where = ("broker", "default")
    for wrong in (f"{link}.group.sync=300", f"{link}.security.protokol=SSL", f"{link}=active"):
        refused = shell.run("configs", "set", *where, wrong)
        assert refused.returncode == 1
        assert "brokers have no key" in refused.stderr
    pairs = {"state": "paused", "group.sync.ms": "300", "bootstrap.servers": "127.0.0.1:9"}
    shell.ok("configs", "set", *where, *(f"{link}.{key}={value}" for key, value in pairs.items()))
    described = shell.json("links", "describe", "byhand")
    assert described["state"] == "paused"
    assert described["source"] == "127.0.0.1:9"
    shell.ok("configs", "unset", *where, *(f"{link}.{key}" for key in pairs))
    eventually(lambda: "there is no link" in shell.run("links", "describe", "byhand").stderr)


def test_a_request_that_replaces_all_configs_does_not_delete_links(
    linked: Linked, topic: str
) -> None:
    linked.create_topic(topic)
    linked.create_link(topic)
    linked.produce(topic, ["record"])
    linked.await_mirrored(topic)
    own = AlterableConfig(name="log.cleaner.backoff.ms", value="14000")
    resource = AlterConfigsResource(resource_type=BROKER, resource_name=ALL_BROKERS, configs=[own])
    raw = RawClient(linked.target)
    response = raw.ask(AlterConfigsRequest(resources=[resource], validate_only=False), 2)
    raw.close()

    (refused,) = response.responses
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert "barnabas links delete" in refused.error_message
    assert linked.state(topic)["state"] == "active"
