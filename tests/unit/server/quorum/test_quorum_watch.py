"""Loss of the metadata quorum: detected within three seconds, logged once, and its end."""

from __future__ import annotations

import logging

import pytest

from barnabas.server.quorum.quorum_watch import QuorumWatch
from unit.server.metrics.quorum_metrics import metrics
from unit.server.simulated_cluster import SimulatedCluster, three_nodes

SEEN_WITHIN_MS = 3_000


def watch_of(cluster: SimulatedCluster, node_id: int) -> QuorumWatch:
    watch = cluster.nodes[node_id].observation.quorum_watch
    assert watch is not None
    return watch


def survivor_of(cluster: SimulatedCluster, role: str) -> tuple[int, list[int]]:
    """A node that leads the quorum or does not, and the other two."""
    active = cluster.active
    survivor = active if role == "leader" else active % 3 + 1
    return survivor, [each for each in (1, 2, 3) if each != survivor]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        each.getMessage()
        for each in caplog.records
        if each.levelno == logging.WARNING and "until it is back" in each.getMessage()
    ]


def infos(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        each.getMessage()
        for each in caplog.records
        if each.name.endswith("quorum_watch") and each.levelno == logging.INFO
    ]


@pytest.mark.parametrize("manner", ["killed", "cut off"])
@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_loss_is_detected_within_three_seconds_and_logged_once(
    role: str, manner: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cluster = three_nodes()
    cluster.world.run_for(5_000)
    survivor, lost = survivor_of(cluster, role)
    others = [each for each in (1, 2, 3) if each in lost]
    for each in others:
        if manner == "killed":
            cluster.kill(each)
        else:
            for other in {1, 2, 3} - {each}:
                cluster.world.network.partition(f"node-{each}", f"node-{other}")
    cluster.world.run_for(SEEN_WITHIN_MS)
    watch = watch_of(cluster, survivor)
    assert watch.problem is not None
    for each in others:
        assert f"{each} at node-{each}:9093" in watch.problem
    assert "1 of 3 voters respond, 2 are needed" in watch.problem
    shown = metrics(cluster.nodes[survivor])
    assert shown["current-leader"] == -1
    assert shown["barnabas_quorum_silent_voters"] == 2
    cluster.world.run_for(20_000)
    of_survivor = [text for text in warnings(caplog) if f"{others[0]} at" in text
                   and f"{others[1]} at" in text]  # fmt: skip
    assert len(of_survivor) == 1
    assert not infos(caplog)


def test_the_end_of_a_loss_and_the_next_loss_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    cluster = three_nodes()
    cluster.world.run_for(5_000)
    for round_number in (1, 2):
        survivor, lost = survivor_of(cluster, "follower")
        for each in lost:
            cluster.kill(each)
        cluster.world.run_for(SEEN_WITHIN_MS)
        assert watch_of(cluster, survivor).problem is not None
        assert len(warnings(caplog)) == round_number
        for each in lost:
            cluster.launch(each)
        cluster.until(lambda: cluster.ready == {1, 2, 3})
        cluster.until(lambda survivor=survivor: watch_of(cluster, survivor).problem is None)
        cluster.world.run_for(5_000)
        assert len(infos(caplog)) == round_number
        shown = metrics(cluster.nodes[survivor])
        assert shown["current-leader"] == cluster.active
        assert shown["barnabas_quorum_silent_voters"] == 0


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_live_majority_is_no_loss(role: str, caplog: pytest.LogCaptureFixture) -> None:
    cluster = three_nodes()
    cluster.world.run_for(5_000)
    _, (dead, _) = survivor_of(cluster, role)
    cluster.kill(dead)
    for _ in range(40):
        cluster.world.run_for(250)
        assert all(watch_of(cluster, each).problem is None for each in {1, 2, 3} - {dead})
    assert not warnings(caplog)


def test_a_broker_that_is_no_voter_detects_the_loss(caplog: pytest.LogCaptureFixture) -> None:
    roles = {1: "broker", 101: "controller", 102: "controller", 103: "controller"}
    cluster = SimulatedCluster(roles).start()
    cluster.world.run_for(5_000)
    for each in (101, 102, 103):
        cluster.kill(each)
    cluster.world.run_for(SEEN_WITHIN_MS)
    problem = watch_of(cluster, 1).problem
    assert problem is not None
    assert "0 of 3 voters respond, 2 are needed" in problem
    assert len(warnings(caplog)) == 1


def test_a_controller_that_never_had_a_leader_is_not_ready_and_logs_no_loss(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = SimulatedCluster(dict.fromkeys((101, 102, 103), "controller"))
    cluster.launch(101)
    cluster.world.run_for(2 * SEEN_WITHIN_MS)
    assert "no response from voter 102" in (watch_of(cluster, 101).problem or "")
    assert not warnings(caplog)
