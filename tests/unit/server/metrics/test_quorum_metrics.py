"""The metadata quorum's metrics, on leader, follower and observer."""

from __future__ import annotations

import pytest

from barnabas.metrics import names
from barnabas.metrics.measurements import SampledValues
from barnabas.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from unit.server.metrics.quorum_metrics import metrics
from unit.server.simulated_broker import SimulatedBroker
from unit.server.simulated_cluster import SimulatedCluster, three_nodes

# Metrics of Apache Kafka 4.4 in JMX, without those of its selector and of authentication.
KAFKAS = {
    "append-records-rate", "commit-latency-avg", "commit-latency-max", "current-epoch",
    "current-leader", "current-state", "current-vote", "current-vote-directory-id",
    "election-latency-avg", "election-latency-max", "fetch-records-rate", "high-watermark",
    "log-end-epoch", "log-end-offset", "number-of-observers", "number-of-voters",
    "number-unknown-voter-connections", "poll-idle-ratio-avg", "uncommitted-voter-change",
}  # fmt: skip


def test_all_quorum_metrics_of_kafka_exist() -> None:
    ours = {
        name.rpartition(":")[2]
        for name in vars(names).values()
        if isinstance(name, str) and ":raft-metrics:" in name
    }
    assert ours == KAFKAS


def test_leader_and_followers_report_their_role_and_activity() -> None:
    cluster = three_nodes()
    active = cluster.active
    leader = metrics(cluster.nodes[active])
    assert leader["current-leader"] == leader["current-vote"] or leader["current-vote"] == -1
    assert leader["current-state leader"] == 1
    assert (leader["number-of-voters"], leader["number-of-observers"]) == (3, 0)
    assert leader["uncommitted-voter-change"] == leader["number-unknown-voter-connections"] == 0
    assert leader["append-records-rate"] > 0
    assert 0 < leader["commit-latency-avg"] <= leader["commit-latency-max"]
    assert leader["election-latency-avg"] > 0
    assert leader["log-end-epoch"] == leader["current-epoch"]
    for node_id in {1, 2, 3} - {active}:
        follower = metrics(cluster.nodes[node_id])
        assert follower["current-leader"] == active
        assert follower["current-state follower"] == 1
        assert follower["fetch-records-rate"] > 0
        assert follower["append-records-rate"] == 0
        assert "number-of-observers" not in follower
        assert follower["connection-count"] >= 1
        assert follower["request-total"] >= follower["response-total"] > 0
        assert 0 <= follower["poll-idle-ratio-avg"] <= 1


def test_a_broker_without_controller_role_is_an_observer() -> None:
    cluster = SimulatedCluster({1: "broker", 101: "controller"}).start()
    assert metrics(cluster.nodes[1])["current-state observer"] == 1
    cluster.until(lambda: metrics(cluster.nodes[101])["number-of-observers"] == 1)


def test_a_single_node_leads_without_channels() -> None:
    found = metrics(SimulatedBroker().node)
    assert found["current-state leader"] == 1
    assert found["connection-count"] == found["request-total"] == 0


def test_old_samples_are_removed() -> None:
    values = SampledValues()
    assert values.average(0) is None
    values.record(10, 0)
    values.record(20, 1_000)
    values.record(3, 31_000)
    assert values.average(31_000) == pytest.approx(11)
    assert values.maximum(31_000) == 20
    assert values.rate(33_000) == pytest.approx(1.0)
    assert values.maximum(61_000) == 3
    assert values.average(200_000) is None
    assert values.rate(200_000) == 0


def test_fetchers_are_labeled_by_their_source() -> None:
    cluster = three_nodes()
    topic = CreatableTopic(
        name="t", num_partitions=9, replication_factor=3, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    assert cluster.ask(1, request, 7).topics[0].error_code == 0
    cluster.world.run_for(1_000)
    shown = {
        tags
        for family in cluster.nodes[1].observation.registry.families()
        if family.name == names.FETCHER_REQUESTS
        for tags, _ in family.samples
    }
    assert shown == {
        (
            ("clientId", f"ReplicaFetcherThread-0-{leader}"),
            ("brokerHost", f"node-{leader}"),
            ("brokerPort", "9092"),
        )
        for leader in (2, 3)
    }
