"""Random failures of a simulated quorum, with static voters and with changes of voters.

A seed decides everything.
"""

from __future__ import annotations

from barnabas.sim.network import NetworkConditions
from simulation.dynamic_hosts import Answer, DynamicHosts
from simulation.quorum_hosts import QuorumHosts, host_name


class Failures:
    """Deaths, losses of power, resets and partitions of static voters."""

    appends_max = 4

    def __init__(self, hosts: QuorumHosts) -> None:
        self._hosts = hosts

    def cause(self, node_id: int, *, is_up: bool) -> None:
        """Cause one event at a node, or start all nodes that are down."""
        hosts = self._hosts
        network, rng = hosts.world.network, hosts.rng
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


class VoterChanges:
    """Deaths, losses of power and resets while voters are added and removed."""

    appends_max = 3

    def __init__(self, hosts: DynamicHosts) -> None:
        self._hosts = hosts
        self._answers: list[Answer] = []

    def cause(self, node_id: int, *, is_up: bool) -> None:
        """Cause one event at a node, or start all nodes that are down."""
        hosts = self._hosts
        match hosts.rng.randint(0, 11):
            case 0 if is_up:
                hosts.kill(node_id)
            case 1 if is_up:
                hosts.lose_power(node_id)
            case 2:
                hosts.isolate(node_id)
            case 3 | 4:
                hosts.world.network.heal()
            case 5 | 6 | 7 | 8:
                self._change_voters()
            case _:
                hosts.start_all()

    def _change_voters(self) -> None:
        """Request a random voter change, if enough voters are left."""
        leader = self._hosts.leader()
        if leader is None:
            return
        voters = leader.driver.core.voters
        node_id = self._hosts.ids[self._hosts.rng.randint(0, len(self._hosts.ids) - 1)]
        voter = voters.get(node_id)
        if voter is None:
            self._answers.append(self._hosts.add_voter(node_id))
        elif len(voters) > 2:
            self._answers.append(self._hosts.remove_voter(node_id, voter.key.directory_id))


def _play(hosts: QuorumHosts, storm: Failures | VoterChanges, rounds: int) -> None:
    """Append during the events of a storm; then wait without failures."""
    network, rng = hosts.world.network, hosts.rng
    network.conditions = NetworkConditions(0.1, 10.0, 1.0, reset_chance=0.01)
    for _ in range(rounds):
        hosts.run_for(rng.randint(20, 1500))
        for _ in range(rng.randint(0, storm.appends_max)):
            hosts.append()
        node_id = hosts.ids[rng.randint(0, len(hosts.ids) - 1)]
        is_up = hosts.replicas[node_id] is not None
        hosts.slow_disk(node_id, rng.randint(1, 300))
        storm.cause(node_id, is_up=is_up)
        hosts.check()
    network.heal()
    network.conditions = NetworkConditions()
    for node_id in hosts.ids:
        hosts.slow_disk(node_id, 5)
    hosts.start_all()
    hosts.settle()


def failures_of_three(seed: int) -> QuorumHosts:
    hosts = QuorumHosts(3, seed, observers=1)
    _play(hosts, Failures(hosts), rounds=20)
    return hosts


def failures_of_five(seed: int) -> QuorumHosts:
    hosts = QuorumHosts(5, seed + 10_000)
    _play(hosts, Failures(hosts), rounds=20)
    return hosts


def failures_on_snapshots(seed: int) -> QuorumHosts:
    hosts = QuorumHosts(
        3,
        seed + 20_000,
        observers=2,
        retention_bytes=1,
        snapshot_record_bytes=600,
        fetch_snapshot_max_bytes=200,
        fetch_max_bytes=300,
    )
    _play(hosts, Failures(hosts), rounds=25)
    return hosts


def run_voter_changes(seed: int) -> DynamicHosts:
    hosts = DynamicHosts(3, seed + 30_000, observers=2)
    _play(hosts, VoterChanges(hosts), rounds=40)
    # The last pending change may complete after the others.
    assert hosts.run_until(lambda: len(hosts.voter_ids()) == 1), hosts.describe()
    return hosts


def run_voter_changes_on_snapshots(seed: int) -> DynamicHosts:
    hosts = DynamicHosts(
        3,
        seed + 40_000,
        observers=2,
        retention_bytes=1,
        snapshot_record_bytes=600,
        fetch_snapshot_max_bytes=300,
        fetch_max_bytes=300,
    )
    _play(hosts, VoterChanges(hosts), rounds=40)
    # The last pending change may complete after the others.
    assert hosts.run_until(lambda: len(hosts.voter_ids()) == 1), hosts.describe()
    return hosts


FAILURES = {
    "three": failures_of_three,
    "five": failures_of_five,
    "snapshots": failures_on_snapshots,
}
VOTER_CHANGES = {
    "changes": run_voter_changes,
    "changes on snapshots": run_voter_changes_on_snapshots,
}
