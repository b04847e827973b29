"""Clusters whose controllers change (KIP-853), as complete nodes in one simulated world."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.connection import ApiVersionsRequest
from barnabas.protocol.messages.nodes import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from barnabas.settings.key import ConfigError
from unit.server.simulated_cluster import CONTROLLER_PORT, SimulatedCluster

if TYPE_CHECKING:
    from collections.abc import Mapping

COMBINED = dict.fromkeys((1, 2, 3), "broker,controller")


class DynamicCluster(SimulatedCluster):
    """Node 1 begins the quorum; the other controllers join it by themselves."""

    def properties(self, node_id: int) -> dict[str, str]:
        properties = super().properties(node_id)
        del properties["controller.quorum.voters"]
        controllers = [each for each, roles in self.roles.items() if "controller" in roles]
        known = ",".join(f"node-{each}:{CONTROLLER_PORT}" for each in controllers)
        properties["controller.quorum.bootstrap.servers"] = known
        if node_id == 1:
            properties["cluster.standalone"] = "true"
        elif node_id in controllers:
            properties["controller.quorum.auto.join.enable"] = "true"
        return properties

    def voters(self, node_id: int) -> list[int]:
        """The voters as a node knows them."""
        return [each.id for each in self.nodes[node_id].shared.quorum.status().voters]


def creation(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=False)


def test_controllers_join_the_first_controller_and_survive_its_death() -> None:
    cluster = DynamicCluster(COMBINED).start()
    cluster.until(lambda: all(cluster.voters(each) == [1, 2, 3] for each in COMBINED))
    cluster.kill(1)
    response = cluster.ask(2, creation("t"), 7)
    assert response.topics[0].error_code == ErrorCode.NONE
    cluster.launch(1)
    cluster.until(lambda: 1 in cluster.ready)
    assert cluster.voters(1) == [1, 2, 3]


def test_brokers_follow_a_dynamic_quorum_as_observers() -> None:
    cluster = DynamicCluster({1: "controller", 2: "broker", 3: "broker"}).start()
    cluster.until(lambda: cluster.live_brokers(1) == {2, 3})
    quorum = cluster.nodes[1].shared.quorum.status()
    assert [each.id for each in quorum.voters] == [1]
    assert [each.id for each in quorum.observers] == [2, 3]


def finalized(cluster: SimulatedCluster, node_id: int) -> Mapping[str, int]:
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    response = cluster.ask(node_id, request, 4)
    return {each.name: each.max_version_level for each in response.finalized_features}


def test_static_voters_become_dynamic_on_request() -> None:
    cluster = SimulatedCluster(COMBINED).start()
    assert "kraft.version" not in finalized(cluster, 1)
    update = FeatureUpdateKey(feature="kraft.version", max_version_level=1, upgrade_type=1)
    request = UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=[update])
    # Voters send the leader their identity once per fetch timeout.
    cluster.world.run_for(5_000)
    response = cluster.ask(2, request, 1)
    assert response.error_code == ErrorCode.NONE, response
    cluster.until(
        lambda: all(finalized(cluster, each).get("kraft.version") == 1 for each in COMBINED)
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"process.roles": "broker", "controller.quorum.bootstrap.servers": "a:1"},
        {"process.roles": "controller", "controller.quorum.voters": "1@node-1:9093"},
    ],
)
def test_only_a_controller_without_static_voters_starts_a_quorum(
    settings: Mapping[str, str],
) -> None:
    cluster = DynamicCluster({1: "broker,controller"}, cluster_standalone="true")
    given = {**SimulatedCluster.properties(cluster, 1), **settings}
    cluster.properties = lambda _: given  # type: ignore[method-assign]
    with pytest.raises(ConfigError):
        cluster.launch(1)
