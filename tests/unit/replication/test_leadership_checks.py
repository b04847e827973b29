"""Checks that a broker still leads a partition, among simulated brokers and with manual fetches."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from unit.replication.checked_leadership import TIMEOUT_MS, Checking
from unit.replication.replica_set import ReplicaSet
from unit.replication.replicated_cluster import PARTITION as SIMULATED, ReplicatedCluster


@pytest.fixture
def trio() -> ReplicaSet:
    return ReplicaSet((1, 2, 3))


def test_a_leader_without_followers_is_confirmed_at_once() -> None:
    checking = Checking(ReplicaSet((1,)).manager)
    checking.begin()
    assert checking.results == [ErrorCode.NONE]


def test_a_follower_is_not_confirmed_as_the_leader(trio: ReplicaSet) -> None:
    trio.change(leader=2)
    checking = Checking(trio.manager)
    checking.begin()
    assert checking.results == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_each_member_of_the_isr_must_fetch_again_after_a_response(trio: ReplicaSet) -> None:
    for follower in (2, 3):
        trio.follow(follower, 0, max_wait_ms=500)
    checking = Checking(trio.manager)
    checking.begin()
    # The pending fetches were completed, so that the followers fetch again.
    assert trio.manager.waiting()["Fetch"] == 0
    trio.follow(2, 0, max_wait_ms=500)
    trio.follow(2, 0, max_wait_ms=500)
    assert checking.results == []
    trio.follow(3, 0, max_wait_ms=500)
    assert checking.results == [ErrorCode.NONE]


def test_a_fetch_that_was_on_its_way_when_the_check_began_does_not_count(trio: ReplicaSet) -> None:
    trio.change(isr=[1, 2])
    checking = Checking(trio.manager)
    checking.begin()
    # The follower may have sent this fetch before another broker became the leader.
    trio.follow(2, 0, max_wait_ms=500)
    assert checking.results == []
    assert trio.manager.waiting()["Fetch"] == 0
    trio.follow(2, 0, max_wait_ms=500)
    assert checking.results == [ErrorCode.NONE]
    # The check has ended, so this fetch waits for records as usual.
    assert trio.manager.waiting()["Fetch"] == 1


def test_replicas_outside_the_isr_do_not_count(trio: ReplicaSet) -> None:
    trio.change(isr=[1, 2])
    checking = Checking(trio.manager)
    checking.begin()
    for _ in range(3):
        trio.follow(3, 0)
    assert checking.results == []


def test_a_rejected_fetch_does_not_count(trio: ReplicaSet) -> None:
    trio.change(isr=[1, 2])
    checking = Checking(trio.manager)
    checking.begin()
    for _ in range(3):
        trio.follow(2, 0, current_leader_epoch=7)
    assert checking.results == []


def test_a_check_ends_when_the_isr_shrinks_to_the_leader(trio: ReplicaSet) -> None:
    checking = Checking(trio.manager)
    checking.begin()
    trio.change(isr=[1])
    assert checking.results == [ErrorCode.NONE]


@pytest.mark.parametrize("fields", [{"leader": 2}, {"leader": 1}])
def test_a_check_ends_when_the_leader_epoch_does(trio: ReplicaSet, fields: dict[str, int]) -> None:
    checking = Checking(trio.manager)
    checking.begin()
    trio.change(**fields)
    assert checking.results == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_check_fails_when_a_member_of_the_isr_does_not_fetch_in_time(trio: ReplicaSet) -> None:
    checking = Checking(trio.manager)
    checking.begin()
    trio.follow(2, 0)
    trio.follow(2, 0)
    trio.world.run_for(TIMEOUT_MS + 100)
    assert checking.results == [ErrorCode.REQUEST_TIMED_OUT]


def test_checks_of_one_partition_end_together_if_they_began_together(trio: ReplicaSet) -> None:
    trio.change(isr=[1, 2])
    first, second = Checking(trio.manager), Checking(trio.manager)
    first.begin()
    second.begin()
    trio.follow(2, 0)
    late = Checking(trio.manager)
    late.begin()
    trio.follow(2, 0)
    assert (first.results, second.results) == ([ErrorCode.NONE], [ErrorCode.NONE])
    assert late.results == []
    trio.follow(2, 0)
    assert late.results == [ErrorCode.NONE]


def test_an_idle_leader_is_confirmed_within_some_round_trips() -> None:
    cluster = ReplicatedCluster()
    cluster.make_topic(partitions=3)
    cluster.produce(b"a")
    cluster.run_for(2_000)
    checking = Checking(cluster.leader().manager, SIMULATED)
    checking.begin()
    assert cluster.until(lambda: bool(checking.results), limit_ms=100)
    assert checking.results == [ErrorCode.NONE]


@pytest.mark.parametrize("seed", range(4))
def test_a_leader_that_is_cut_off_is_not_confirmed_although_old_fetches_arrive(seed: int) -> None:
    cluster = ReplicatedCluster(brokers=2, seed=seed)
    cluster.make_topic(replicas=(1, 2))
    cluster.run_for(1_000)
    # The follower fetches the record, and then again.
    cluster.produce(b"a")
    cluster.run_for(cluster.draw(4))
    former, successor = cluster[1], cluster[2]
    cluster.controller.unreachable.add(former.id)
    # Bytes are delayed, not lost: a fetch that is on its way arrives after the partition.
    cluster.world.network.partition(former.name, successor.name)
    cluster.controller.elect(successor.id)
    assert cluster.until(lambda: successor.partition().leader_id == successor.id)
    checking = Checking(former.manager, SIMULATED)
    checking.begin()
    cluster.world.network.heal()
    cluster.run_for(3 * TIMEOUT_MS)
    assert checking.results == [ErrorCode.REQUEST_TIMED_OUT]
