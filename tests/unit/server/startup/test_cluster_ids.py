"""A node with a wrong `cluster.id`: it ends within a second and names the right one."""

from __future__ import annotations

import pytest

from barnabas.server.startup.cluster_ids import ClusterIds, check_before_format
from barnabas.server.startup.node_failure import NodeFailedError
from barnabas.storage.files.metadata_files import META_PROPERTIES
from unit.server.simulated_cluster import CLUSTER_ID, SimulatedCluster, three_nodes

OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAg"
ENDS_WITHIN_MS = 1_000


def four_roles() -> dict[int, str]:
    """Three voters, and a broker that is none."""
    return dict.fromkeys((1, 2, 3), "broker,controller") | {4: "broker"}


def is_formatted(cluster: SimulatedCluster, node_id: int) -> bool:
    return cluster.world.host(f"node-{node_id}").disk.exists(f"/data/{META_PROPERTIES}")


def wipe(cluster: SimulatedCluster, node_id: int) -> None:
    disk = cluster.world.host(f"node-{node_id}").disk
    disk.remove_tree("/data")
    disk.sync_directory("/")


@pytest.mark.parametrize("node_id", [3, 4])
def test_an_empty_directory_is_not_formatted_for_another_cluster(node_id: int) -> None:
    cluster = SimulatedCluster(four_roles()).start()
    cluster.kill(node_id)
    wipe(cluster, node_id)
    cluster.settings["cluster.id"] = OTHER_ID
    cluster.launch(node_id)
    cluster.world.run_for(ENDS_WITHIN_MS)
    error = cluster.failures[node_id]
    assert isinstance(error, NodeFailedError)
    named = "1 at node-1:9093, 2 at node-2:9093" + ", 3 at node-3:9093" * (node_id == 4)
    assert f"controllers {named} belong to cluster {CLUSTER_ID}, and" in str(error)
    assert f"this node has cluster.id={OTHER_ID}" in str(error)
    assert f"set cluster.id={CLUSTER_ID}" in str(error)
    assert not is_formatted(cluster, node_id)
    assert cluster.ready == {1, 2, 3, 4} - {node_id}


def test_a_node_without_cluster_id_gets_the_id_of_the_running_cluster() -> None:
    cluster = three_nodes()
    cluster.kill(3)
    wipe(cluster, 3)
    cluster.settings["cluster.id"] = ""
    cluster.launch(3)
    cluster.world.run_for(ENDS_WITHIN_MS)
    assert "cluster.id is not set" in str(cluster.failures[3])
    assert f"set cluster.id={CLUSTER_ID}" in str(cluster.failures[3])
    assert not is_formatted(cluster, 3)


def test_a_voter_formatted_with_a_wrong_cluster_id_stops_when_another_answers() -> None:
    cluster = three_nodes()
    for node_id in (1, 2, 3):
        cluster.kill(node_id)
    wipe(cluster, 3)
    cluster.settings["cluster.id"] = OTHER_ID
    cluster.launch(3)
    cluster.world.run_for(10_000)
    assert is_formatted(cluster, 3)
    assert not cluster.failures
    cluster.settings["cluster.id"] = CLUSTER_ID
    cluster.launch(1)
    cluster.until(lambda: 3 in cluster.failures)
    assert f"controller 1 at node-1:9093 belongs to cluster {CLUSTER_ID}" in str(
        cluster.failures[3]
    )
    assert "/data was formatted for " + OTHER_ID in str(cluster.failures[3])
    assert 1 not in cluster.failures


def test_a_node_with_records_of_another_cluster_stops() -> None:
    """Its directory is that of a cluster with the same addresses."""
    elsewhere = three_nodes()
    cluster = SimulatedCluster(four_roles(), cluster_id=OTHER_ID).start()
    for node_id in (1, 2):
        cluster.kill(node_id)
        disk = cluster.world.host(f"node-{node_id}").disk
        disk.write_atomically(
            f"/data/{META_PROPERTIES}",
            elsewhere.world.host(f"node-{node_id}").disk.read(f"/data/{META_PROPERTIES}"),
        )
    cluster.kill(3)
    cluster.kill(4)
    cluster.settings["cluster.id"] = ""
    for node_id in (1, 2):
        cluster.launch(node_id)
    cluster.until(cluster.nodes[1].shared.has_quorum_contact)
    cluster.launch(3)
    cluster.world.run_for(ENDS_WITHIN_MS)
    assert set(cluster.failures) == {3}
    text = str(cluster.failures[3])
    assert f"controllers 1 at node-1:9093, 2 at node-2:9093 belong to cluster {CLUSTER_ID}" in text
    assert f"/data belongs to {OTHER_ID}" in text


def test_one_misplaced_voter_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    elsewhere = three_nodes()
    cluster = SimulatedCluster(
        dict.fromkeys((1, 2, 3), "broker,controller"), cluster_id=OTHER_ID
    ).start()
    for node_id in (1, 2, 3):
        cluster.kill(node_id)
    cluster.world.host("node-3").disk.write_atomically(
        f"/data/{META_PROPERTIES}",
        elsewhere.world.host("node-3").disk.read(f"/data/{META_PROPERTIES}"),
    )
    cluster.settings["cluster.id"] = ""
    cluster.launch(3)
    cluster.launch(1)
    cluster.world.run_for(5_000)
    assert 1 not in cluster.failures
    assert "controller 3 at node-3:9093 belongs to cluster " + CLUSTER_ID in caplog.text
    cluster.launch(2)
    cluster.until(lambda: cluster.ready >= {1, 2})
    cluster.until(lambda: set(cluster.failures) == {3})


def test_a_new_cluster_formats_while_no_controller_answers() -> None:
    cluster = SimulatedCluster(dict.fromkeys((1, 2, 3), "broker,controller"))
    cluster.launch(1)
    cluster.world.run_for(ENDS_WITHIN_MS)
    assert is_formatted(cluster, 1)
    for node_id in (2, 3):
        cluster.launch(node_id)
    cluster.until(lambda: cluster.ready == {1, 2, 3})


def test_a_node_that_is_stopped_while_it_asks_does_not_start() -> None:
    cluster = SimulatedCluster(dict.fromkeys((1, 2, 3), "broker,controller"))
    cluster.launch(1)
    stopped: list[bool] = []
    cluster.nodes[1].stop(lambda: stopped.append(True))
    cluster.world.run_for(5_000)
    assert stopped
    assert not is_formatted(cluster, 1)


def test_a_controller_with_the_same_cluster_id_outweighs_one_with_another() -> None:
    check_before_format(ClusterIds({"1": "A", "2": "B"}), "/data", "A")
    check_before_format(ClusterIds({}), "/data", None)
    with pytest.raises(NodeFailedError, match="Find out which of these clusters"):
        check_before_format(ClusterIds({"1": "A", "2": "B"}), "/data", "C")
