"""Clusters of nodes in virtual time: start, forwarding, registration, failover."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from barnabas.protocol.api_table import API_ROWS
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.configs import (
    AlterableConfig,
    AlterClientQuotasRequest,
    AlterConfigsResource,
    EntityDataRequest,
    EntryDataRequest,
    IncrementalAlterConfigsRequest,
    OpData,
)
from barnabas.protocol.messages.connection import ApiVersionsRequest
from barnabas.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    PartitionDataRequest,
    TopicDataRequest,
)
from barnabas.protocol.messages.metadata import (
    DescribeClusterRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from barnabas.protocol.messages.nodes import (
    BrokerHeartbeatRequest,
    EnvelopeRequest,
    UnregisterBrokerRequest,
    UnregisterControllerRequest,
)
from barnabas.protocol.messages.quorum import AddRaftVoterRequest, Listener, RemoveRaftVoterRequest
from barnabas.protocol.messages.transactions import InitProducerIdRequest
from barnabas.raft.listener import NO_LEADER, LeaderAndEpoch
from barnabas.server.dispatch.served_apis import CONTROLLER_APIS
from barnabas.storage.errors import InconsistentDirectoryError
from unit.server.process.topic_creation import ENOUGH_MS, creation
from unit.server.simulated_cluster import (
    CLIENT_PORT,
    CONTROLLER_PORT,
    SimulatedCluster,
    three_nodes,
)

if TYPE_CHECKING:
    from barnabas.runtime.sockets import Stream


def metadata(cluster: SimulatedCluster, node_id: int, *names: str) -> object:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return cluster.ask(node_id, MetadataRequest(topics=topics), 12)


def describing(endpoint_type: int) -> DescribeClusterRequest:
    return DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=endpoint_type
    )


def test_three_nodes_form_a_quorum_and_all_brokers_are_unfenced() -> None:
    cluster = three_nodes()
    for node_id in (1, 2, 3):
        cluster.until(lambda node_id=node_id: cluster.live_brokers(node_id) == {1, 2, 3})
        brokers = metadata(cluster, node_id).brokers
        assert {(each.node_id, each.host) for each in brokers} == {
            (number, f"node-{number}") for number in (1, 2, 3)
        }
    cluster.until(lambda: set(cluster.image(1).controllers) == {1, 2, 3})


def test_a_topic_created_at_any_node_exists_on_all_nodes() -> None:
    cluster = three_nodes()
    for node_id in (1, 2, 3):
        name = f"topic-{node_id}"
        response = cluster.ask(node_id, creation(name, replicas=3), 7)
        assert response.topics[0].error_code == ErrorCode.NONE
        for other in (1, 2, 3):
            cluster.until(
                lambda other=other, name=name: cluster.image(other).topics.by_name(name) is not None
            )
            partitions = metadata(cluster, other, name).topics[0].partitions
            assert all(sorted(each.replica_nodes) == [1, 2, 3] for each in partitions)


@pytest.mark.parametrize("version", [0, 4, 7])
def test_the_response_to_a_forwarded_request_has_the_version_of_the_request(version: int) -> None:
    cluster = three_nodes()
    asked = next(node_id for node_id in (1, 2, 3) if node_id != cluster.active)
    response = cluster.ask(asked, creation("t"), version)
    assert response.topics[0].error_code == ErrorCode.NONE
    again = cluster.ask(asked, creation("t"), version)
    assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_requests_succeed_after_the_active_controller_dies() -> None:
    cluster = three_nodes()
    dead = cluster.active
    asked = next(node_id for node_id in (1, 2, 3) if node_id != dead)
    cluster.kill(dead)
    response = cluster.ask(asked, creation("t", replicas=2), 7)
    assert response.topics[0].error_code == ErrorCode.NONE
    cluster.until(lambda: cluster.live_brokers(asked) == {1, 2, 3} - {dead})
    assert cluster.active != dead


def test_a_dead_broker_is_fenced_long_before_its_session_ends() -> None:
    cluster = three_nodes()
    active = cluster.active
    dead = next(node_id for node_id in (1, 2, 3) if node_id != active)
    killed_ms = cluster.world.scheduler.now_ms
    cluster.kill(dead)
    cluster.until(lambda: dead not in cluster.live_brokers(active))
    assert cluster.world.scheduler.now_ms - killed_ms < 300


def test_metadata_lists_a_dead_broker_for_two_more_seconds() -> None:
    cluster = three_nodes()
    asked = cluster.active
    dead = next(node_id for node_id in (1, 2, 3) if node_id != asked)
    cluster.ask(asked, creation("t", replicas=3), 7)
    cluster.kill(dead)
    cluster.until(lambda: dead not in cluster.live_brokers(asked))
    response = metadata(cluster, asked, "t")
    assert {each.node_id for each in response.brokers} == {1, 2, 3}
    for partition in response.topics[0].partitions:
        assert partition.leader_id not in (dead, -1)
        assert partition.offline_replicas == [dead]
    cluster.world.run_for(2_000)
    brokers = metadata(cluster, asked).brokers
    assert {each.node_id for each in brokers} == {1, 2, 3} - {dead}


def leaders_in(response: object) -> set[int]:
    return {each.leader_id for each in response.topics[0].partitions}


def test_metadata_requests_wait_for_the_election_after_a_leader_died() -> None:
    cluster = three_nodes()
    asked = cluster.active
    dead = next(node_id for node_id in (1, 2, 3) if node_id != asked)
    cluster.ask(asked, creation("t", replicas=3), 7)
    cluster.until(lambda: leaders_in(metadata(cluster, asked, "t")) == {1, 2, 3})
    cluster.world.run_for(1_000)
    cluster.kill(dead)
    cluster.world.run_for(10)
    # The controller has not noticed the death yet.
    assert dead in cluster.live_brokers(asked)
    assert leaders_in(metadata(cluster, asked, "t")) == {1, 2, 3} - {dead}


def test_metadata_requests_wait_a_second_for_a_leader_that_lives() -> None:
    cluster = three_nodes()
    asked = cluster.active
    other = next(node_id for node_id in (1, 2, 3) if node_id != asked)
    cluster.ask(asked, creation("t", replicas=3), 7)
    cluster.until(lambda: leaders_in(metadata(cluster, asked, "t")) == {1, 2, 3})
    cluster.world.run_for(1_000)
    assert cluster.world.network.reset_connections(f"node-{asked}", f"node-{other}")
    cluster.world.run_for(10)
    begin_ms = cluster.world.scheduler.now_ms
    assert leaders_in(metadata(cluster, asked, "t")) == {1, 2, 3}
    assert 900 < cluster.world.scheduler.now_ms - begin_ms < 1_100
    # Later requests do not wait.
    assert leaders_in(metadata(cluster, asked, "t")) == {1, 2, 3}
    assert cluster.world.scheduler.now_ms - begin_ms < 1_100


def test_a_held_metadata_request_ends_with_its_connection() -> None:
    cluster = three_nodes()
    asked = cluster.active
    dead = next(node_id for node_id in (1, 2, 3) if node_id != asked)
    cluster.ask(asked, creation("t", replicas=3), 7)
    cluster.until(lambda: leaders_in(metadata(cluster, asked, "t")) == {1, 2, 3})
    cluster.world.run_for(1_000)
    cluster.kill(dead)
    cluster.world.run_for(10)
    outcome = cluster.send(asked, MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
    cluster.world.run_for(10)
    assert not outcome
    cluster.disconnect(asked)
    cluster.until(lambda: dead not in cluster.live_brokers(asked))
    cluster.world.run_for(100)
    assert not cluster.failures
    assert leaders_in(metadata(cluster, asked, "t")) == {1, 2, 3} - {dead}


def test_the_broker_of_a_dead_controller_is_fenced_by_the_next_one() -> None:
    cluster = three_nodes()
    dead = cluster.active
    other = next(node_id for node_id in (1, 2, 3) if node_id != dead)
    killed_ms = cluster.world.scheduler.now_ms
    cluster.kill(dead)
    cluster.until(lambda: dead not in cluster.live_brokers(other))
    assert cluster.world.scheduler.now_ms - killed_ms < 2_000


class EndsConnections:
    """Accepts connections for a node, and closes them if the node is down."""

    def on_connected(self, stream: Stream) -> None:
        stream.close()

    def get_buffer(self, size_hint: int) -> bytearray:
        return bytearray(max(size_hint, 1))

    def on_received(self, count: int) -> None: ...

    def on_writable_changed(self, writable: bool) -> None: ...

    def on_closed(self, error: Exception | None) -> None: ...


def test_a_dead_controller_s_broker_behind_a_relay_is_fenced_by_the_next_one() -> None:
    cluster = three_nodes()
    dead = cluster.active
    other = next(node_id for node_id in (1, 2, 3) if node_id != dead)
    killed_ms = cluster.world.scheduler.now_ms
    cluster.kill(dead)
    relay = cluster.world.host(f"node-{dead}")
    relay.start()
    for port in (CLIENT_PORT, CONTROLLER_PORT):
        relay.runtime.sockets.listen(f"node-{dead}", port, EndsConnections)
    cluster.until(lambda: dead not in cluster.live_brokers(other))
    assert cluster.world.scheduler.now_ms - killed_ms < 2_000


def test_nodes_that_are_restarted_in_turn_rejoin() -> None:
    cluster = three_nodes()
    assert cluster.ask(1, creation("t", replicas=3), 7).topics[0].error_code == ErrorCode.NONE
    for node_id in (1, 2, 3):
        before = cluster.image(node_id).brokers[node_id].epoch
        cluster.stop(node_id)
        cluster.launch(node_id)
        cluster.until(lambda: cluster.ready == {1, 2, 3})
        assert cluster.image(node_id).brokers[node_id].epoch > before
    for node_id in (1, 2, 3):
        cluster.until(lambda node_id=node_id: cluster.live_brokers(node_id) == {1, 2, 3})


def test_a_killed_and_restarted_broker_is_unfenced_soon() -> None:
    cluster = three_nodes()
    dead = next(node_id for node_id in (1, 2, 3) if node_id != cluster.active)
    cluster.kill(dead)
    started_ms = cluster.world.scheduler.now_ms
    cluster.launch(dead)
    cluster.until(lambda: dead in cluster.ready)
    assert cluster.world.scheduler.now_ms - started_ms < 3_000


def test_brokers_and_controllers_may_be_separate_processes() -> None:
    roles = {1: "broker", 2: "broker", 101: "controller", 102: "controller", 103: "controller"}
    cluster = SimulatedCluster(roles).start()
    assert cluster.ask(1, creation("t", replicas=2), 7).topics[0].error_code == ErrorCode.NONE
    cluster.until(lambda: cluster.image(2).topics.by_name("t") is not None)
    cluster.kill(cluster.active)
    assert cluster.ask(2, creation("u", replicas=2), 7).topics[0].error_code == ErrorCode.NONE
    cluster.stop(2)
    cluster.until(lambda: cluster.live_brokers(1) == {1})


def test_a_single_controller_serves_several_brokers() -> None:
    roles = {1: "broker,controller", 2: "broker", 3: "broker"}
    cluster = SimulatedCluster(roles).start()
    assert cluster.ask(3, creation("t", replicas=3), 7).topics[0].error_code == ErrorCode.NONE
    for node_id in roles:
        cluster.until(lambda node_id=node_id: cluster.live_brokers(node_id) == {1, 2, 3})


def test_producer_ids_of_several_brokers_differ() -> None:
    cluster = three_nodes()
    ids = [
        cluster.ask(
            node_id, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4
        ).producer_id
        for node_id in (1, 2, 3, 1)
    ]
    assert len(set(ids)) == 4
    assert min(ids) >= 0


def test_every_node_describes_the_quorum() -> None:
    cluster = three_nodes()
    asked = DescribeQuorumRequest(
        topics=[
            TopicDataRequest(
                topic_name="__cluster_metadata",
                partitions=[PartitionDataRequest(partition_index=0)],
            )
        ]
    )
    for node_id in (1, 2, 3):
        response = cluster.ask(node_id, asked, 2)
        partition = response.topics[0].partitions[0]
        assert partition.leader_id == cluster.active
        assert [each.replica_id for each in partition.current_voters] == [1, 2, 3]
        assert [each.node_id for each in response.nodes] == [1, 2, 3]


def test_a_controllers_listener_shows_the_controllers() -> None:
    cluster = three_nodes()
    cluster.until(lambda: set(cluster.image(2).controllers) == {1, 2, 3})
    request = describing(2)
    response = cluster.ask(2, request, 1, CONTROLLER_PORT)
    assert response.controller_id == cluster.active
    assert {(each.broker_id, each.host, each.port) for each in response.brokers} == {
        (number, f"node-{number}", CONTROLLER_PORT) for number in (1, 2, 3)
    }
    refused = cluster.ask(2, describing(1), 1, CONTROLLER_PORT)
    assert refused.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_a_controllers_listener_advertises_what_it_serves() -> None:
    cluster = three_nodes()
    response = cluster.ask(1, ApiVersionsRequest(), 2, CONTROLLER_PORT)
    assert {each.api_key: (each.min_version, each.max_version) for each in response.api_keys} == {
        key: (api.first_version, api.last_version) for key, api in CONTROLLER_APIS.items()
    }


def test_controllers_serve_the_apis_of_kafkas_controllers() -> None:
    of_controllers = {key for key, row in API_ROWS.items() if "controller" in row.listeners}
    assert CONTROLLER_APIS.keys() == of_controllers


def test_an_inactive_controller_returns_not_controller() -> None:
    cluster = three_nodes()
    passive = next(node_id for node_id in (1, 2, 3) if node_id != cluster.active)
    heartbeat = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=1,
        current_metadata_offset=1,
        want_fence=False,
        want_shut_down=False,
    )
    response = cluster.ask(passive, heartbeat, 1, CONTROLLER_PORT)
    assert response.error_code == ErrorCode.NOT_CONTROLLER
    direct = cluster.ask(passive, creation("t"), 7, CONTROLLER_PORT)
    assert direct.topics[0].error_code == ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize(
    ("principal", "data", "error"),
    [
        (None, b"", ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (b"\x00\x09junk", b"", ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (b"\x00\x00\x05User\x02x\x00\x00", b"", ErrorCode.INVALID_REQUEST),
        # Produce is nothing that brokers forward.
        (b"\x00\x00\x05User\x02x\x00\x00", bytes(12), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_malformed_envelope_is_refused(
    principal: bytes | None, data: bytes, error: ErrorCode
) -> None:
    cluster = three_nodes()
    envelope = EnvelopeRequest(
        request_data=data, request_principal=principal, client_host_address=bytes(4)
    )
    response = cluster.ask(cluster.active, envelope, 0, CONTROLLER_PORT)
    assert response.error_code == error


def test_a_request_is_answered_if_no_controller_is_found_before_its_timeout() -> None:
    cluster = three_nodes()
    for node_id in (2, 3):
        cluster.kill(node_id)
    response = cluster.ask(1, creation("t", timeout_ms=3_000), 7)
    assert response.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT


def test_one_of_several_nodes_does_not_start_a_separate_cluster() -> None:
    cluster = SimulatedCluster(dict.fromkeys((1, 2, 3), "broker,controller"), cluster_id="")
    cluster.launch(1)
    cluster.until(lambda: 1 in cluster.failures)
    assert isinstance(cluster.failures[1], InconsistentDirectoryError)
    assert "--set cluster.id=UUID" in str(cluster.failures[1])


def test_a_directory_of_another_cluster_is_refused() -> None:
    cluster = three_nodes()
    cluster.kill(1)
    cluster.settings["cluster.id"] = "AAAAAAAAAAAAAAAAAAAAAg"
    with pytest.raises(InconsistentDirectoryError, match="AAAAAAAAAAAAAAAAAAAAAQ"):
        cluster.launch(1)


def test_a_broker_that_cannot_register_stops() -> None:
    cluster = SimulatedCluster(
        dict.fromkeys((1, 2, 3), "broker,controller"),
        initial_broker_registration_timeout_ms="5000",
    )
    cluster.launch(1)
    cluster.until(lambda: 1 in cluster.failures)
    assert "initial.broker.registration.timeout.ms" in str(cluster.failures[1])


def test_a_node_that_waits_for_a_quorum_logs_the_silent_voters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = SimulatedCluster(dict.fromkeys((1, 2, 3), "broker,controller"))
    cluster.launch(1)
    cluster.world.run_for(4_000)
    assert "no response from voter 2 at node-2:9093, 3 at node-3:9093" in caplog.text


def test_closed_connections_fence_no_broker() -> None:
    cluster = three_nodes()
    assert cluster.ask(1, creation("t", replicas=3), 7).topics[0].error_code == ErrorCode.NONE
    active = cluster.active
    other = next(node_id for node_id in (1, 2, 3) if node_id != active)
    leaders = led_by(cluster, active)
    for _ in range(5):
        assert cluster.world.network.reset_connections(f"node-{active}", f"node-{other}")
        cluster.world.run_for(1_500)
        assert cluster.live_brokers(active) == {1, 2, 3}
    assert led_by(cluster, active) == leaders


def test_a_listener_that_closes_idle_connections_fences_no_broker() -> None:
    cluster = three_nodes()
    active = cluster.active
    controller = cluster.nodes[active].controller
    assert controller is not None
    for _ in range(3):
        for listener in controller.listeners:
            for connection in listener.connections:
                connection.close()
        cluster.world.run_for(1_500)
        assert cluster.live_brokers(active) == {1, 2, 3}


def led_by(cluster: SimulatedCluster, node_id: int) -> list[tuple[int, int]]:
    """Leader and leader epoch of each partition of topic t, as a node has it."""
    partitions = cluster.image(node_id).topics.by_name("t").partitions
    return [(each.leader, each.leader_epoch) for _, each in sorted(partitions.items())]


def test_an_isolated_broker_is_unfenced_when_it_returns() -> None:
    cluster = three_nodes()
    active = cluster.active
    lost, other = (node_id for node_id in (1, 2, 3) if node_id != active)
    for peer in (active, other):
        cluster.world.network.partition(f"node-{lost}", f"node-{peer}")
    cluster.until(lambda: lost not in cluster.live_brokers(other))
    cluster.world.network.heal()
    cluster.until(lambda: cluster.live_brokers(other) == {1, 2, 3})
    cluster.until(lambda: cluster.live_brokers(lost) == {1, 2, 3})


def test_a_mutation_quota_applies_at_every_broker() -> None:
    cluster = three_nodes()
    quota = AlterClientQuotasRequest(
        entries=[
            EntryDataRequest(
                entity=[EntityDataRequest(entity_type="client-id", entity_name="client")],
                ops=[OpData(key="controller_mutation_rate", value=0.1, remove=False)],
            )
        ],
        validate_only=False,
    )
    assert cluster.ask(1, quota, 1).entries[0].error_code == ErrorCode.NONE
    cluster.until(
        lambda: all(cluster.nodes[node_id].shared.quotas.is_active for node_id in (1, 2, 3))
    )
    passive = next(node_id for node_id in (1, 2, 3) if node_id != cluster.active)
    first = cluster.ask(passive, creation("first"), 7)
    assert first.topics[0].error_code == ErrorCode.NONE
    second = cluster.ask(passive, creation("second"), 7)
    assert second.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert second.throttle_time_ms > 0


def test_broker_configs_are_altered_at_a_controller_and_at_the_broker_itself() -> None:
    cluster = three_nodes()
    active = cluster.active
    passive, other = (node_id for node_id in (1, 2, 3) if node_id != active)
    for port, asked, wanted in (
        (CONTROLLER_PORT, active, ErrorCode.NONE),
        (CLIENT_PORT, passive, ErrorCode.NONE),
        (CLIENT_PORT, other, ErrorCode.INVALID_REQUEST),
    ):
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=4,
                    resource_name=str(passive),
                    configs=[
                        AlterableConfig(
                            name="log.retention.ms", config_operation=0, value=f"{port}"
                        )
                    ],
                )
            ],
            validate_only=False,
        )
        response = cluster.ask(asked, request, 1, port)
        assert response.responses[0].error_code == wanted
        if wanted is ErrorCode.NONE:
            cluster.until(
                lambda port=port: (
                    cluster.nodes[passive].shared.dynamic.current["log.retention.ms"] == port
                )
            )


def test_a_stopping_broker_hands_over_its_leaderships_first() -> None:
    cluster = three_nodes()
    assert cluster.ask(1, creation("t", replicas=3), 7).topics[0].error_code == ErrorCode.NONE
    stopping = next(node_id for node_id in (1, 2, 3) if node_id != cluster.active)
    stayer = next(node_id for node_id in (1, 2, 3) if node_id != stopping)
    stopped: list[bool] = []
    cluster.nodes[stopping].stop(lambda: stopped.append(True))
    cluster.until(lambda: all(leader != stopping for leader, _ in led_by(cluster, stayer)))
    assert not stopped
    cluster.until(lambda: bool(stopped))
    assert stopping not in cluster.live_brokers(stayer)


def test_static_voters_cannot_change_and_live_controllers_cannot_be_unregistered() -> None:
    cluster = three_nodes()
    cluster.until(lambda: set(cluster.image(1).controllers) == {1, 2, 3})
    add = AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=ENOUGH_MS,
        voter_id=4,
        voter_directory_id=bytes(15) + b"4",
        listeners=[Listener(name="CONTROLLER", host="node-4", port=CONTROLLER_PORT)],
        ack_when_committed=True,
    )
    remove = RemoveRaftVoterRequest(
        cluster_id=None, voter_id=3, voter_directory_id=bytes(15) + b"3"
    )
    for node_id in (1, 2, 3):
        # kraft.version is 0, as static voters have it.
        assert cluster.ask(node_id, add, 1).error_code == ErrorCode.UNSUPPORTED_VERSION
        assert cluster.ask(node_id, remove, 0).error_code == ErrorCode.UNSUPPORTED_VERSION
        forget = UnregisterControllerRequest(controller_id=9)
        refused = cluster.ask(node_id, forget, 0)
        assert refused.error_code != ErrorCode.NONE
        assert "controller 9" in refused.error_message


def test_a_node_without_a_known_leader_for_a_while_stays_unfenced() -> None:
    cluster = three_nodes()
    active = cluster.active
    other = next(node_id for node_id in (1, 2, 3) if node_id != active)
    channels = cluster.nodes[other]._channels
    assert channels is not None
    leaderless: list[bool] = []
    dependencies = channels.heartbeats._dependencies
    without_leader = msgspec.structs.replace(
        dependencies, find_controller=lambda: leaderless.append(True)
    )
    channels.heartbeats._dependencies = without_leader
    channels.on_leader_change(LeaderAndEpoch(NO_LEADER, 2))
    cluster.world.run_for(1_000)
    assert leaderless
    assert cluster.live_brokers(active) == {1, 2, 3}


@pytest.mark.parametrize("node_id", [1, 2, 3])
def test_an_unregistered_live_broker_registers_again_and_rejoins_the_isr(node_id: int) -> None:
    cluster = three_nodes()
    assert cluster.ask(1, creation("t", replicas=3), 7).topics[0].error_code == ErrorCode.NONE
    answer = cluster.ask(1, UnregisterBrokerRequest(broker_id=node_id), 0)
    assert answer.error_code == ErrorCode.NONE
    cluster.until(lambda: cluster.live_brokers(1) == {1, 2, 3}, 5_000)

    def isrs() -> list[list[int]]:
        partitions = cluster.image(1).topics.by_name("t").partitions.values()
        return [sorted(each.isr) for each in partitions]

    cluster.until(lambda: all(each == [1, 2, 3] for each in isrs()), 20_000)
    assert not cluster.failures
