"""Unchanged partitions add no cost to a fetch session, and behave the same (KIP-227)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.replication.partition.partition import Partition
from barnabas.storage.topic_partition import TopicPartition
from unit.replication.replicated_cluster import PARTITION, ReplicatedCluster

if TYPE_CHECKING:
    from collections.abc import Iterator

FETCH = 1
MANY = 200
LAG_MS = 2_000
# A fetch waits for 500 ms; beside those that are activated 64 are looked at.
SWEPT = 64


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[TopicPartition]]:
    """Return how often each partition was read."""
    counts: Counter[TopicPartition] = Counter()
    read = Partition.read

    def counting(partition: Partition, *arguments: object) -> object:
        counts[partition.topic_partition] += 1
        return read(partition, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Partition, "read", counting)
    return counts


def cluster_of(partitions: int, **settings: object) -> ReplicatedCluster:
    cluster = ReplicatedCluster(replica_lag_time_max_ms=LAG_MS, **settings)
    cluster.make_topic(partitions=partitions)
    cluster.run_for(3_000)
    return cluster


def test_idle_partitions_are_not_read_for_records_of_another_partition(
    reads: Counter[TopicPartition],
) -> None:
    cluster = cluster_of(MANY)
    reads.clear()
    for number in range(20):
        assert cluster.produce(b"%d" % number).error is ErrorCode.NONE
    busy = reads.pop(PARTITION)
    assert busy >= 40
    assert reads.total() <= 4 * SWEPT
    assert cluster.until(cluster.in_sync)


def test_idle_partitions_are_still_read_in_turn(
    reads: Counter[TopicPartition],
) -> None:
    cluster = cluster_of(MANY)
    reads.clear()
    cluster.run_for(500 * (MANY / SWEPT + 2))
    assert len(reads) == MANY
    assert max(reads.values()) <= 6


def test_each_fetch_counts_all_partitions_of_its_session() -> None:
    """Every fetch is counted once per partition, also for partitions that are not read."""
    cluster = cluster_of(50)
    node = cluster[1]
    before = node.manager.metrics.all_topics().fetch_requests, node.requests(FETCH)
    cluster.run_for(2_000)
    after = node.manager.metrics.all_topics().fetch_requests, node.requests(FETCH)
    assert after[1] > before[1]
    assert after[0] - before[0] == 50 * (after[1] - before[1])


def test_a_follower_is_caught_up_at_its_last_fetch_of_an_idle_partition() -> None:
    """Records after a long idle time do not make the follower look out of sync."""
    cluster = cluster_of(3)
    cluster.run_for(20 * LAG_MS)
    replica = cluster[1].partition().leader.remote_replicas[2]
    now_ms = cluster[1].host.runtime.clock.monotonic_ms()
    assert now_ms - replica.last_fetch_ms < 510
    assert replica.last_caught_up_ms == replica.last_fetch_ms
    cluster.world.network.partition("b1", "b2")
    cluster[1].produce(b"a", acks=1)
    cluster.run_for(LAG_MS * 0.7)
    assert 2 in cluster[1].partition().leader.isr_state.isr
    assert cluster.until(lambda: 2 not in cluster[1].partition().leader.isr_state.isr, 2 * LAG_MS)


def test_a_follower_removed_from_the_isr_rejoins_by_fetching() -> None:
    cluster = cluster_of(3)
    cluster.controller.change(isr=[1, 3])
    assert cluster.until(lambda: 2 not in cluster[1].partition().leader.isr_state.isr, 1_000)
    assert cluster.until(lambda: set(cluster.registration().isr) == {1, 2, 3}, 3_000)


def test_a_log_start_moved_by_retention_is_sent_to_followers() -> None:
    """Retention completes no delayed fetch."""
    cluster = cluster_of(MANY)
    cluster.produce(b"a", b"b", b"c")
    cluster.run_for(3_000)
    cluster[1].log().maybe_increment_log_start_offset(2, "retention")
    turn_ms = 500 * (MANY / SWEPT + 2)
    assert cluster.until(lambda: cluster[2].log().log_start_offset == 2, turn_ms)


def test_the_log_start_of_a_follower_reaches_the_leader() -> None:
    """The low watermark depends on it."""
    cluster = cluster_of(MANY)
    cluster.produce(b"a", b"b", b"c")
    cluster.run_for(3_000)
    cluster[2].log().maybe_increment_log_start_offset(1, "retention")
    replica = cluster[1].partition().leader.remote_replicas[2]
    assert cluster.until(lambda: replica.log_start_offset == 1, 500 * (MANY / SWEPT + 2))


def test_fetches_of_an_earlier_broker_epoch_do_not_count_for_idle_partitions() -> None:
    """KIP-903: a broker that has registered again is known only by its new epoch."""
    cluster = cluster_of(3)
    cluster.controller.register(2)
    cluster.controller.unfence(2)
    cluster.run_for(5_000)
    replica = cluster[1].partition().leader.remote_replicas[2]
    now_ms = cluster[1].host.runtime.clock.monotonic_ms()
    assert now_ms - replica.last_fetch_ms > 4_000


def test_a_new_leader_epoch_discards_the_state_of_the_earlier_one() -> None:
    cluster = cluster_of(3)
    cluster.controller.elect(2)
    assert cluster.until(lambda: cluster[2].partition().is_leader)
    assert cluster[1].partition().leader is None
    assert PARTITION not in cluster[1].manager.idle_partitions.sessions
    cluster.controller.elect(1)
    assert cluster.until(lambda: cluster[1].partition().is_leader)
    assert cluster.produce(b"a").error is ErrorCode.NONE
    assert cluster.until(cluster.in_sync)


def test_a_removed_and_added_replica_is_read_again() -> None:
    cluster = cluster_of(MANY)
    cluster.controller.change(replicas=[1, 3], isr=[1, 3])
    cluster.run_for(3_000)
    idle = cluster[1].manager.idle_partitions.sessions
    assert cluster.until(lambda: PARTITION in idle, 3_000)
    assert [each.replica_id for each in idle[PARTITION]] == [3]
    cluster.controller.change(replicas=[1, 2, 3], isr=[1, 3])
    assert cluster.until(lambda: set(cluster.registration().isr) == {1, 2, 3}, 5_000)
