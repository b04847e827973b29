"""Rights across nodes: forwarded requests, requests of nodes, and listeners of controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.network.principal import Principal
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.configs import (
    AlterClientQuotasRequest,
    EntityDataRequest,
    EntryDataRequest,
    OpData,
)
from barnabas.protocol.messages.connection import ApiVersionsRequest
from barnabas.protocol.messages.metadata import DescribeClusterRequest
from barnabas.protocol.messages.nodes import (
    AllocateProducerIdsRequest,
    BrokerHeartbeatRequest,
    EnvelopeRequest,
)
from barnabas.protocol.messages.quorum import VoteRequest
from barnabas.protocol.messages.security import CreateAclsRequest
from barnabas.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.resources import AclOperation, AclResourceType
from barnabas.server.dispatch.envelope import read_principal
from unit.server.security.authorizer.secured_broker import MARY, SETTINGS, allowing, log_in
from unit.server.simulated_cluster import (
    CLIENT_PORT,
    CONTROLLER_PORT,
    SimulatedCluster,
    three_nodes,
)

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
CLUSTER_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_SETTINGS = {key.replace(".", "_"): value for key, value in SETTINGS.items()}


class SecuredCluster:
    """Three nodes; the nodes may do everything, and one client of the test is mary."""

    def __init__(self) -> None:
        self.nodes: SimulatedCluster = three_nodes(**_SETTINGS)

    def as_mary(self, node_id: int, port: int = CLIENT_PORT, principal: Principal = MARY) -> None:
        """From now on, the client of a node and port is mary."""
        self.nodes.ask(node_id, ApiVersionsRequest(), 0, port)
        node = self.nodes.nodes[node_id]
        role = node.broker if port == CLIENT_PORT else node.controller
        assert role is not None
        client = f"client-{self.nodes._connections}"
        log_in(role.listeners[0].connections, client, principal)

    def allow(self, *acls: Any) -> None:
        """Create entries, and wait until all nodes have them."""
        node_id = self.nodes.active
        created = self.nodes.ask(
            node_id, CreateAclsRequest(creations=list(acls)), 3, CONTROLLER_PORT
        )
        assert all(each.error_code == 0 for each in created.results), created
        self.nodes.until(
            lambda: all(len(self.nodes.image(each).acls) == len(acls) for each in (1, 2, 3))
        )


@pytest.fixture
def cluster() -> SecuredCluster:
    return SecuredCluster()


def creation(name: str) -> CreateTopicsRequest:
    new = CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[new], timeout_ms=5000)


def heartbeat(broker_id: int, epoch: int) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=epoch,
        current_metadata_offset=0,
        want_fence=False,
        want_shut_down=False,
    )


def test_the_controller_checks_the_principal_of_a_forwarded_request(
    cluster: SecuredCluster,
) -> None:
    active = cluster.nodes.active
    other = next(each for each in (1, 2, 3) if each != active)
    for node_id in (active, other):
        cluster.as_mary(node_id)
        answer = cluster.nodes.ask(node_id, creation("mine"), 5)
        assert answer.topics[0].error_code == REFUSED
    cluster.allow(allowing(AclOperation.CREATE, "mine"))
    assert cluster.nodes.ask(other, creation("mine"), 5).topics[0].error_code == ErrorCode.NONE


def test_an_envelope_carries_type_and_token_of_a_principal(cluster: SecuredCluster) -> None:
    active = cluster.nodes.active
    other = next(each for each in (1, 2, 3) if each != active)
    robot = Principal("r2", "Robot", is_token=True)
    cluster.as_mary(other, principal=robot)
    seen: list[Principal] = []
    node = cluster.nodes.nodes[active]
    assert node.controller is not None
    listener = node.controller.listeners[0]
    for connection in listener.connections:
        before = connection.on_request

        def watch(connection: Any, frame: memoryview, before: Any = before) -> None:
            if int.from_bytes(frame[:2]) == EnvelopeRequest.__api_key__:
                from barnabas.protocol.codec import decode, decode_request_header

                offset = decode_request_header(frame)[4]
                envelope = decode(EnvelopeRequest, 0, frame, offset)
                seen.append(read_principal(envelope))
            before(connection, frame)

        connection.on_request = watch
    cluster.nodes.ask(other, creation("mine"), 5)
    assert seen == [robot]


@pytest.mark.parametrize(
    ("request_of", "version"),
    [
        (EnvelopeRequest(request_data=b"", request_principal=None, client_host_address=b""), 0),
        (AllocateProducerIdsRequest(broker_id=1, broker_epoch=1), 0),
        (heartbeat(1, 1), 1),
        (VoteRequest(cluster_id=None, topics=[]), 0),
        (DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2), 1),
    ],
    ids=lambda each: type(each).__name__ if not isinstance(each, int) else "",
)
def test_requests_of_nodes_need_the_rights_of_nodes(
    cluster: SecuredCluster, request_of: Message, version: int
) -> None:
    active = cluster.nodes.active
    cluster.as_mary(active, CONTROLLER_PORT)
    answer = cluster.nodes.ask(active, request_of, version, CONTROLLER_PORT)
    assert answer.error_code == CLUSTER_REFUSED


def test_a_client_cannot_pass_for_the_heartbeats_of_a_broker(cluster: SecuredCluster) -> None:
    active = cluster.nodes.active
    victim = next(each for each in (1, 2, 3) if each != active)
    cluster.as_mary(active, CONTROLLER_PORT)
    epoch = cluster.nodes.image(active).brokers[victim].epoch
    cluster.nodes.ask(active, heartbeat(victim, epoch), 1, CONTROLLER_PORT)
    cluster.nodes.disconnect(active, CONTROLLER_PORT)
    cluster.nodes.world.run_for(1000.0)
    assert cluster.nodes.live_brokers(active) == {1, 2, 3}


def test_a_right_on_the_cluster_lets_a_client_do_what_brokers_do(cluster: SecuredCluster) -> None:
    active = cluster.nodes.active
    cluster.allow(allowing(AclOperation.CLUSTER_ACTION, "kafka-cluster", AclResourceType.CLUSTER))
    cluster.as_mary(active, CONTROLLER_PORT)
    request = AllocateProducerIdsRequest(broker_id=99, broker_epoch=1)
    answer = cluster.nodes.ask(active, request, 0, CONTROLLER_PORT)
    assert answer.error_code not in (CLUSTER_REFUSED, ErrorCode.NONE)


def quota(entity: dict[str, str | None], key: str, value: float) -> AlterClientQuotasRequest:
    parts = [EntityDataRequest(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    ops = [OpData(key=key, value=value, remove=False)]
    entry = EntryDataRequest(entity=parts, ops=ops)
    return AlterClientQuotasRequest(entries=[entry], validate_only=False)


def test_the_controller_counts_mutations_for_the_principal_of_a_forwarded_request(
    cluster: SecuredCluster,
) -> None:
    nodes = cluster.nodes
    active = nodes.active
    other = next(each for each in (1, 2, 3) if each != active)
    cluster.allow(*(allowing(AclOperation.CREATE, name) for name in ("first", "second", "third")))
    for request in (
        quota({"user": MARY.name}, "controller_mutation_rate", 0.05),
        quota({"user": None, "client-id": None}, "request_percentage", 1e6),
    ):
        answer = nodes.ask(active, request, 1, CONTROLLER_PORT)
        assert answer.entries[0].error_code == ErrorCode.NONE
    quotas = {each: nodes.nodes[each].shared.quotas for each in (active, other)}
    nodes.until(
        lambda: all(
            each.mutation.has_limits and each.request.has_limits for each in quotas.values()
        )
    )
    cluster.as_mary(other)
    assert nodes.ask(other, creation("first"), 7).topics[0].error_code == ErrorCode.NONE
    refused = nodes.ask(other, creation("second"), 7)
    assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert refused.throttle_time_ms > 0
    # Mary is over the quota at every broker.
    cluster.as_mary(active)
    answer = nodes.ask(active, creation("third"), 7)
    assert answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    ((user, client_id, _),) = quotas[active].mutation.usage()
    assert (user, client_id) == (MARY.name, "")
    # Quotas of clients do not apply to the broker that forwards.
    assert {client_id for _, client_id, _ in quotas[active].request.usage()} == {"client"}
    assert MARY.name in {user for user, _, _ in quotas[other].request.usage()}
