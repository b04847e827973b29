"""Adding, removing, updating and wiping voters, with complete replicas on simulated hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from barnabas.protocol.errors import ErrorCode
from barnabas.raft.listener import SnapshotId
from barnabas.raft.log.snapshot import list_snapshots
from selection import nightly_unless
from simulation.dynamic_hosts import DynamicHosts
from simulation.quorum_hosts import METADATA_DIRECTORY, QuorumHosts, Replica, host_name
from simulation.quorum_storms import VOTER_CHANGES

if TYPE_CHECKING:
    from barnabas.raft.config import RaftConfig


def elected(hosts: QuorumHosts) -> Replica:
    assert hosts.run_until(lambda: hosts.leader() is not None), hosts.describe()
    leader = hosts.leader()
    assert leader is not None
    return leader


def follower_of(hosts: QuorumHosts) -> int:
    return next(each for each in hosts.voters if not hosts.replicas[each].driver.core.is_leader)


def test_the_first_voters_are_those_of_the_formatted_checkpoint() -> None:
    hosts = DynamicHosts(3, seed=1, observers=1)
    elected(hosts)
    hosts.settle()
    leader = elected(hosts)
    assert leader.driver.kraft_version == 1
    assert hosts.voter_ids() == {(1, 2, 3)}
    status = leader.driver.status()
    assert [each.key for each in status.voters] == [hosts.voter(each).key for each in (1, 2, 3)]
    assert [each.id for each in status.observers] == [4]
    # The voters are in the log too, from which a replica without them in its format learns them.
    hosts.kill(4)
    hosts.wipe(4)
    hosts.initial_voters = None
    hosts.start(4)
    hosts.settle()
    assert hosts.voter_ids() == {(1, 2, 3)}


def test_an_observer_becomes_a_voter_and_the_majority_grows() -> None:
    hosts = DynamicHosts(3, seed=2, observers=1)
    elected(hosts)
    hosts.settle()
    assert hosts.done(hosts.add_voter(4)) is ErrorCode.NONE
    hosts.settle()
    assert hosts.voter_ids() == {(1, 2, 3, 4)}
    assert hosts.replicas[4].driver.core.is_voter
    down = follower_of(hosts)
    hosts.kill(down)
    hosts.settle()
    others = [each for each in hosts.ids if each not in (down, elected(hosts).config.node_id)]
    hosts.kill(others[0])
    hosts.run_for(10_000)
    assert hosts.leader() is None
    hosts.start_all()
    hosts.settle()


def test_a_single_voter_grows_to_three() -> None:
    hosts = DynamicHosts(1, seed=3, observers=2)
    hosts.append()
    hosts.settle()
    assert hosts.done(hosts.add_voter(2)) is ErrorCode.NONE
    hosts.settle()
    assert hosts.done(hosts.add_voter(3)) is ErrorCode.NONE
    hosts.settle()
    hosts.kill(1)
    assert elected(hosts).config.node_id in (2, 3)
    hosts.settle()


def test_a_removed_voter_becomes_an_observer() -> None:
    hosts = DynamicHosts(3, seed=4)
    elected(hosts)
    hosts.settle()
    removed = follower_of(hosts)
    assert hosts.done(hosts.remove_voter(removed)) is ErrorCode.NONE
    hosts.settle()
    assert hosts.voter_ids() == {tuple(each for each in (1, 2, 3) if each != removed)}
    assert not hosts.replicas[removed].driver.core.is_voter
    assert [each.id for each in elected(hosts).driver.status().observers] == [removed]


class OneServer(DynamicHosts):
    """All nodes have node 1 as their only bootstrap server."""

    def config(self, node_id: int) -> RaftConfig:
        servers = ((host_name(1), self.ports[1]),)
        return replace(super().config(node_id), bootstrap_servers=servers)


@pytest.mark.parametrize("seed", range(5))
def test_a_removed_voter_finds_the_leader_through_the_voters_of_its_log(seed: int) -> None:
    hosts = OneServer(4, seed)
    elected(hosts)
    hosts.settle()
    assert hosts.done(hosts.remove_voter(1)) is ErrorCode.NONE
    hosts.settle()
    hosts.kill(elected(hosts).config.node_id)
    leader = elected(hosts)
    removed = hosts.replicas[1]
    assert hosts.run_until(
        lambda: removed.driver.core.leader_and_epoch.leader_id == leader.config.node_id, 10_000
    ), hosts.describe()
    hosts.settle()


# With seed 2, the vote is split, and takes another election.
@pytest.mark.parametrize("seed", [0, 1, 3, 4, 5])
def test_a_removed_leader_resigns_after_the_commit(seed: int) -> None:
    hosts = DynamicHosts(3, seed)
    old = elected(hosts)
    hosts.settle()
    old = elected(hosts)
    assert hosts.done(hosts.remove_voter(old.config.node_id)) is ErrorCode.NONE
    assert hosts.run_until(lambda: not old.driver.core.is_leader, 1_000)
    before = hosts.world.scheduler.now_ms
    assert elected(hosts) is not old
    assert hosts.world.scheduler.now_ms - before < 1_000
    hosts.settle()
    assert old.config.node_id not in elected(hosts).driver.core.voters.ids


def test_a_wiped_voter_is_a_new_replica_until_it_is_added() -> None:
    hosts = DynamicHosts(3, seed=6)
    elected(hosts)
    hosts.settle()
    node_id = follower_of(hosts)
    former = hosts.directory_id(node_id)
    hosts.kill(node_id)
    hosts.wipe(node_id)
    hosts.start(node_id)
    hosts.settle()
    assert not hosts.replicas[node_id].driver.core.is_voter
    assert hosts.done(hosts.add_voter(node_id)) is ErrorCode.DUPLICATE_VOTER
    assert hosts.done(hosts.remove_voter(node_id)) is ErrorCode.VOTER_NOT_FOUND
    assert hosts.done(hosts.remove_voter(node_id, former)) is ErrorCode.NONE
    assert hosts.done(hosts.add_voter(node_id)) is ErrorCode.NONE
    hosts.settle()
    assert hosts.replicas[node_id].driver.core.is_voter


def test_controllers_join_automatically_if_enabled() -> None:
    class Joining(DynamicHosts):
        auto_join = True

    hosts = Joining(1, seed=7, observers=2)
    assert hosts.run_until(lambda: hosts.voter_ids() == {(1, 2, 3)}), hosts.describe()
    hosts.settle()
    node_id = follower_of_three(hosts)
    hosts.kill(node_id)
    hosts.wipe(node_id)
    hosts.start(node_id)
    assert hosts.run_until(lambda: hosts.replicas[node_id].driver.core.is_voter), hosts.describe()
    hosts.settle()


def follower_of_three(hosts: QuorumHosts) -> int:
    return next(each for each in (1, 2, 3) if not hosts.replicas[each].driver.core.is_leader)


def test_a_voter_with_a_new_address_reports_it_to_the_leader() -> None:
    hosts = DynamicHosts(3, seed=8)
    elected(hosts)
    hosts.settle()
    node_id = follower_of(hosts)
    hosts.kill(node_id)
    hosts.ports[node_id] = 9999
    hosts.start(node_id)

    def ports() -> set[int | None]:
        voters = [each.driver.core.voters.get(node_id) for each in hosts.running()]
        addresses = [voter.address("CONTROLLER") for voter in voters if voter]
        return {None if at is None else at.port for at in addresses}

    assert hosts.run_until(lambda: ports() == {9999}), ports()
    # The new address works: after the leader's death one of the two others is elected.
    hosts.kill(elected(hosts).config.node_id)
    hosts.settle()


def test_an_uncommitted_voter_change_is_undone_by_truncation() -> None:
    hosts = DynamicHosts(3, seed=9)
    elected(hosts)
    hosts.settle()
    old = elected(hosts)
    hosts.isolate(old.config.node_id)
    removed = follower_of(hosts)
    answer = hosts.remove_voter(removed)
    assert old.driver.core.voters.ids == tuple(each for each in (1, 2, 3) if each != removed)
    assert hosts.done(answer) in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert hosts.run_until(lambda: hosts.leader() not in (None, old))
    hosts.world.network.heal()
    hosts.settle()
    assert hosts.voter_ids() == {(1, 2, 3)}


def test_a_second_concurrent_voter_change_is_refused() -> None:
    hosts = DynamicHosts(3, seed=10, observers=2)
    elected(hosts)
    hosts.settle()
    first, second = hosts.add_voter(4), hosts.add_voter(5)
    assert hosts.done(second) is ErrorCode.REQUEST_TIMED_OUT
    assert hosts.done(first) is ErrorCode.NONE


def test_a_replica_that_does_not_fetch_is_not_added() -> None:
    hosts = DynamicHosts(3, seed=11, observers=1)
    hosts.kill(4)
    elected(hosts)
    hosts.settle()
    assert hosts.done(hosts.add_voter(4)) is ErrorCode.REQUEST_TIMED_OUT
    hosts.start(4)
    hosts.isolate(4)
    assert hosts.done(hosts.add_voter(4)) is ErrorCode.REQUEST_TIMED_OUT
    hosts.world.network.heal()
    hosts.settle()
    assert hosts.done(hosts.add_voter(4)) is ErrorCode.NONE


def test_the_last_voter_cannot_be_removed() -> None:
    hosts = DynamicHosts(1, seed=12)
    hosts.settle()
    assert hosts.done(hosts.remove_voter(1)) is ErrorCode.VOTER_NOT_FOUND


def test_static_voters_cannot_be_changed() -> None:
    hosts = QuorumHosts(3, seed=13)
    elected(hosts)
    hosts.settle()
    for ask in (DynamicHosts.add_voter, DynamicHosts.remove_voter):
        answer = ask(as_dynamic(hosts), 3)
        assert hosts.run_until(lambda answer=answer: answer.error is not None)
        assert answer.error is ErrorCode.UNSUPPORTED_VERSION


def as_dynamic(hosts: QuorumHosts) -> DynamicHosts:
    """Return the same hosts with methods for voter changes."""
    hosts.__class__ = type("Asked", (DynamicHosts,), {"config": QuorumHosts.config})
    assert isinstance(hosts, DynamicHosts)
    return hosts


def test_static_voters_become_dynamic_when_all_have_reported_their_directories() -> None:
    hosts = QuorumHosts(3, seed=14)
    elected(hosts)
    hosts.settle()
    leader = elected(hosts)
    assert "directory id" in str(leader.driver.upgrade_kraft_version(1, validate_only=False))
    # Followers report it once per fetch timeout.
    hosts.run_for(5_000)
    assert leader.driver.upgrade_kraft_version(1, validate_only=True) is None
    assert leader.driver.kraft_version == 0
    assert leader.driver.upgrade_kraft_version(1, validate_only=False) is None
    hosts.settle()
    assert {each.driver.kraft_version for each in hosts.running()} == {1}
    state = hosts.host(1).disk.read(f"{METADATA_DIRECTORY}/quorum-state")
    hosts.kill(leader.config.node_id)
    hosts.start(leader.config.node_id)
    hosts.settle()
    dynamic = as_dynamic(hosts)
    removed = follower_of(hosts)
    assert dynamic.done(dynamic.remove_voter(removed)) is ErrorCode.NONE
    hosts.settle()
    assert b'"data_version":0' in state
    kept = next(each for each in (1, 2, 3) if each != removed)
    hosts.kill(elected(hosts).config.node_id)
    hosts.run_for(3_000)
    hosts.start_all()
    hosts.settle()
    assert b'"data_version":1' in hosts.host(kept).disk.read(f"{METADATA_DIRECTORY}/quorum-state")


def test_voters_survive_in_snapshots() -> None:
    hosts = DynamicHosts(3, seed=15, observers=2, retention_bytes=1)
    elected(hosts)
    hosts.settle()
    hosts.kill(5)
    assert hosts.done(hosts.add_voter(4)) is ErrorCode.NONE
    hosts.settle()
    for replica in hosts.running():
        assert replica.generator.maybe_begin()
    hosts.run_for(200)
    hosts.start(5)
    hosts.settle()
    assert hosts.voter_ids() == {(1, 2, 3, 4)}
    assert SnapshotId(0, 0) not in list_snapshots(hosts.host(1).disk, METADATA_DIRECTORY)
    for node_id in hosts.ids:
        hosts.kill(node_id)
    hosts.start_all()
    hosts.settle()
    assert hosts.voter_ids() == {(1, 2, 3, 4)}


@pytest.mark.parametrize("seed", nightly_unless(range(4).__contains__, range(12)))
@pytest.mark.parametrize("kind", VOTER_CHANGES)
def test_no_committed_record_is_lost_during_voter_changes(kind: str, seed: int) -> None:
    VOTER_CHANGES[kind](seed)


def test_an_unknown_address_is_no_voter() -> None:
    hosts = DynamicHosts(3, seed=16)
    elected(hosts)
    hosts.settle()
    hosts.ids = (*hosts.ids, 9)
    hosts.ports[9] = 1
    assert host_name(9) == "n9"
    assert hosts.done(hosts.add_voter(9)) is ErrorCode.REQUEST_TIMED_OUT
