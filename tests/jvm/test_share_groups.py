"""Share groups on both brokers: names and counts of metrics, and Java's share consumer."""

from __future__ import annotations

import http.client
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

import barnabas
from barnabas import AcknowledgeType, NewTopic, TopicPartition
from barnabas.client.admin.share_groups import ShareOffset
from barnabas.metrics import names
from barnabas.metrics.catalogue import CATALOGUE
from barnabas.metrics.metrics_listener import exposition_name
from barnabas.metrics.registry import MetricKind
from barnabas.testing.broker_process import BrokerProcess
from barnabas.testing.free_ports import free_ports
from conformance.share_groups import SETTINGS, ShareGroup, read
from jvm.java import TIMEOUT_S, java_command
from jvm.jmx import Jmx, machine_with_jmx
from jvm.kafka_process import KafkaProcess
from selection import nightly_unless
from waiting import eventually_equal

pytestmark = pytest.mark.conformance
# Distributions with the number of their tags.
DISTRIBUTIONS = {
    names.SHARE_BATCH_MESSAGES: 3,
    names.SHARE_FETCH_LOCK_TIME: 3,
    names.SHARE_FETCH_LOCK_RATIO: 3,
    names.SHARE_ACQUIRE_TIME: 1,
    names.SHARE_FETCH_RATIO: 1,
    names.SHARE_PARTITION_LOAD_TIME: 0,
}
# Attribute of the MBean by name of the metric.
METRICS = {
    names.RECORD_ACKNOWLEDGEMENTS: "Count",
    names.DEAD_LETTER_RECORDS: "Count",
    names.DEAD_LETTER_PRODUCES: "Count",
    names.FAILED_DEAD_LETTER_PRODUCES: "Count",
    names.SHARE_LOCK_TIMEOUTS: "Count",
    names.SHARE_IN_FLIGHT_MESSAGES: "Value",
    names.SHARE_IN_FLIGHT_BATCHES: "Value",
    **dict.fromkeys(DISTRIBUTIONS, "Count"),
    names.SHARE_FETCH_REQUESTS: "Count",
    names.FAILED_SHARE_FETCH_REQUESTS: "Count",
    names.SHARE_ACKNOWLEDGE_REQUESTS: "Count",
    names.FAILED_SHARE_ACKNOWLEDGE_REQUESTS: "Count",
    names.SHARE_SESSIONS: "Value",
    names.SHARE_SESSION_PARTITIONS: "Value",
    names.SHARE_SESSION_EVICTIONS: "Count",
    names.DELAYED_SHARE_FETCH_EXPIRES: "Count",
}
Samples = dict[tuple[tuple[str, str], ...], float]


class Side(NamedTuple):
    """A broker, and a function that reads the samples of a metric, by their tags."""

    bootstrap: str
    read: Callable[[str], Samples]


@pytest.fixture(scope="module", params=nightly_unless("barnabas".__eq__, ["barnabas", "kafka"]))
def side(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Side]:
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "barnabas":
        settings = {**SETTINGS, "metrics.listener": "127.0.0.1:0"}
        with BrokerProcess(directory, settings) as broker:
            yield Side(broker.bootstrap, lambda name: scrape(broker.metrics_address, name))
        return
    (port,) = free_ports(1)
    kafka = KafkaProcess(directory, SETTINGS, machine=machine_with_jmx(port)).start()
    try:
        with Jmx(kafka, port) as jmx:
            yield Side(kafka.bootstrap, lambda name: read_mbeans(jmx, name))
    finally:
        kafka.kill()


def read_mbeans(jmx: Jmx, name: str) -> Samples:
    """Read the MBeans with this name and any other keys."""
    group, kind, last = name.split(":")
    found: Samples = {}
    for (bean, attribute), value in jmx.values(f"{group}:type={kind},name={last},*").items():
        if attribute == METRICS[name]:
            keys = dict(pair.split("=", 1) for pair in bean.split(":", 1)[1].split(","))
            del keys["type"], keys["name"]
            found[tuple(sorted(keys.items()))] = float(value)
    return found


def scrape(address: str, name: str) -> Samples:
    connection = http.client.HTTPConnection(address)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    kind = CATALOGUE[name].kind
    ends = {MetricKind.COUNTER: "_total", MetricKind.SUMMARY: "_count"}
    sample_name = exposition_name(name, kind) + ends.get(kind, "")
    return {
        tuple(sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == sample_name
    }


def make_group(side: Side) -> ShareGroup:
    """Create a group with a dead-letter topic."""
    enabled = {"errors.deadletterqueue.group.enable": "true"}
    with barnabas.Admin(side.bootstrap) as admin:
        admin.create_topics([NewTopic("dlq.metrics", 1, 1, enabled)])
    return ShareGroup(side.bootstrap, errors_deadletterqueue_topic_name="dlq.metrics")


def test_each_metric_has_the_same_tags_and_counts(side: Side) -> None:
    group = make_group(side)
    group.produce(b"accept", b"release", b"reject", b"reject")
    with group.consumer(is_explicit=True) as consumer:
        read(
            consumer,
            4,
            lambda r: consumer.acknowledge(r, AcknowledgeType[r.value.decode().upper()]),
        )
        consumer.commit_sync()
        of_group = (("group", group.name),)
        eventually_equal(lambda: side.read(names.DEAD_LETTER_RECORDS).get(of_group), 2)
        assert side.read(names.DEAD_LETTER_PRODUCES)[of_group] >= 1
        assert not side.read(names.FAILED_DEAD_LETTER_PRODUCES).get(of_group)
        counts = side.read(names.RECORD_ACKNOWLEDGEMENTS)
        assert [counts[("ackType", kind),] for kind in ("Accept", "Release", "Reject")] == [1, 1, 2]
        where = (*of_group, ("partition", "0"), ("topic", group.topic))
        assert side.read(names.SHARE_IN_FLIGHT_MESSAGES)[where] >= 1
        assert side.read(names.SHARE_IN_FLIGHT_BATCHES)[where] >= 1
        assert where in side.read(names.SHARE_LOCK_TIMEOUTS)
        tags_by_number = {0: (), 1: of_group, 3: where}
        for name, number in DISTRIBUTIONS.items():
            assert side.read(name)[tags_by_number[number]] >= 1, name
        assert side.read(names.SHARE_SESSIONS) == {(): 1}
        assert side.read(names.SHARE_SESSION_PARTITIONS) == {(): 1}
        read(consumer, 1, consumer.acknowledge)
    of_topic = (("topic", group.topic),)
    for name in (names.SHARE_FETCH_REQUESTS, names.SHARE_ACKNOWLEDGE_REQUESTS):
        found = side.read(name)
        assert found[of_topic] >= 1
        assert found[()] >= found[of_topic]
    for name in (names.FAILED_SHARE_FETCH_REQUESTS, names.FAILED_SHARE_ACKNOWLEDGE_REQUESTS):
        assert not side.read(name).get(of_topic)
    assert set(side.read(names.SHARE_SESSION_EVICTIONS)) == {()}
    assert set(side.read(names.DELAYED_SHARE_FETCH_EXPIRES)) == {()}


def test_javas_share_consumer_accepts_releases_rejects_and_renews(side: Side) -> None:
    group = ShareGroup(side.bootstrap)
    group.produce(b"accept", b"release", b"reject", b"renew")
    source = Path(__file__).with_name("ShareAcknowledger.java")
    words = [*java_command("kafka", source=source), "ShareAcknowledger"]
    done = subprocess.run(
        [*words, side.bootstrap, group.name, group.topic, "4"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        "accept 1",
        "reject 1",
        "release 1",
        "release 2",
        "renew 1",
        "renew 1",
    ]
    with barnabas.Admin(side.bootstrap) as admin:

        def lag() -> int | None:
            offsets = admin.describe_share_group_offsets([group.name])[group.name]
            assert isinstance(offsets, dict)
            found = offsets.get(TopicPartition(group.topic, 0))
            return found.lag if isinstance(found, ShareOffset) else None

        eventually_equal(lag, 0)
