"""Brokers, topics and groups for tests of share consumers."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import barnabas
from barnabas import ShareConsumer, ShareRecord
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.testing.broker_process import BrokerProcess
from jvm.kafka_process import KafkaProcess
from waiting import PATIENCE_S

SETTINGS = {
    "group.share.heartbeat.interval.ms": "100",
    "group.share.min.heartbeat.interval.ms": "100",
    # Compute assignments immediately.
    "group.share.min.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "1",
    "auto.create.topics.enable": "false",
}
_names = itertools.count(1)


def start_share_broker(kind: str, directory: Any) -> BrokerProcess | KafkaProcess:
    """Return a started broker."""
    if kind == "kafka":
        return KafkaProcess(directory, SETTINGS).start()
    return BrokerProcess(directory, SETTINGS).start()


class ShareGroup:
    """A topic with records, and a share group that reads it from the beginning."""

    def __init__(
        self, bootstrap: str, partitions: int = 1, replicas: int = 1, **group_configs: str
    ) -> None:
        self.bootstrap = bootstrap
        self.name = f"share-{os.getpid()}-{next(_names)}"
        self.topic = self.name
        configs = {"share.auto.offset.reset": "earliest"}
        configs |= {key.replace("_", "."): value for key, value in group_configs.items()}
        with barnabas.Client(bootstrap) as client:
            resource = ConfigResource(ResourceType.GROUP, self.name)
            client.admin.alter_configs(resource, configs)
            # Kafka's coordinator has the configs before it can assign a later topic.
            client.create_topic(self.topic, partitions, replicas)

    def produce(self, *values: bytes, partition: int = 0, batch: bool = False) -> None:
        """Write records, each in a separate batch or all in one batch."""
        linger_ms = 1000 if batch else 0
        with barnabas.Producer(self.bootstrap, linger_ms=linger_ms) as producer:
            for value in values:
                producer.send(self.topic, value, partition=partition)
                if not batch:
                    producer.flush()

    def consumer(self, *, is_explicit: bool = False, **config: Any) -> ShareConsumer:
        """Return a member that is subscribed to the topic."""
        # A consumer that closes waits for its pending fetches.
        config.setdefault("fetch_max_wait_ms", 50)
        if is_explicit:
            config["share_acknowledgement_mode"] = "explicit"
        return ShareConsumer(
            self.topic, bootstrap_servers=self.bootstrap, group_id=self.name, **config
        )


def read(
    consumer: ShareConsumer,
    count: int,
    handle: Callable[[ShareRecord], object] = lambda _record: None,
) -> list[ShareRecord]:
    """Poll until `count` records have arrived, and pass each of them to `handle`."""
    found: list[ShareRecord] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, found
        for record in consumer.poll(0.5):
            found.append(record)
            handle(record)
    return found


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def share_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess | KafkaProcess]:
    """A started broker of each kind that serves share groups."""
    process = start_share_broker(request.param, tmp_path_factory.mktemp(request.param))
    try:
        yield process
    finally:
        process.kill()
