"""Transaction metrics have the same names and counts as in Apache Kafka."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

import barnabas
from barnabas.client.facade import Client
from barnabas.metrics import names
from barnabas.metrics.catalogue import CATALOGUE
from barnabas.metrics.metrics_listener import exposition_name
from barnabas.metrics.registry import MetricKind
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.record.builder import BatchBuilder
from barnabas.testing.broker_process import BrokerProcess
from barnabas.testing.free_ports import free_ports
from conformance.raw_client import RawClient
from jvm.jmx import Jmx, machine_with_jmx
from jvm.kafka_process import KafkaProcess
from selection import nightly_unless
from waiting import eventually, eventually_equal

pytestmark = pytest.mark.conformance
SETTINGS = {"transaction.state.log.num.partitions": "3"}
# A producer id that no coordinator has assigned.
UNKNOWN_PRODUCER_ID = 987_654
# Attribute of the MBean by name of the metric. Yammer's metrics have the attributes Value or Count.
METRICS = {
    names.TRANSACTION_LOAD_TIME_AVG: "partition-load-time-avg",
    names.TRANSACTION_LOAD_TIME_MAX: "partition-load-time-max",
    names.GROUP_LOAD_TIME_AVG: "partition-load-time-avg",
    names.GROUP_LOAD_TIME_MAX: "partition-load-time-max",
    names.MARKERS_WITHOUT_LEADER: "Value",
    names.MARKER_LOG_APPEND_RETRIES: "Value",
    names.MARKER_CONNECTIONS: "connection-count",
    names.MARKER_CONNECTIONS_CREATED: "connection-creation-total",
    names.MARKER_REQUESTS: "request-total",
    names.MARKER_RESPONSES: "response-total",
    names.VERIFICATION_TIME: "Count",
    names.VERIFICATION_FAILURES: "Count",
    names.PRODUCER_IDS: "Value",
    names.LATE_TRANSACTIONS: "Value",
}


class Side(NamedTuple):
    """A broker, and a function that reads a metric by its name in Barnabas."""

    bootstrap: str
    read: Callable[[str], float]


def mbean(name: str) -> tuple[str, str]:
    """Return the canonical name of the MBean, and its attribute."""
    group, kind, last = name.split(":")
    attribute = METRICS[name]
    if attribute == last:
        return f"{group}:type={kind}", attribute
    return f"{group}:name={last},type={kind}", attribute


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

            def read(name: str) -> float:
                bean, attribute = mbean(name)
                values = jmx.values(bean)
                ((_, value),) = [item for item in values.items() if item[0][1] == attribute]
                return float(value)

            yield Side(kafka.bootstrap, read)
    finally:
        kafka.kill()


def scrape(address: str, name: str) -> float:
    connection = http.client.HTTPConnection(address)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    kind = CATALOGUE[name].kind
    suffix = {MetricKind.SUMMARY: "_count", MetricKind.COUNTER: "_total"}.get(kind, "")
    sample_name = exposition_name(name, kind) + suffix
    found = [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == sample_name
    ]
    (value,) = found
    return value


def transact(side: Side) -> None:
    """Commit one transaction."""
    with barnabas.Producer(side.bootstrap, transactional_id="id") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"x")
        producer.commit_transaction()


def produce_unknown(side: Side) -> int:
    """Send a transactional batch of an unknown producer, and return the error."""
    builder = BatchBuilder(
        producer_id=UNKNOWN_PRODUCER_ID, producer_epoch=0, base_sequence=0, transactional=True
    )
    builder.append(0, None, b"refused")
    data = PartitionProduceData(index=0, records=bytes(builder.build()))
    raw = RawClient(side.bootstrap)
    response = raw.ask(
        ProduceRequest(
            transactional_id="no-such",
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name="t", partition_data=[data])],
        ),
        11,
    )
    raw.close()
    (topic,) = response.responses
    return int(topic.partition_responses[0].error_code)


def test_each_metric_exists_and_has_the_same_count(side: Side) -> None:
    with Client(side.bootstrap) as client:
        client.create_topic("t", partitions=1, replication_factor=1)
    before = {name: side.read(name) for name in METRICS}
    assert before[names.VERIFICATION_TIME] == before[names.VERIFICATION_FAILURES] == 0
    transact(side)
    assert side.read(names.VERIFICATION_TIME) >= 1
    assert side.read(names.PRODUCER_IDS) == 1
    eventually(lambda: side.read(names.TRANSACTION_LOAD_TIME_MAX) >= 0)
    for idle in (
        names.MARKERS_WITHOUT_LEADER,
        names.MARKER_LOG_APPEND_RETRIES,
        names.LATE_TRANSACTIONS,
    ):
        eventually_equal(lambda name=idle: side.read(name), 0)
    verified, refused = side.read(names.VERIFICATION_TIME), side.read(names.VERIFICATION_FAILURES)
    assert produce_unknown(side) != 0
    assert side.read(names.VERIFICATION_TIME) == verified + 1
    assert side.read(names.VERIFICATION_FAILURES) == refused + 1
