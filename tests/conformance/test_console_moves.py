"""The page of reassignments while a replica moves between two brokers."""

from __future__ import annotations

import re

import pytest

from barnabas.cli.partitions.moving import broker_limits
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.facade import Client
from barnabas.console.settings import ConsoleSettings
from barnabas.testing.cluster_process import ClusterProcess
from console_in_process import ConsoleInProcess
from waiting import eventually

pytestmark = pytest.mark.conformance

TOPIC = "moves"
# The copy takes minutes at this rate; the test ends it earlier.
RECORDS, RECORD_BYTES, BYTES_PER_SECOND = 40, 100_000, 20_000
LIMIT_SHOWN = "19.5 KiB/s"
RATE = "follower.replication.throttled.rate"
REPLICAS = "follower.replication.throttled.replicas"


def rate_of(client: Client, broker: int) -> int | None:
    """The limit of moves to a broker; None for no limit."""
    return broker_limits(client, [broker])[broker]


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
            with_limit = console.get("/reassignments/plan", plan=1)
            assert "wait until no replicas move" in with_limit.text
            canceled = console.preview("/reassignments/cancel", topic=TOPIC, partition=0).text
            assert re.search(rf"<td[^>]*>{source}</td>\s*</tr>", canceled), canceled
            limit = {"throttle": f"{BYTES_PER_SECOND // 2}"}
            shown = console.preview("/reassignments/limit", **limit).text
            assert re.search(rf">{target}</t[dh]>\s*<td[^>]*>{LIMIT_SHOWN}</td>", shown), shown
            done = console.change("/reassignments/limit", **limit, confirmed=1)
            assert "limited 1 move to" in done.text
            assert rate_of(client, target) == BYTES_PER_SECOND // 2
            refused = console.change("/reassignments/limit", throttle="fast").text
            assert "write bytes per second and broker" in refused
            assert limit["throttle"] in console.get("/audit").text
            console.change("/reassignments/limit", confirmed=1)
            assert rate_of(client, target) is None
            eventually(lambda: "No replicas move" in console.get("/reassignments").text)
        assert client.describe_topics([TOPIC])[TOPIC].partitions[0].replicas == (target,)


def test_a_broker_is_emptied_by_a_plan_with_a_limit_whose_throttles_are_removed() -> None:
    with ClusterProcess(2) as cluster, Client(cluster.bootstrap) as client:
        client.create_topic(TOPIC, 4, 1)
        with client.producer() as producer:
            for number in range(8):
                producer.send(TOPIC, b"x" * RECORD_BYTES, partition=number % 4)
        settings = ConsoleSettings(cluster.bootstrap, {}, allow_changes=True, interval=3600.0)
        with ConsoleInProcess(settings) as console:
            console.log_in()
            used = {"topics": TOPIC, "use": 1}
            plan = console.get("/reassignments/plan", plan=1, **used).text
            assert re.search(r"Bytes to copy</dt><dd>(39\d|4\d\d) KiB", plan), plan
            [specs] = re.findall(r'name="specs" value="([^"]+)"', plan)
            moves = {"specs": specs, "throttle": "1GB"}
            assert len(specs.split()) == 2
            assert "954 MiB a second" in console.preview("/reassignments/start", **moves).text
            done = console.change("/reassignments/start", **moves, confirmed=1)
            assert "began to move 2 partitions" in done.text
            eventually(lambda: "No replicas move" in console.get("/reassignments").text)
            left = console.preview("/reassignments/throttles").text
            assert re.search(f">{TOPIC}</t[dh]>", left)
            console.change("/reassignments/throttles", confirmed=1)
            assert "Nothing changes" in console.preview("/reassignments/throttles").text
        partitions = client.describe_topics([TOPIC])[TOPIC].partitions
        assert {each.replicas for each in partitions.values()} == {(1,)}
