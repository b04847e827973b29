"""Checks of requests for groups of all kinds."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinator.group.classic.classic_group import failed_join, failed_sync
from barnabas.coordinator.group.consumer.consumer_membership import failed_heartbeat
from barnabas.coordinator.group.requests.group_requests import failed_classic_group
from barnabas.coordinator.group.requests.member_requests import failed_group
from barnabas.coordinator.group.requests.share_requests import failed_share_group
from barnabas.coordinator.group.requests.streams_requests import failed_streams_group
from barnabas.coordinator.group.share.share_membership import failed_share_heartbeat
from barnabas.coordinator.group.streams.streams_heartbeat import failed_streams_heartbeat
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import (
    DeletableGroupResult,
    HeartbeatResponse,
    LeaveGroupResponse,
)
from barnabas.protocol.messages.metadata import Coordinator, FindCoordinatorResponse
from barnabas.protocol.messages.streams_groups import StreamsGroupTopologyDescriptionUpdateResponse
from barnabas.server.cluster.streams_topic_names import topology_problem, topology_topics
from barnabas.server.security.authorizer.checks.check import (
    CLUSTER_ACTION,
    DELETE,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    Partial,
    divide,
    refuse_items,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from typing import Any

    from barnabas.protocol.messages.groups import (
        DeleteGroupsRequest,
        DeleteGroupsResponse,
        DescribeGroupsRequest,
        HeartbeatRequest,
        JoinGroupRequest,
        LeaveGroupRequest,
        ListGroupsRequest,
        ListGroupsResponse,
        SyncGroupRequest,
    )
    from barnabas.protocol.messages.metadata import FindCoordinatorRequest
    from barnabas.protocol.messages.streams_groups import (
        StreamsGroupHeartbeatRequest,
        StreamsGroupTopologyDescriptionUpdateRequest,
        Topology,
    )
    from barnabas.protocol.schema import Message
    from barnabas.server.security.authorizer.authorizer import Rights
    from barnabas.server.security.authorizer.checks.check import Verdict


_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
_JOIN_NULL_PROTOCOL_SINCE = 7
_SYNC_PROTOCOL_SINCE = 5
_BATCHED_COORDINATORS_SINCE = 4
_SHARE_COORDINATORS_SINCE = 6
# Types of coordinator keys: group, transactional id, share partition.
_GROUP_KEY, _TRANSACTION_KEY, _SHARE_KEY = 0, 1, 2


def check_join_group(rights: Rights, request: JoinGroupRequest) -> Verdict:
    """Refuse a group that the client may not read."""
    if rights.allows(READ, GROUP, request.group_id):
        return None
    response = failed_join("", _REFUSED)
    response.protocol_name = None if rights.version >= _JOIN_NULL_PROTOCOL_SINCE else ""
    return response


def check_sync_group(rights: Rights, request: SyncGroupRequest) -> Verdict:
    """Refuse a group that the client may not read."""
    names = (request.protocol_type, request.protocol_name)
    if rights.version >= _SYNC_PROTOCOL_SINCE and None in names:
        # Kafka checks the names first.
        return failed_sync(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return None if rights.allows(READ, GROUP, request.group_id) else failed_sync(_REFUSED)


def check_heartbeat(rights: Rights, request: HeartbeatRequest) -> Verdict:
    """Refuse a group that the client may not read."""
    if rights.allows(READ, GROUP, request.group_id):
        return None
    return HeartbeatResponse(error_code=_REFUSED)


def check_leave_group(rights: Rights, request: LeaveGroupRequest) -> Verdict:
    """Refuse a group that the client may not read."""
    if rights.allows(READ, GROUP, request.group_id):
        return None
    return LeaveGroupResponse(error_code=_REFUSED)


def check_describe_groups(
    rights: Rights, request: DescribeGroupsRequest
) -> Generator[None, None, Verdict]:
    """Refuse the groups that the client may not describe."""
    return _refuse_descriptions("groups", failed_classic_group, rights, request)


def _refuse_descriptions(
    field: str, failed: Callable[[str, ErrorCode], Any], rights: Rights, request: Any
) -> Generator[None, None, Verdict]:
    """Refuse the groups that the client may not describe.

    Args:
        field: the name of the request's list of groups.
        failed: returns the description of a group with an error.
        rights: the rights of the client.
        request: the request, which keeps the allowed groups.
    """

    def add_errors(response: Any, refused: list[str]) -> None:
        response.groups = [*(failed(group, _REFUSED) for group in refused), *response.groups]

    return refuse_items(
        request, lambda group: rights.allows(DESCRIBE, GROUP, group), add_errors, field
    )


check_consumer_group_describe = partial(_refuse_descriptions, "group_ids", failed_group)
check_share_group_describe = partial(_refuse_descriptions, "group_ids", failed_share_group)
check_streams_group_describe = partial(_refuse_descriptions, "group_ids", failed_streams_group)


def _check_member_heartbeat(
    failed: Callable[[ErrorCode, None], Message], rights: Rights, request: Any
) -> Verdict | Generator[None, None, Verdict]:
    """Refuse a group that the client may not read, and topics that it may not describe.

    Args:
        failed: returns a response with an error.
        rights: the rights of the client.
        request: the heartbeat of a member of a consumer group or of a share group.
    """
    if not rights.allows(READ, GROUP, request.group_id):
        return failed(_REFUSED, None)
    if not request.subscribed_topic_names:
        return None
    return _check_topics(rights, request.subscribed_topic_names, failed)


check_consumer_group_heartbeat = partial(_check_member_heartbeat, failed_heartbeat)
check_share_group_heartbeat = partial(_check_member_heartbeat, failed_share_heartbeat)


def check_list_groups(rights: Rights, request: ListGroupsRequest) -> Verdict:
    """Omit the groups that the client may not describe."""
    if rights.allows_on_cluster(DESCRIBE, is_logged=False):
        return None

    def amend(response: ListGroupsResponse) -> ListGroupsResponse:
        response.groups = [
            each
            for each in response.groups
            if rights.allows(DESCRIBE, GROUP, each.group_id, is_logged=False)
        ]
        return response

    return Partial(request, amend)


def check_delete_groups(
    rights: Rights, request: DeleteGroupsRequest
) -> Generator[None, None, Verdict]:
    """Refuse the groups that the client may not delete."""
    request.groups_names = list(dict.fromkeys(request.groups_names))
    return refuse_items(
        request,
        lambda group: rights.allows(DELETE, GROUP, group),
        _add_deletion_errors,
        "groups_names",
    )


def _add_deletion_errors(response: DeleteGroupsResponse, refused: list[str]) -> None:
    response.results += [
        DeletableGroupResult(group_id=group, error_code=_REFUSED) for group in refused
    ]


# The right, and the error without it, by type of key.
_KEY_RIGHTS: dict[int, tuple[int, ErrorCode]] = {
    _GROUP_KEY: (GROUP, _REFUSED),
    _TRANSACTION_KEY: (TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}


def check_find_coordinator(
    rights: Rights, request: FindCoordinatorRequest
) -> Verdict | Generator[None, None, Verdict]:
    """Refuse the keys that the client may not describe."""
    is_batched = rights.version >= _BATCHED_COORDINATORS_SINCE
    if request.key_type == _SHARE_KEY:
        # The handler rejects share partitions in older versions.
        is_known = rights.version >= _SHARE_COORDINATORS_SINCE
        if not is_known or rights.allows_on_cluster(CLUSTER_ACTION):
            return None
        error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return FindCoordinatorResponse(
            coordinators=[
                _coordinator(key, error, error.message) for key in request.coordinator_keys
            ]
        )
    if request.key_type not in _KEY_RIGHTS:
        return None
    if is_batched:
        return _check_keys(rights, request)
    resource_type, error = _KEY_RIGHTS[request.key_type]
    if rights.allows(DESCRIBE, resource_type, request.key):
        return None
    return FindCoordinatorResponse(
        error_code=error, error_message=error.message, node_id=-1, host="", port=-1
    )


def _check_keys(rights: Rights, request: FindCoordinatorRequest) -> Generator[None, None, Verdict]:
    resource_type, error = _KEY_RIGHTS[request.key_type]
    keys = request.coordinator_keys
    refused: set[str] = set()
    for key in keys:
        if key not in refused and not rights.allows(DESCRIBE, resource_type, key):
            refused.add(key)
        yield
    if not refused:
        return None
    request.coordinator_keys = [key for key in keys if key not in refused]

    def amend(response: FindCoordinatorResponse) -> FindCoordinatorResponse:
        coordinators = iter(response.coordinators)
        response.coordinators = [
            _coordinator(key, error, "") if key in refused else next(coordinators) for key in keys
        ]
        return response

    return Partial(request, amend)


def _coordinator(key: str, error: ErrorCode, message: str) -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message
    )


def check_streams_group_heartbeat(
    rights: Rights, request: StreamsGroupHeartbeatRequest
) -> Verdict | Generator[None, None, Verdict]:
    """Refuse a group that the client may not read, and topics that it may not describe."""
    if not rights.allows(READ, GROUP, request.group_id):
        return failed_streams_heartbeat(_REFUSED, None)
    if request.topology is None:
        return None
    return _check_topology(rights, request.topology)


def _check_topology(rights: Rights, topology: Topology) -> Generator[None, None, Verdict]:
    if (yield from topology_problem(topology)) is not None:
        # The handler refuses the names.
        return None
    names = yield from topology_topics(topology)
    return (yield from _check_topics(rights, names, failed_streams_heartbeat))


def check_streams_group_topology_description_update(
    rights: Rights, request: StreamsGroupTopologyDescriptionUpdateRequest
) -> Verdict:
    """Refuse a group that the client may not read."""
    if rights.allows(READ, GROUP, request.group_id):
        return None
    return StreamsGroupTopologyDescriptionUpdateResponse(error_code=_REFUSED, error_message=None)


def _check_topics(
    rights: Rights, names: Iterable[str], failed: Callable[[ErrorCode, None], Message]
) -> Generator[None, None, Verdict]:
    """Refuse a heartbeat with topics that the client may not describe."""
    _, refused = yield from divide(
        dict.fromkeys(names), lambda topic: rights.allows(DESCRIBE, TOPIC, topic)
    )
    return failed(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None) if refused else None
