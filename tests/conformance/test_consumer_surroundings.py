"""Features of a consumer: replicas in its rack, interceptors, metrics, lag, rejoining."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import barnabas
from barnabas import CommittedOffset, ConsumerRecords, TopicPartition
from barnabas.client.admin.topics import NewTopic
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.testing.broker_process import BrokerProcess
from barnabas.testing.cluster_process import ClusterProcess, NodeProcess
from conformance.client_brokers import broker
from conformance.polling import read
from conformance.raw_client import RawClient
from jvm.kafka_node import KafkaNode
from jvm.kafka_process import KafkaProcess
from waiting import eventually

pytestmark = pytest.mark.conformance
__all__ = ["broker"]

# Longer than a fetch waits at a broker.
LONGER_THAN_A_FETCH_S = 1.0


def write(bootstrap: str, topic: str, count: int) -> None:
    with barnabas.Producer(bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=0)


def high_watermark(address: str, partition: TopicPartition) -> int:
    """Return the high watermark in a fetch response of a replica."""
    fetched = FetchPartition(partition=partition.partition, fetch_offset=0, partition_max_bytes=1)
    topic = FetchTopic(topic=partition.topic, partitions=[fetched])
    raw = RawClient(address)
    response: Any = raw.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic]), 11)
    raw.close()
    (found,) = response.responses[0].partitions
    offset: int = found.high_watermark
    return offset


@pytest.fixture
def topic(broker: BrokerProcess | KafkaProcess) -> str:
    """A topic of one partition with ten records."""
    name = f"around-{uuid.uuid4().hex[:8]}"
    with barnabas.Client(broker.bootstrap) as client:
        client.create_topic(name, partitions=1, replication_factor=1)
    write(broker.bootstrap, name, 10)
    return name


@pytest.fixture(params=["barnabas", "kafka"])
def racks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ClusterProcess]:
    """Two brokers in two racks, whose clients may read from followers."""
    kind = KafkaNode if request.param == "kafka" else NodeProcess
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    settings = {"replica.selector.class": selector, "broker.session.timeout.ms": "60000"}
    cluster = ClusterProcess(2, 1, directory=tmp_path, settings=settings, node_type=kind)
    for node in cluster.brokers:
        node.settings["broker.rack"] = f"rack-{node.node_id}"
    with cluster:
        yield cluster


def test_a_consumer_reads_from_the_replica_in_its_rack(racks: ClusterProcess) -> None:
    leader, follower = 1, 2
    with barnabas.Client(racks.bootstrap) as client:
        new = NewTopic("near", assignments={0: [leader, follower]})
        assert client.create_topics([new]) == {"near": None}
    write(racks.bootstrap, "near", 10)
    partition = TopicPartition("near", 0)
    with barnabas.Consumer(
        bootstrap_servers=racks.node(follower).address,
        client_rack=f"rack-{follower}",
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.assign([partition])
        assert len(read(10, consumer)) == 10

        def reads_from_the_follower() -> bool:
            assert not consumer.poll(0.1)
            return follower in consumer._core.fetcher.session_ids

        eventually(reads_from_the_follower)
        # Wait until no fetch at the leader is pending.
        consumer.pause(partition)
        assert not consumer.poll(LONGER_THAN_A_FETCH_S)
        write(racks.bootstrap, "near", 5)
        follower_address = racks.node(follower).address
        # The follower learns the new high watermark a little later.
        eventually(lambda: high_watermark(follower_address, partition) == 15)
        assert not consumer.poll(LONGER_THAN_A_FETCH_S)
        racks.node(leader).pause()
        try:
            consumer.resume(partition)
            assert read(5, consumer) == [b"0", b"1", b"2", b"3", b"4"]
        finally:
            racks.node(leader).resume()


class RecordingInterceptor:
    """An interceptor that records its calls."""

    def __init__(self) -> None:
        self.seen = 0
        self.committed: list[dict[TopicPartition, int]] = []
        self.closed = False

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        self.seen += len(records)
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        self.committed.append({tp: found.offset for tp, found in offsets.items()})

    def close(self) -> None:
        self.closed = True


class FailingInterceptor(RecordingInterceptor):
    """An interceptor that fails, which is logged and changes nothing."""

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        raise ValueError("broken")


def test_interceptors_get_records_commits_and_close(
    broker: BrokerProcess | KafkaProcess, topic: str
) -> None:
    recording = RecordingInterceptor()
    with barnabas.Consumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        interceptors=[FailingInterceptor(), recording],
    ) as consumer:
        assert len(read(10, consumer)) == 10
        consumer.commit()
        assert recording.committed == [{TopicPartition(topic, 0): 10}]
        assert not recording.closed
    assert recording.seen == 10
    assert recording.closed


def test_metrics_contain_the_lag_of_the_consumer(
    broker: BrokerProcess | KafkaProcess, topic: str
) -> None:
    partition = TopicPartition(topic, 0)
    with barnabas.Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", max_poll_records=4
    ) as consumer:
        consumer.assign([partition])
        assert len(read(4, consumer)) == 4
        assert consumer.current_lag(partition) == 6
        metrics = consumer.metrics()
        fetching = metrics["consumer-fetch-manager-metrics"]
        assert fetching["records-consumed-total"] == 4
        assert fetching["records-lag-max"] == 6
        assert fetching["fetch-total"] >= 1
        assert fetching["fetch-latency-max"] >= fetching["fetch-latency-avg"] > 0
        consumer.poll()
        assert 0 <= consumer.metrics()["consumer-metrics"]["poll-idle-ratio-avg"] <= 1


def test_a_member_joins_again_after_enforce_rebalance(
    broker: BrokerProcess | KafkaProcess, topic: str
) -> None:
    with barnabas.Consumer(
        topic, bootstrap_servers=broker.bootstrap, group_id=topic, auto_offset_reset="earliest"
    ) as consumer:
        assert len(read(10, consumer)) == 10
        before = consumer.group_metadata().generation_id
        consumer.enforce_rebalance("requested by a test")

        def has_rejoined() -> bool:
            consumer.poll(0.1)
            # The generation is known before the assignment.
            is_new = consumer.group_metadata().generation_id > before
            return is_new and consumer.assignment() == {TopicPartition(topic, 0)}

        eventually(has_rejoined)
