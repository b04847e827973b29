"""Streams groups over the wire: internal topics, refused names, features (KIP-1071)."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from barnabas.protocol.messages.metadata import FindCoordinatorRequest
from barnabas.protocol.messages.nodes import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from barnabas.protocol.messages.streams_groups import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupTopologyDescriptionUpdateRequest,
    Topology,
    TopologyDescription,
)
from unit.coordinator.streams_world import by_subtopology, topology
from unit.server.simulated_broker import TIMEOUT_MS, SimulatedBroker

GROUP_RESOURCE = 32


@pytest.fixture
def broker() -> SimulatedBroker:
    made = SimulatedBroker(group_streams_initial_rebalance_delay_ms="0")
    made.make_topic("orders", 2)
    coordinator = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    for _ in range(20):
        found = made.ask(coordinator, 4)
        if found.coordinators[0].error_code == 0 and beat(made, "x", -1).error_code in (16, 69):
            break
        made.world.run_for(500)
    return made


def beat(broker: SimulatedBroker, member: str, epoch: int, given: Topology | None = None) -> Any:
    owned = [] if epoch == 0 else None
    request = StreamsGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        member_epoch=epoch,
        endpoint_information_epoch=0,
        rebalance_timeout_ms=1_000 if epoch == 0 else -1,
        topology=given,
        active_tasks=owned,
        standby_tasks=owned,
        warmup_tasks=owned,
        process_id="p" if epoch == 0 else None,
    )
    return broker.ask(request, 1)


def settled(broker: SimulatedBroker, given: Topology) -> Any:
    """Join, and return the first heartbeat with tasks."""
    response = beat(broker, "a", 0, given)
    for _ in range(20):
        if response.error_code == 0 and response.active_tasks:
            break
        broker.world.run_for(1_100)
        epoch = response.member_epoch
        response = beat(broker, "a", epoch, given if epoch == 0 else None)
    return response


def test_missing_internal_topics_are_created_and_then_tasks_are_assigned(
    broker: SimulatedBroker,
) -> None:
    response = settled(broker, topology("orders", changelog="g-store-changelog"))
    assert by_subtopology(response.active_tasks) == {"0": {0, 1}}
    (made,) = broker.metadata("g-store-changelog").topics
    assert len(made.partitions) == 2


def test_errors_of_the_creation_are_in_the_status(broker: SimulatedBroker) -> None:
    given = topology("orders", changelog="g-store-changelog")
    given.subtopologies[0].state_changelog_topics[0].replication_factor = 7
    response = beat(broker, "a", 0, given)
    broker.world.run_for(2_000)
    (status,) = beat(broker, "a", response.member_epoch).status
    assert status.status_code == 3
    assert "; Creation failed: g-store-changelog (" in status.status_detail


def test_topics_of_the_cluster_and_invalid_names_are_refused(broker: SimulatedBroker) -> None:
    for name, detail in (
        ("__consumer_offsets", "must not use internal topics"),
        ("a b", "invalid topic names: a b"),
    ):
        refused = beat(broker, "a", 0, topology(name))
        assert refused.error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
        assert detail in refused.error_message


def test_a_described_group_shows_its_topology(broker: SimulatedBroker) -> None:
    settled(broker, topology("orders"))
    request = StreamsGroupDescribeRequest(
        group_ids=["g", "missing"],
        include_authorized_operations=True,
        include_topology_description=True,
    )
    found, missing = broker.ask(request, 1).groups
    assert found.topology.subtopologies[0].source_topics == ["orders"]
    assert (found.group_state, found.assignor_name) == ("Stable", "sticky")
    assert found.topology_description_status == 1
    assert found.authorized_operations > 0
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_descriptions_of_topologies_are_refused_as_without_a_plugin(
    broker: SimulatedBroker,
) -> None:
    request = StreamsGroupTopologyDescriptionUpdateRequest(
        group_id="g",
        member_id="a",
        topology_epoch=0,
        topology_description=TopologyDescription(subtopologies=[], global_stores=[]),
    )
    response = broker.ask(request, 0)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "no streams group topology description plugin" in response.error_message


def test_without_the_feature_the_requests_are_refused(broker: SimulatedBroker) -> None:
    lowered = UpdateFeaturesRequest(
        timeout_ms=TIMEOUT_MS,
        feature_updates=[
            FeatureUpdateKey(feature="streams.version", max_version_level=0, upgrade_type=2)
        ],
    )
    assert broker.ask(lowered, 1).error_code == 0
    assert beat(broker, "a", 0, topology("orders")).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_configs_of_a_streams_group_are_described_with_defaults(broker: SimulatedBroker) -> None:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=GROUP_RESOURCE, resource_name="g", configuration_keys=None
            )
        ]
    )
    (result,) = broker.ask(request, 4).results
    values = {each.name: each.value for each in result.configs}
    assert values["streams.heartbeat.interval.ms"] == "5000"
    assert values["streams.initial.rebalance.delay.ms"] == "0"
    assert values["streams.assignor.name"] == "sticky"
