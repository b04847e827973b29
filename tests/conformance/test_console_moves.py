"""The page of reassignments while a replica moves between two brokers."""

from __future__ import annotations

import re

import pytest

from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.facade import Client
from barnabas.console.settings import ConsoleSettings
from barnabas.testing.cluster_process import ClusterProcess
from console_in_process import ConsoleInProcess
from waiting import eventually

pytestmark = pytest.mark.conformance

TOPIC = "moves"
# The copy takes 20 s at this rate; the test ends it earlier.
RECORDS, RECORD_BYTES, BYTES_PER_SECOND = 20, 100_000, 100_000
RATE = "follower.replication.throttled.rate"
REPLICAS = "follower.replication.throttled.replicas"


def test_a_replica_that_moves_is_shown_with_its_progress_until_it_has_moved() -> None:
    with ClusterProcess(2) as cluster, Client(cluster.bootstrap) as client:
        client.create_topic(TOPIC, 1, 1, {REPLICAS: "*"})
        with client.producer() as producer:
            for _ in range(RECORDS):
                producer.send(TOPIC, b"x" * RECORD_BYTES)
        source = client.describe_topics([TOPIC])[TOPIC].partitions[0].leader
        target = 3 - source
        broker = ConfigResource(ResourceType.BROKER, str(target))
        client.admin.alter_configs(broker, {RATE: str(BYTES_PER_SECOND)})
        settings = ConsoleSettings(cluster.bootstrap, {}, allow_changes=True, interval=3600.0)
        with ConsoleInProcess(settings) as console:
            console.log_in()
            move = {"topic": TOPIC, "partition": 0, "brokers": target}
            shown = console.preview("/reassignments/start", **move).text
            assert f"Move the replicas of {TOPIC}-0?" in shown
            assert not client.admin.list_reassignments()
            console.change("/reassignments/start", **move, confirmed=1)

            def copied() -> int:
                found = re.search(r"</progress> (\d+) %", console.get("/reassignments").text)
                return int(found[1]) if found else -1

            eventually(lambda: 0 < copied() < 100)
            canceled = console.preview("/reassignments/cancel", topic=TOPIC, partition=0).text
            assert re.search(rf"<td[^>]*>{source}</td></tr>", canceled), canceled
            client.admin.alter_configs(broker, {RATE: None})
            eventually(lambda: "no replicas move" in console.get("/reassignments").text)
        assert client.describe_topics([TOPIC])[TOPIC].partitions[0].replicas == (target,)
