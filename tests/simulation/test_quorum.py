"""Quorums of complete replicas: transport, RPC, driver and log on simulated hosts, from seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.sim.network import NetworkConditions
from selection import nightly_unless
from simulation.quorum_hosts import METADATA_DIRECTORY, QuorumHosts, host_name
from simulation.quorum_storms import FAILURES

if TYPE_CHECKING:
    from simulation.quorum_hosts import Replica


def elected(hosts: QuorumHosts) -> Replica:
    assert hosts.run_until(lambda: hosts.leader() is not None), hosts.describe()
    leader = hosts.leader()
    assert leader is not None
    return leader


def test_three_processes_elect_a_leader_and_replicate() -> None:
    hosts = QuorumHosts(3, seed=1)
    leader = elected(hosts)
    for _ in range(5):
        hosts.append()
    hosts.settle()
    names = {f"topic-{number}" for number in range(1, 7)}
    assert all(each.names == names for each in hosts.running())
    endpoint = (leader.config.node_id, host_name(leader.config.node_id), 9093)
    assert all(each.driver.leader_endpoint() == endpoint for each in hosts.running())


def test_observers_find_the_leader_through_any_voter_and_follow() -> None:
    hosts = QuorumHosts(3, seed=2, observers=2)
    elected(hosts)
    hosts.append()
    hosts.settle()
    leader = hosts.leader()
    assert leader is not None
    status = leader.driver.status()
    assert [each.id for each in status.voters] == [1, 2, 3]
    assert [each.id for each in status.observers] == [4, 5]
    assert all(not hosts.replicas[each].driver.core.is_voter for each in (4, 5))


@pytest.mark.parametrize("seed", range(10))
def test_a_killed_leader_is_replaced_within_a_second(seed: int) -> None:
    hosts = QuorumHosts(3, seed, observers=1)
    leader = elected(hosts)
    hosts.settle()
    before = hosts.world.scheduler.now_ms
    hosts.kill(leader.config.node_id)
    elected(hosts)
    found = hosts.append()
    assert found is not None
    assert hosts.run_until(lambda: found[1] in hosts.history.acknowledged, 5_000)
    assert hosts.world.scheduler.now_ms - before < 1_000
    hosts.settle()


@pytest.mark.parametrize(("delay_ms", "disk_ms"), [(20, 50), (50, 100), (100, 200)])
@pytest.mark.parametrize("seed", nightly_unless(range(3).__contains__, range(8)))
def test_a_killed_leader_causes_one_election_on_a_slow_network(
    seed: int, delay_ms: int, disk_ms: int
) -> None:
    """Both remaining voters start an election at about the same time, with late messages."""
    hosts = QuorumHosts(3, seed)
    elected(hosts)
    hosts.settle()
    hosts.world.network.conditions = NetworkConditions(delay_ms / 10, delay_ms)
    for node_id in hosts.ids:
        hosts.slow_disk(node_id, disk_ms)
    hosts.run_for(2_000)
    leader = elected(hosts)
    hosts.kill(leader.config.node_id)
    successor = elected(hosts)
    epochs = [each.driver.core.leader_and_epoch.epoch for each in (leader, successor)]
    assert epochs[1] == epochs[0] + 1
    hosts.settle()


def commit_times(seed: int, how: str) -> list[float]:
    """Return the sorted virtual ms of 40 commits, while one of three voters is down."""
    hosts = QuorumHosts(3, seed)
    leader = elected(hosts).config.node_id
    hosts.settle()
    gone = next(node_id for node_id in hosts.ids if node_id != leader)
    if how == "dead":
        hosts.kill(gone)
    elif how == "silent":
        hosts.isolate(gone)
    times = []
    for _ in range(40):
        if how == "cut":
            for other in hosts.ids:
                hosts.world.network.reset_connections(host_name(gone), host_name(other))
        found, before = hosts.append(), hosts.world.scheduler.now_ms
        assert found is not None
        assert hosts.run_until(lambda found=found: found[1] in hosts.history.acknowledged)
        times.append(hosts.world.scheduler.now_ms - before)
        hosts.run_for(27)
    return sorted(times)


@pytest.mark.parametrize("how", ["silent", "cut"])
@pytest.mark.parametrize("seed", range(3))
def test_an_isolated_voter_delays_commits_no_more_than_a_dead_one(seed: int, how: str) -> None:
    dead, other = commit_times(seed, "dead"), commit_times(seed, how)
    assert other[20] < dead[20] * 1.3
    assert other[-1] < dead[-1] * 2


def test_a_broken_connection_causes_no_election() -> None:
    hosts = QuorumHosts(3, seed=3)
    leader = elected(hosts)
    hosts.settle()
    epoch = leader.driver.core.leader_and_epoch.epoch
    for _ in range(10):
        for node_id in hosts.ids:
            hosts.world.network.reset_connections(
                host_name(leader.config.node_id), host_name(node_id)
            )
        hosts.run_for(500)
    hosts.settle()
    assert leader.driver.core.is_leader
    assert leader.driver.core.leader_and_epoch.epoch == epoch


def test_a_leader_that_shuts_down_is_replaced_immediately() -> None:
    hosts = QuorumHosts(3, seed=4)
    leader = elected(hosts)
    hosts.settle()
    before = hosts.world.scheduler.now_ms
    leader.driver.shutdown()
    hosts.run_for(50)
    hosts.kill(leader.config.node_id)
    elected(hosts)
    assert hosts.world.scheduler.now_ms - before < 500
    hosts.settle()


def test_an_observer_follows_a_single_voter() -> None:
    hosts = QuorumHosts(1, seed=5, observers=1)
    assert hosts.leader() is not None
    hosts.append()
    hosts.settle()


def test_a_replica_behind_the_log_start_loads_the_leaders_snapshot() -> None:
    hosts = QuorumHosts(3, seed=6, observers=1, retention_bytes=1, fetch_snapshot_max_bytes=300)
    elected(hosts)
    hosts.settle()
    down = next(each for each in (1, 2, 3) if not hosts.replicas[each].driver.core.is_leader)
    hosts.kill(down)
    hosts.kill(4)
    for _ in range(30):
        hosts.append()
    hosts.settle()
    for replica in hosts.running():
        assert replica.generator.maybe_begin()
    hosts.run_for(200)
    assert all(each.driver.log.log_start_offset > 30 for each in hosts.running())
    hosts.start_all()
    hosts.settle()
    assert len({frozenset(each.names) for each in hosts.running()}) == 1
    behind = hosts.replicas[down]
    assert behind is not None
    assert behind.driver.log.log_start_offset > 30
    # After a restart it uses the snapshot, also for votes.
    hosts.lose_power(down)
    hosts.start(down)
    leader = hosts.leader()
    assert leader is not None
    hosts.kill(leader.config.node_id)
    hosts.settle()


def test_a_damaged_fetched_snapshot_is_fetched_again() -> None:
    hosts = QuorumHosts(3, seed=7, retention_bytes=1, fetch_snapshot_max_bytes=300)
    elected(hosts)
    down = next(each for each in (1, 2, 3) if not hosts.replicas[each].driver.core.is_leader)
    hosts.kill(down)
    for _ in range(30):
        hosts.append()
    hosts.settle()
    for replica in hosts.running():
        replica.generator.maybe_begin()
    hosts.run_for(200)
    behind = hosts.start(down)
    disk = hosts.host(down).disk

    def part() -> str | None:
        names = disk.list(METADATA_DIRECTORY)
        return next((name for name in names if name.endswith(".part")), None)

    assert hosts.run_until(lambda: part() is not None)
    disk.flip_bit(f"{METADATA_DIRECTORY}/{part()}")
    hosts.settle()
    assert not behind.fatal
    assert not [name for name in disk.list(METADATA_DIRECTORY) if name.endswith(".part")]


@pytest.mark.parametrize("seed", nightly_unless(range(5).__contains__, range(15)))
@pytest.mark.parametrize("kind", FAILURES)
def test_no_committed_record_is_lost_under_random_failures(kind: str, seed: int) -> None:
    FAILURES[kind](seed)
