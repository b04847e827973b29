"""Voters of a static quorum that lost their directories must not vote committed records away."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.raft.election_state import UnprovenVoterFile
from barnabas.server.configs.configuration import read_configuration
from barnabas.server.startup.formatting import FirstVoters, FormatDependencies, format_node
from unit.server.process.topic_creation import creation
from unit.server.process.wiped_disk import wipe
from unit.server.simulated_cluster import SimulatedCluster, three_nodes


def create(cluster: SimulatedCluster, node_id: int, name: str) -> None:
    """Create a topic; it is committed then."""
    answer = cluster.ask(node_id, creation(name, replicas=1), 7)
    assert answer.topics[0].error_code == ErrorCode.NONE, answer


def is_marked_unproven(cluster: SimulatedCluster, node_id: int) -> bool:
    """Return whether the node's directory says that it has no vote yet."""
    return UnprovenVoterFile(cluster.world.host(f"node-{node_id}").disk, "/data").exists()


def has_vote(cluster: SimulatedCluster, node_id: int) -> bool:
    return cluster.nodes[node_id].shared.quorum.core.has_vote


def is_led(cluster: SimulatedCluster, *node_ids: int) -> bool:
    return any(cluster.nodes[each].shared.quorum.core.is_leader for each in node_ids)


def behind_the_others(seed: int = 1) -> SimulatedCluster:
    """Return a cluster: node 1 is down and lacks a topic committed by dead nodes 2 and 3."""
    cluster = three_nodes(seed)
    cluster.kill(1)
    create(cluster, 2, "committed")
    for node_id in (2, 3):
        cluster.kill(node_id)
    return cluster


def test_all_voters_of_a_new_cluster_have_votes_after_the_first_election() -> None:
    cluster = three_nodes()
    for node_id in (1, 2, 3):
        cluster.until(lambda node_id=node_id: has_vote(cluster, node_id))
        assert not is_marked_unproven(cluster, node_id)


def test_a_new_cluster_waits_until_all_voters_have_started() -> None:
    cluster = SimulatedCluster(dict.fromkeys((1, 2, 3), "broker,controller"))
    for node_id in (1, 2):
        cluster.launch(node_id)
    cluster.world.run_for(20_000)
    assert not is_led(cluster, 1, 2)
    cluster.launch(3)
    cluster.until(lambda: cluster.ready == {1, 2, 3})


@pytest.mark.parametrize("seed", range(4))
def test_a_wiped_voter_does_not_elect_a_leader_without_committed_records(seed: int) -> None:
    cluster = behind_the_others(seed)
    wipe(cluster, 3)
    for node_id in (1, 3):
        cluster.launch(node_id)
    cluster.world.run_for(20_000)
    assert not is_led(cluster, 1, 3)
    assert is_marked_unproven(cluster, 3)
    cluster.launch(2)
    cluster.until(lambda: cluster.ready == {1, 2, 3})
    assert cluster.image(3).topics.by_name("committed") is not None


def test_a_wiped_voter_gets_its_vote_when_it_has_caught_up() -> None:
    cluster = behind_the_others()
    wipe(cluster, 3)
    for node_id in (1, 2, 3):
        cluster.launch(node_id)
    cluster.until(lambda: cluster.ready == {1, 2, 3})
    cluster.until(lambda: has_vote(cluster, 3))
    assert not is_marked_unproven(cluster, 3)
    cluster.kill(2)
    cluster.until(lambda: is_led(cluster, 1, 3))
    create(cluster, 3, "later")


def test_a_wiped_voter_has_no_vote_after_a_restart() -> None:
    cluster = behind_the_others()
    wipe(cluster, 3)
    cluster.launch(3)
    cluster.world.run_for(2_000)
    cluster.kill(3)
    for node_id in (1, 3):
        cluster.launch(node_id)
    cluster.world.run_for(20_000)
    assert not is_led(cluster, 1, 3)


def test_two_wiped_voters_do_not_start_a_new_cluster(caplog: pytest.LogCaptureFixture) -> None:
    cluster = behind_the_others()
    for node_id in (1, 3):
        wipe(cluster, node_id)
        cluster.launch(node_id)
    cluster.world.run_for(20_000)
    assert not is_led(cluster, 1, 3)
    assert "no response from voter 2 at node-2:9093. This voter's data directory was" in caplog.text
    cluster.launch(2)
    caplog.clear()
    cluster.world.run_for(20_000)
    # One of three voters may lack committed records: an operator has to say so.
    assert not is_led(cluster, 1, 2, 3)
    assert "to register this broker. This voter's data directory was empty" in caplog.text


def test_one_of_two_wiped_voters_is_formatted_by_hand_and_has_its_vote_at_once() -> None:
    cluster = behind_the_others()
    wipe(cluster, 1)
    wipe(cluster, 3)
    host = cluster.world.host("node-1")
    host.start()
    runtime = host.runtime
    # A formatting by `barnabas start` was cut off before it gave the directory its identity.
    runtime.disk.make_directory("/data")
    UnprovenVoterFile(runtime.disk, "/data").write()
    format_node(
        read_configuration(cluster.properties(1)),
        FirstVoters.AS_CONFIGURED,
        FormatDependencies(runtime.disk, runtime.clock, runtime.rng),
    )
    assert not is_marked_unproven(cluster, 1)
    for node_id in (1, 2, 3):
        cluster.launch(node_id)
    cluster.until(lambda: cluster.ready == {1, 2, 3})
    assert cluster.image(3).topics.by_name("committed") is not None


def test_a_cluster_whose_voters_are_all_wiped_starts_empty() -> None:
    cluster = behind_the_others()
    for node_id in (1, 2, 3):
        wipe(cluster, node_id)
        cluster.launch(node_id)
    cluster.until(lambda: cluster.ready == {1, 2, 3})
    assert cluster.image(1).topics.by_name("committed") is None


@pytest.mark.parametrize("seed", range(6))
def test_a_new_cluster_gets_a_leader_despite_early_deaths(seed: int) -> None:
    cluster = SimulatedCluster(dict.fromkeys((1, 2, 3), "broker,controller"), seed)
    rng = cluster.world.host("fate").rng
    for node_id in (1, 2, 3):
        cluster.launch(node_id)
    for _ in range(6):
        cluster.world.run_for(rng.randint(1, 800))
        node_id = rng.randint(1, 3)
        cluster.kill(node_id)
        cluster.launch(node_id)
    cluster.until(lambda: cluster.ready == {1, 2, 3})
    cluster.until(lambda: all(has_vote(cluster, each) for each in (1, 2, 3)))


def test_a_single_voter_always_has_its_vote() -> None:
    cluster = SimulatedCluster({101: "controller", 1: "broker", 2: "broker"}).start()
    assert has_vote(cluster, 101)
    assert not is_marked_unproven(cluster, 101)
