"""Quorums of whole replicas: transport, RPC, driver and log over simulated hosts, from seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.sim.network import NetworkWeather
from simulation.quorum_hosts import QuorumHosts, host_name

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


@pytest.mark.parametrize("seed", range(20))
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


def test_a_broken_connection_causes_no_election() -> None:
    hosts = QuorumHosts(3, seed=3)
    leader = elected(hosts)
    hosts.settle()
    epoch = leader.driver.leader_and_epoch.epoch
    for _ in range(10):
        for node_id in hosts.ids:
            hosts.world.network.reset_connections(
                host_name(leader.config.node_id), host_name(node_id)
            )
        hosts.run_for(500)
    hosts.settle()
    assert leader.driver.is_leader
    assert leader.driver.leader_and_epoch.epoch == epoch


def test_a_leader_that_shuts_down_is_followed_by_another_at_once() -> None:
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


def test_a_single_voter_with_an_observer() -> None:
    hosts = QuorumHosts(1, seed=5, observers=1)
    assert hosts.leader() is not None
    hosts.append()
    hosts.settle()


def storm(hosts: QuorumHosts, rounds: int) -> None:
    """Deaths, loss of power, resets and partitions with appends in between; then peace."""
    network, rng = hosts.world.network, hosts.rng
    network.weather = NetworkWeather(0.1, 10.0, 1.0, reset_chance=0.01)
    for _ in range(rounds):
        hosts.run_for(rng.randint(20, 1500))
        for _ in range(rng.randint(0, 4)):
            hosts.append()
        node_id = hosts.ids[rng.randint(0, len(hosts.ids) - 1)]
        is_up = hosts.replicas[node_id] is not None
        match rng.randint(0, 8):
            case 0 if is_up:
                hosts.kill(node_id)
            case 1 if is_up:
                hosts.lose_power(node_id)
            case 2:
                hosts.isolate(node_id)
            case 3:
                network.heal()
            case 4:
                other = hosts.ids[rng.randint(0, len(hosts.ids) - 1)]
                if other != node_id:
                    network.partition(host_name(node_id), host_name(other))
            case 5:
                leader = hosts.leader()
                if leader is not None:
                    leader.generator.maybe_begin()
            case _:
                hosts.start_all()
        hosts.check()
    network.heal()
    network.weather = NetworkWeather()
    hosts.start_all()


@pytest.mark.parametrize("seed", range(40))
def test_three_voters_and_an_observer_lose_nothing_in_a_storm(seed: int) -> None:
    hosts = QuorumHosts(3, seed, observers=1)
    storm(hosts, rounds=20)
    hosts.settle()


@pytest.mark.parametrize("seed", range(20))
def test_five_voters_lose_nothing_in_a_storm(seed: int) -> None:
    hosts = QuorumHosts(5, seed + 10_000)
    storm(hosts, rounds=20)
    hosts.settle()
