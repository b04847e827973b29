"""Admin calls find their broker, and look it up again after an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.client.admin.groups import delete_groups
from barnabas.client.admin.partitions import delete_records
from barnabas.client.admin.sender import AdminCall, AdminSender, CoordinatorOf, Plan, run
from barnabas.client.connections.lookups import Coordinators
from barnabas.client.connections.metadata_cache import PartitionInfo, TopicInfo
from barnabas.client.errors import BrokerError, ClientTimeoutError, DisconnectedError, broker_error
from barnabas.client.session.session import Waiter
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from barnabas.protocol.messages.log_offsets import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from barnabas.protocol.messages.metadata import Coordinator, FindCoordinatorResponse
from unit.client.admin.answering_cluster import AnsweringCluster
from unit.client.scripted_cluster import TOPIC_ID, HandStepper

LISTING = AdminCall(
    ApiKey.LIST_GROUPS, lambda _version: ListGroupsRequest(), lambda response: response.groups
)


def deleting(groups: list[str]) -> AdminCall[dict[str, object]]:
    """Return a call that deletes groups: True or an error for each."""

    def read(response: DeleteGroupsResponse) -> dict[str, object]:
        return {
            each.group_id: broker_error(each.error_code, "delete") if each.error_code else True
            for each in response.results
        }

    return AdminCall(
        ApiKey.DELETE_GROUPS, lambda _version: DeleteGroupsRequest(groups_names=groups), read
    )


@pytest.fixture
def cluster() -> AnsweringCluster:
    return AnsweringCluster(**{"default.api.timeout.ms": 2000})


class Sender:
    """An `AdminSender` whose plans run to their end at once."""

    def __init__(self, cluster: AnsweringCluster) -> None:
        stepper: Any = HandStepper(cluster.time)
        core: Any = cluster
        self._waiter = Waiter(stepper, lambda: None, 2000)
        self.inner = AdminSender(core, Coordinators(core))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        plan = getattr(self.inner, name)
        return lambda *args, **keys: self.run(plan(*args, **keys))

    def run(self, plan: Plan[Any]) -> Any:
        return run(plan, self._waiter)


@pytest.fixture
def sender(cluster: AnsweringCluster) -> Sender:
    return Sender(cluster)


def coordinated_by(*nodes: int) -> Callable[[int, Any], FindCoordinatorResponse]:
    """FindCoordinator names these nodes, one after the other, then the last for ever."""
    remaining = list(nodes)

    def answer(_node: int, request: Any) -> FindCoordinatorResponse:
        node = remaining.pop(0) if len(remaining) > 1 else remaining[0]
        key = request.coordinator_keys[0]
        found = Coordinator(
            key=key, node_id=node, host="h", port=1, error_code=0, error_message=None
        )
        return FindCoordinatorResponse(coordinators=[found])

    return answer


def deleted_by(right: int) -> Callable[[int, Any], DeleteGroupsResponse]:
    """DeleteGroups works on one node, the others are no coordinators."""

    def answer(node: int, request: Any) -> DeleteGroupsResponse:
        code = 0 if node == right else ErrorCode.NOT_COORDINATOR
        results = [DeletableGroupResult(group_id=g, error_code=code) for g in request.groups_names]
        return DeleteGroupsResponse(results=results)

    return answer


def test_a_moved_coordinator_is_looked_up_again(cluster: AnsweringCluster, sender: Sender) -> None:
    cluster.answers = {
        ApiKey.FIND_COORDINATOR: coordinated_by(1, 2),
        ApiKey.DELETE_GROUPS: deleted_by(2),
    }
    assert sender.send_to_coordinators(["g"], deleting) == {"g": True}
    asked = [node for node, api in cluster.asked if api is ApiKey.DELETE_GROUPS]
    assert asked == [1, 2]


def test_groups_of_one_coordinator_go_in_one_call(
    cluster: AnsweringCluster, sender: Sender
) -> None:
    cluster.answers = {
        ApiKey.FIND_COORDINATOR: lambda node, request: coordinated_by(
            1 if request.coordinator_keys[0] < "c" else 2
        )(node, request),
        ApiKey.DELETE_GROUPS: lambda node, request: deleted_by(node)(node, request),
    }
    found = sender.send_to_coordinators(["a", "b", "c", "a"], deleting)
    assert found == {"a": True, "b": True, "c": True}
    assert [node for node, api in cluster.asked if api is ApiKey.DELETE_GROUPS] == [1, 2]


def test_an_error_that_lasts_is_the_result_of_its_group_alone(
    cluster: AnsweringCluster, sender: Sender
) -> None:
    def answer(_node: int, request: Any) -> DeleteGroupsResponse:
        codes = {"busy": ErrorCode.NON_EMPTY_GROUP, "free": 0}
        results = [
            DeletableGroupResult(group_id=g, error_code=codes[g]) for g in request.groups_names
        ]
        return DeleteGroupsResponse(results=results)

    cluster.answers = {
        ApiKey.FIND_COORDINATOR: coordinated_by(1),
        ApiKey.DELETE_GROUPS: answer,
    }
    found = sender.run(delete_groups(sender.inner, ["busy", "free"], raise_errors=False))
    assert found["free"] is True
    error = found["busy"]
    assert isinstance(error, BrokerError)
    assert "stop them first" in str(error)


def test_a_timeout_raises_the_last_error(cluster: AnsweringCluster, sender: Sender) -> None:
    cluster.answers = {
        ApiKey.FIND_COORDINATOR: coordinated_by(1),
        ApiKey.DELETE_GROUPS: deleted_by(2),
    }
    found = sender.send_to_coordinators(["g"], deleting)["g"]
    assert isinstance(found, BrokerError)
    assert found.error_code == ErrorCode.NOT_COORDINATOR
    assert cluster.time.now <= 2000


def test_requests_for_partitions_follow_leader_changes(
    cluster: AnsweringCluster, sender: Sender
) -> None:
    def led_by(*leaders: int) -> None:
        found = {n: PartitionInfo(n, leader, 4) for n, leader in enumerate(leaders)}
        cluster.metadata.topics = {"t": TopicInfo("t", TOPIC_ID, False, found)}

    def answer(node: int, request: Any) -> DeleteRecordsResponse:
        # Partition 1 has moved from node 2 to node 1.
        results = []
        for entry in request.topics[0].partitions:
            moved = entry.partition_index == 1 and node == 2
            results.append(
                DeleteRecordsPartitionResult(
                    partition_index=entry.partition_index,
                    low_watermark=entry.offset,
                    error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER if moved else 0,
                )
            )
        return DeleteRecordsResponse(
            topics=[DeleteRecordsTopicResult(name="t", partitions=results)]
        )

    led_by(1, 2)
    cluster.answers = {ApiKey.DELETE_RECORDS: answer}
    cluster.on_refresh = [lambda: None, lambda: led_by(1, 1)]
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    offsets = {zero: 5, one: 7}
    found = sender.run(delete_records(sender.inner, offsets))
    assert found == {zero: 5, one: 7}
    assert [node for node, _ in cluster.asked] == [1, 2, 1]


def test_a_coordinator_call_is_retried_after_a_lost_connection(
    cluster: AnsweringCluster, sender: Sender
) -> None:
    ends = [DisconnectedError("h:1", "gone")]

    def answer(node: int, request: Any) -> Any:
        return ends.pop() if ends else deleted_by(1)(node, request)

    cluster.answers = {ApiKey.FIND_COORDINATOR: coordinated_by(1), ApiKey.DELETE_GROUPS: answer}
    assert sender.send(CoordinatorOf("g"), deleting(["g"])) == {"g": True}
    assert cluster.updates_requested


def test_a_call_that_never_succeeds_ends_with_its_last_error(
    cluster: AnsweringCluster, sender: Sender
) -> None:
    cluster.answers = {ApiKey.LIST_GROUPS: lambda _n, _r: DisconnectedError("h:1", "refused")}
    with pytest.raises(ClientTimeoutError, match=r"list groups timed out.*refused"):
        sender.send(1, LISTING)


def test_brokers_that_left_receive_no_calls(cluster: AnsweringCluster, sender: Sender) -> None:
    moments = [[1, 2], [1, 2], [1]]

    def answer(node: int, _request: Any) -> Any:
        if node == 2:
            return DisconnectedError("h:2", "refused")
        return ListGroupsResponse(error_code=0, groups=[])

    cluster.answers = {ApiKey.LIST_GROUPS: answer}

    def brokers() -> Plan[list[int]]:
        yield {}
        return moments.pop(0) if len(moments) > 1 else moments[0]

    found = sender.send_to_brokers(brokers, LISTING)
    assert found == {1: []}
    assert [node for node, _ in cluster.asked] == [1, 2, 1, 2, 1]


def test_a_single_attempt_returns_retriable_errors_as_results(
    cluster: AnsweringCluster, sender: Sender
) -> None:
    cluster.answers = {
        ApiKey.FIND_COORDINATOR: coordinated_by(1),
        ApiKey.DELETE_GROUPS: deleted_by(2),
        ApiKey.LIST_GROUPS: lambda _node, _request: DisconnectedError("h:1", "refused"),
    }
    found = sender.send_to_coordinators(["g"], deleting, once=True)["g"]
    assert isinstance(found, BrokerError)
    assert found.error_code == ErrorCode.NOT_COORDINATOR
    answers = sender.send_each({1: LISTING}, once=True)
    assert isinstance(answers[1], DisconnectedError)
    with pytest.raises(DisconnectedError):
        sender.send(1, LISTING, once=True)
