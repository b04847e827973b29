"""Three brokers under load, scraped by a real Prometheus: for the dashboard and its picture.

A stand-in for a driver of Spark serves the metrics of a query. Its batches are made up.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.spark.metrics import QueryMetrics, QueryMetricsServer
from barnabas.testing.cluster_process import ClusterProcess, NodeProcess
from barnabas.testing.free_ports import HOST, free_ports
from deploy.prometheus_server import PrometheusServer
from unit.spark.query_batches import batch

SETTINGS = {"default.replication.factor": "3", "min.insync.replicas": "2"}
RECORD = b"x" * 500


class Observed(NamedTuple):
    """The cluster, Prometheus and the addresses that a test uses."""

    cluster: ClusterProcess
    prometheus: PrometheusServer

    def active_controller(self) -> NodeProcess:
        """The node that is the active controller."""
        (found,) = self.prometheus.query(
            "kafka_controller_kafkacontroller_activecontrollercount == 1"
        )
        address = found["metric"]["instance"]
        (node,) = (
            each for each in self.cluster.brokers if each.settings["metrics.listener"] == address
        )
        return node

    def write_burst(self, seconds: int) -> None:
        """Write 1000 records a second to one partition, and read with another group member."""
        pause = threading.Event()
        producer = Producer(_client(self.cluster.bootstrap, "import"))
        consumer = _subscribed(self.cluster.bootstrap)
        for _ in range(10 * seconds):
            for _ in range(100):
                producer.produce("orders", RECORD, partition=0)
            producer.poll(0)
            consumer.consume(12, 0)
            pause.wait(0.1)
        producer.flush(60)
        consumer.close()


@contextmanager
def observed_cluster(directory: Path) -> Iterator[Observed]:
    """Start brokers, Prometheus and clients; all end with the block."""
    cluster = ClusterProcess(3, directory=directory / "cluster", settings=SETTINGS)
    targets = [f"{HOST}:{port}" for port in free_ports(3)]
    for node, target in zip(cluster.brokers, targets, strict=True):
        node.settings["metrics.listener"] = target
    (directory / "prometheus").mkdir()
    stopped = threading.Event()
    metrics = QueryMetrics()
    with (
        cluster,
        QueryMetricsServer(metrics, HOST, 0) as driver,
        PrometheusServer(directory / "prometheus", targets, driver.address) as prometheus,
    ):
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topics = [NewTopic(name, 3, 3) for name in ("orders", "payments")]
        for done in admin.create_topics(topics).values():
            done.result(60)
        loads = [
            threading.Thread(target=_load, args=(cluster.bootstrap, stopped)),
            threading.Thread(target=_read, args=(cluster.bootstrap, stopped)),
            threading.Thread(target=_run_query, args=(metrics, stopped)),
        ]
        for load in loads:
            load.start()
        try:
            yield Observed(cluster, prometheus)
        finally:
            stopped.set()
            for load in loads:
                load.join()


def _client(bootstrap: str, client_id: str) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap, "client.id": client_id}


def _load(bootstrap: str, stopped: threading.Event) -> None:
    """Write 200 records a second, and request a topic that does not exist."""
    producer = Producer({**_client(bootstrap, "shop"), "linger.ms": 20})
    settings = {**_client(bootstrap, "lister"), "allow.auto.create.topics": False}
    consumer = Consumer({**settings, "group.id": "topics-lister"})
    while not stopped.wait(0.1):
        for number in range(20):
            producer.produce("payments" if number % 4 == 0 else "orders", RECORD)
        producer.poll(0)
        # Without a quorum, or on the way to another broker, there is no answer.
        with suppress(KafkaException):
            consumer.list_topics("not-there", 2)
    producer.flush(60)
    consumer.close()


def _read(bootstrap: str, stopped: threading.Event) -> None:
    """Read more slowly than the others write, so that there is a lag."""
    consumer = _subscribed(bootstrap)
    while not stopped.wait(0.1):
        consumer.consume(12, 1)
    consumer.close()


def _subscribed(bootstrap: str) -> Consumer:
    settings = {"group.id": "billing", "auto.offset.reset": "earliest"}
    settings |= {"auto.commit.interval.ms": "500"}
    consumer = Consumer(settings | _client(bootstrap, "billing"))
    consumer.subscribe(["orders"])
    return consumer


def _run_query(metrics: QueryMetrics, stopped: threading.Event) -> None:
    """Report a batch per second."""
    metrics.on_started("copy")
    number = 0
    while not stopped.wait(1):
        number += 1
        wave = number % 10
        ends = {"endOffset": {"orders": {"0": 0}}, "latestOffset": {"orders": {"0": 20 * wave}}}
        metrics.on_progress(
            "copy",
            batch(
                batchId=number,
                timestamp=datetime.now(UTC).isoformat(),
                numInputRows=150 + 10 * wave,
                batchDuration=400 + 20 * wave,
                durationMs={"addBatch": 250 + 20 * wave, "queryPlanning": 60, "walCommit": 40},
                sources=[ends],
            ),
        )
    metrics.on_ended("copy", failed=False)
