"""Replication throttles (KIP-73)."""

from __future__ import annotations

import pytest

from barnabas.metrics import names
from barnabas.metrics.registry import MetricsRegistry
from barnabas.protocol.errors import ErrorCode
from barnabas.replication.replica_gauges import publish_replica_metrics
from barnabas.replication.replication_throttle import ReplicationThrottle
from barnabas.sim.clock import SimClock, SimScheduler
from unit.replication.following_broker import FollowingBroker, data, records
from unit.replication.replicated_cluster import (
    PARTITION,
    TOPIC,
    ReplicatedCluster,
    TopicPartition,
)

LEADER = "leader_replication_throttled_replicas"
FOLLOWER = "follower_replication_throttled_replicas"
LARGE = b"x" * 20_000


@pytest.fixture
def scheduler() -> SimScheduler:
    return SimScheduler()


@pytest.fixture
def throttle(scheduler: SimScheduler) -> ReplicationThrottle:
    return ReplicationThrottle(SimClock(scheduler), 11, 1_000.0)


def test_the_rate_covers_the_last_windows(throttle, scheduler) -> None:
    """Bytes divided by the time since the oldest window began, which is at least one window."""
    throttle.bytes_per_second = 100
    throttle.record(80)
    assert (throttle.byte_rate(), throttle.is_exceeded) == (80.0, False)
    throttle.record(40)
    assert throttle.is_exceeded
    scheduler.run_for(2_000)
    assert throttle.byte_rate() == 60.0
    assert not throttle.is_exceeded
    scheduler.run_for(10_000)
    assert throttle.byte_rate() == 0.0


def test_the_list_of_throttled_replicas_is_parsed(throttle) -> None:
    """A list of PARTITION:BROKER, all replicas, or none."""
    throttle.set_replicas("t", ["0:1", "1:2", "2:1"], 1)
    assert [throttle.is_throttled(TopicPartition("t", index)) for index in range(3)] == [
        True, False, True,
    ]  # fmt: skip
    assert throttle.is_active
    throttle.set_replicas("t", ["*"], 1)
    assert throttle.is_throttled(TopicPartition("t", 1))
    assert not throttle.is_throttled(TopicPartition("u", 1))
    for nothing in ([], ["none"], ["0:2"]):
        throttle.set_replicas("t", nothing, 1)
        assert not throttle.is_active


def out_of_sync() -> ReplicatedCluster:
    """Broker 2 follows and is not in the ISR."""
    cluster = ReplicatedCluster(2)
    cluster.make_topic(replicas=(1, 2), isr=(1,))
    assert cluster.until(cluster.in_sync)
    return cluster


def test_a_leader_over_its_rate_sends_nothing_to_followers_outside_the_isr() -> None:
    """Throttled partitions are omitted; bytes are counted when the response is sent."""
    cluster = ReplicatedCluster(2, replica_fetch_max_bytes=10_000)
    cluster.controller.configure(**{LEADER: "*"})
    cluster[1].manager.throttles.leader.bytes_per_second = 5_000
    cluster.kill(2)
    cluster.make_topic(replicas=(1, 2), isr=(1,))
    for _ in range(5):
        cluster.leader().produce(LARGE, acks=1)
    begin = cluster.world.scheduler.now_ms
    cluster.restart(2)
    assert cluster.until(lambda: cluster[2].log().log_end_offset == 5, 120_000)
    elapsed_s = (cluster.world.scheduler.now_ms - begin) / 1_000
    throttle = cluster[1].manager.throttles.leader
    assert throttle.byte_rate() > 0
    # The first answer is more than the rate allows and leaves at once; the rest has to wait.
    assert 2 < elapsed_s < 60
    assert cluster.until(cluster.in_sync)


def test_members_of_the_isr_are_exempt_on_the_leader() -> None:
    cluster = out_of_sync()
    cluster.controller.configure(**{LEADER: "*"})
    cluster[1].manager.throttles.leader.bytes_per_second = 1
    cluster.run_for(10)
    for _ in range(5):
        assert cluster.produce(LARGE, timeout_ms=2_000).error is ErrorCode.NONE
    assert cluster[1].manager.throttles.leader.is_exceeded


def test_a_follower_over_its_rate_omits_throttled_partitions() -> None:
    """It omits lagging throttled partitions, and fetches the others."""
    broker = FollowingBroker(partitions=2)
    broker.cluster.controller.configure(**{FOLLOWER: "0:1"})
    broker.node.manager.throttles.follower.bytes_per_second = 100
    broker.run_for(5)
    held, free = broker.key(0), broker.key(1)
    broker.leader.give(
        {
            held: data(records(LARGE), high_watermark=9),
            free: data(records(LARGE), high_watermark=9),
        },
        session_id=0,
    )
    assert broker.node.manager.throttles.follower.byte_rate() == len(records(LARGE))
    assert list(broker.asked()) == [free]
    broker.run_for(12_000)
    broker.leader.give({free: data(high_watermark=9)}, session_id=0)
    assert set(broker.asked()) == {held, free}


def test_a_partition_without_lag_is_exempt_on_the_follower() -> None:
    broker = FollowingBroker()
    broker.cluster.controller.configure(**{FOLLOWER: "*"})
    broker.node.manager.throttles.follower.bytes_per_second = 100
    broker.run_for(5)
    broker.leader.give({PARTITION: data(records(LARGE), high_watermark=1)}, session_id=0)
    assert broker.node.manager.throttles.follower.is_exceeded
    assert list(broker.asked()) == [PARTITION]


def test_with_all_partitions_throttled_the_fetcher_waits_for_the_backoff() -> None:
    broker = FollowingBroker()
    broker.cluster.controller.configure(**{FOLLOWER: "*"})
    broker.node.manager.throttles.follower.bytes_per_second = 100
    broker.run_for(5)
    broker.leader.give({PARTITION: data(records(LARGE), high_watermark=9)}, session_id=0)
    assert broker.leader.waiting is None
    events = broker.cluster.world.scheduler.events_run
    broker.run_for(5_000)
    assert broker.cluster.world.scheduler.events_run - events < 100
    broker.run_for(10_000)
    assert list(broker.asked()) == [PARTITION]


def test_only_bytes_of_throttled_partitions_are_counted() -> None:
    cluster = out_of_sync()
    cluster.produce(LARGE)
    assert cluster[1].manager.throttles.leader.byte_rate() == 0.0
    assert cluster[2].manager.throttles.follower.byte_rate() == 0.0


def test_reassignment_traffic_is_counted_separately() -> None:
    """In both directions, while a replica is being added."""
    cluster = ReplicatedCluster(2)
    cluster.make_topic(replicas=(1,))
    cluster.produce(LARGE)
    cluster.controller.change(replicas=[1, 2], adding_replicas=[2])
    assert cluster.until(lambda: PARTITION in cluster[2].logs.logs)
    assert cluster.until(cluster.in_sync)
    size = cluster[1].log().size
    assert cluster[1].manager.metrics.reassignment_bytes_out == size
    assert cluster[2].manager.metrics.reassignment_bytes_in == size
    registry = MetricsRegistry(cluster[1].host.clock)
    publish_replica_metrics(cluster[1].manager, registry)
    seen = {family.name: list(family.samples) for family in registry.families()}
    assert seen[names.REASSIGNING_PARTITIONS] == [((), 1)]
    assert seen[names.REASSIGNMENT_BYTES_OUT] == [((), size)]
    assert PARTITION.topic == TOPIC
