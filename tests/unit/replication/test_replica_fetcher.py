"""Brokers that replicate from each other in a simulated world."""

from __future__ import annotations

from barnabas.protocol.errors import ErrorCode
from unit.replication.replicated_cluster import PARTITION, ReplicatedCluster


def test_followers_have_the_leaders_bytes_and_acks_all_waits_for_them() -> None:
    """The loop fetches and appends the bytes unchanged."""
    cluster = ReplicatedCluster()
    cluster.make_topic()
    result = cluster.produce(b"a", b"b")
    assert (result.error, result.base_offset) == (ErrorCode.NONE, 0)
    cluster.produce(b"c")
    assert cluster.until(cluster.in_sync)
    for node in cluster.nodes.values():
        assert node.values() == [b"a", b"b", b"c"]
        assert node.bytes() == cluster[1].bytes()
        assert node.log().leader_epochs.entries == [(0, 0)]


def test_a_killed_leader_returns_as_a_follower_and_catches_up() -> None:
    """The other brokers continue without it, and its log follows theirs afterwards."""
    cluster = ReplicatedCluster()
    cluster.make_topic()
    cluster.produce(b"a")
    cluster.kill(1)
    assert cluster.until(lambda: cluster[2].partition().is_leader)
    assert cluster.produce(b"b").error is ErrorCode.NONE
    assert set(cluster.registration().isr) == {2, 3}
    cluster.restart(1)
    assert cluster.until(cluster.in_sync)
    assert cluster[1].values() == [b"a", b"b"]
    assert cluster[1].log(PARTITION).leader_epochs.entries == [(0, 0), (1, 1)]


def test_a_new_leaders_first_commit_does_not_wait_for_an_idle_fetch() -> None:
    """At that time, a fetch of the follower for other partitions waits at the new leader."""
    cluster = ReplicatedCluster()
    cluster.make_topic("idle", replicas=(2, 3, 1))
    cluster.make_topic()
    cluster.produce(b"a")
    cluster.run_for(1_100)
    cluster.kill(1)
    assert cluster.until(lambda: cluster[2].partition().is_leader)
    begin = cluster.world.scheduler.now_ms
    assert cluster.produce(b"b").error is ErrorCode.NONE
    assert cluster.world.scheduler.now_ms - begin < 50
