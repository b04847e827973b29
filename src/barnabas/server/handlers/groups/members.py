"""Requests of group members, and ListGroups and DeleteGroups.

Most handlers pass the request to the group coordinator. LeaveGroup with many members is split, so
that other requests can run in between. The heartbeats of the newer kinds of groups check the
features of the cluster and the rights of the client, which the coordinator does not know.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinator.group.classic.classic_group import failed_join, failed_sync
from barnabas.coordinator.group.classic.classic_membership import ClientIdentity
from barnabas.coordinator.group.consumer.consumer_membership import failed_heartbeat
from barnabas.coordinator.group.consumer.heartbeats import ConsumerHeartbeat
from barnabas.coordinator.group.requests.member_requests import in_version
from barnabas.coordinator.group.share.share_membership import failed_share_heartbeat
from barnabas.coordinator.group.streams.configuring import StreamsStatus
from barnabas.coordinator.group.streams.streams_heartbeat import (
    StreamsClient,
    failed_streams_heartbeat,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import LeaveGroupRequest, LeaveGroupResponse
from barnabas.protocol.messages.streams_groups import (
    Status,
    StreamsGroupTopologyDescriptionUpdateResponse,
)
from barnabas.protocol.resources import AclOperation, AclResourceType
from barnabas.server.cluster.streams_topic_names import topology_problem
from barnabas.server.dispatch.dispatcher import MEMBER_REQUEST_BYTES_MAX
from barnabas.waiting.steps import in_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.coordinator.group.group_coordinator import GroupCoordinator
    from barnabas.coordinator.group.requests.member_requests import MemberRequests
    from barnabas.coordinator.group.streams.streams_heartbeat import StreamsHeartbeatResult
    from barnabas.protocol.messages.groups import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
        DeleteGroupsRequest,
        HeartbeatRequest,
        JoinGroupRequest,
        JoinGroupResponse,
        ListGroupsRequest,
        ListGroupsResponse,
        SyncGroupRequest,
        SyncGroupResponse,
    )
    from barnabas.protocol.messages.share_consumers import (
        ShareGroupHeartbeatRequest,
        ShareGroupHeartbeatResponse,
    )
    from barnabas.protocol.messages.streams_groups import (
        StreamsGroupHeartbeatRequest,
        StreamsGroupHeartbeatResponse,
        StreamsGroupTopologyDescriptionUpdateRequest,
    )
    from barnabas.protocol.schema import Message
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.controller_access.auto_topics import InternalStreamsTopics
    from barnabas.server.dispatch.request import Access, Handle, RequestContext


_CREATE, _DESCRIBE = int(AclOperation.CREATE), int(AclOperation.DESCRIBE)
_CLUSTER, _TOPIC = int(AclResourceType.CLUSTER), int(AclResourceType.TOPIC)
# Number of members that are removed in one turn of the loop and with one record of the group.
MEMBERS_AT_ONCE = 500
_MEMBER_ID_LENGTH_MAX = 36
_CLUSTER_NAME = "kafka-cluster"
_MISSING = int(StreamsStatus.MISSING_INTERNAL_TOPICS)
# Failed topics that a status names.
_NAMED_MAX = 3
_TOO_LARGE = f"The request has more than {MEMBER_REQUEST_BYTES_MAX} bytes."


def client_of(context: RequestContext) -> ClientIdentity:
    """Return the client of a request, with a slash before its address, as Java prints it."""
    return ClientIdentity(context.client_id or "", f"/{context.host}")


def join_group(groups: GroupCoordinator) -> Handle:
    """JoinGroup (key 11, v0-9): join a group or rejoin it.

    v1 adds the rebalance timeout. From v4 on, a new member gets an id first and joins again
    (KIP-394). v5 adds static members (KIP-345), v7 the protocol type (KIP-559), v8 reasons
    (KIP-800) and v9 leaders that skip the assignment (KIP-814). The response
    follows when the next generation of the group begins.
    """
    members = groups.members

    def handle_join_group(context: RequestContext, request: JoinGroupRequest) -> None:
        members.join(request, context.version, client_of(context), context.respond)

    return handle_join_group


def sync_group(groups: GroupCoordinator) -> Handle:
    """SyncGroup (key 14, v0-5): exchange the assignments of a group.

    v3 adds static members (KIP-345), v5 the type and name of the protocol (KIP-559).

    The leader sends the assignments of all members, and each member receives its own. The response
    follows when the leader's assignment is written.
    """
    members = groups.members

    def handle_sync_group(context: RequestContext, request: SyncGroupRequest) -> None:
        members.sync(request, context.version, context.respond)

    return handle_sync_group


def heartbeat(groups: GroupCoordinator) -> Handle:
    """Heartbeat (key 12, v0-4): keep a group member alive, and report a rebalance to it.

    v3 adds static members (KIP-345). The response is immediate unless a write of the group is
    pending.
    """
    members = groups.members

    def handle_heartbeat(context: RequestContext, request: HeartbeatRequest) -> None:
        members.heartbeat(request, context.respond)

    return handle_heartbeat


def list_groups(groups: GroupCoordinator) -> Handle:
    """ListGroups (key 16, v0-5): list groups of this broker (v4 KIP-518, v5 KIP-848)."""

    def handle_list_groups(
        context: RequestContext, request: ListGroupsRequest
    ) -> ListGroupsResponse | None:
        return context.in_slices(groups.groups.list_groups(request))

    return handle_list_groups


def delete_groups(groups: GroupCoordinator) -> Handle:
    """DeleteGroups (key 42, v0-3): delete groups without members (KIP-229).

    v3 adds error messages. The response follows when all of them are deleted or rejected.
    """

    def handle_delete_groups(context: RequestContext, request: DeleteGroupsRequest) -> None:
        context.in_slices(groups.groups.delete(request.groups_names, context.respond))

    return handle_delete_groups


def leave_group(groups: GroupCoordinator) -> Handle:
    """LeaveGroup (key 13, v0-5): remove members (v3 batches, KIP-345; v5 reasons, KIP-800).

    The response follows when the new state of the group is written.
    """
    members = groups.members

    def handle_leave_group(
        context: RequestContext, request: LeaveGroupRequest
    ) -> LeaveGroupResponse | None:
        if len(request.members) <= MEMBERS_AT_ONCE:
            members.leave(request, context.version, context.respond)
            return None
        return context.in_slices(_leave_in_parts(members, context, request))

    return handle_leave_group


def _leave_in_parts(
    members: MemberRequests, context: RequestContext, request: LeaveGroupRequest
) -> Generator[None, None, None]:
    """Split a request with many members into several requests, and merge their responses.

    In Kafka such a request is one operation. Here, other requests can run in between.
    """
    parts = list(in_parts(request.members, MEMBERS_AT_ONCE))
    responses: dict[int, LeaveGroupResponse] = {}

    def collect(index: int) -> Callable[[LeaveGroupResponse], None]:
        def on_done(response: LeaveGroupResponse) -> None:
            responses[index] = response
            if len(responses) == len(parts):
                context.respond(_merge_responses([responses[each] for each in range(len(parts))]))

        return on_done

    for index, some in enumerate(parts):
        part = LeaveGroupRequest(group_id=request.group_id, members=some)
        members.leave(part, context.version, collect(index))
        yield


def _merge_responses(responses: list[LeaveGroupResponse]) -> LeaveGroupResponse:
    """Merge the responses of all parts. The first top-level error is the error of the result."""
    for each in responses:
        if each.error_code != ErrorCode.NONE:
            return LeaveGroupResponse(error_code=each.error_code)
    members = [member for each in responses for member in each.members]
    return LeaveGroupResponse(error_code=ErrorCode.NONE, members=members)


def consumer_group_heartbeat(groups: GroupCoordinator, cluster: ClusterView) -> Handle:
    """ConsumerGroupHeartbeat (key 68, v0-1): membership of consumer groups (KIP-848).

    v1 adds regular expressions and member ids that clients choose (KIP-1082). The response follows
    when its records are committed.
    """
    consumers = groups.consumers

    def handle_consumer_group_heartbeat(
        context: RequestContext, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse | None:
        if not cluster.image.features.has_consumer_groups:
            return failed_heartbeat(ErrorCode.UNSUPPORTED_VERSION, None)
        client = client_of(context)
        heartbeat = ConsumerHeartbeat(request, client, _may_describe(context))
        consumers.heartbeat(heartbeat, context.version, context.respond)
        return None

    return handle_consumer_group_heartbeat


def _may_describe(context: RequestContext) -> Callable[[str], bool]:
    """Return whether the client may describe a topic that its regular expression matches."""
    access = context.access
    if access is None:
        return _always
    return lambda topic: access.allows(_DESCRIBE, _TOPIC, topic, is_logged=False)


def _always(_topic: str) -> bool:
    return True


def share_group_heartbeat(groups: GroupCoordinator, cluster: ClusterView) -> Handle:
    """ShareGroupHeartbeat (key 76, v1): membership of share groups (KIP-932).

    The response follows when its records are committed.
    """
    shares = groups.shares

    def handle_share_group_heartbeat(
        context: RequestContext, request: ShareGroupHeartbeatRequest
    ) -> ShareGroupHeartbeatResponse | None:
        if not cluster.image.features.has_share_groups:
            return failed_share_heartbeat(ErrorCode.UNSUPPORTED_VERSION, None)
        if not 1 <= len(request.member_id) <= _MEMBER_ID_LENGTH_MAX:
            return failed_share_heartbeat(ErrorCode.INVALID_REQUEST, None)
        client = client_of(context)
        shares.heartbeat(request, client, context.respond)
        return None

    return handle_share_group_heartbeat


def streams_group_heartbeat(
    groups: GroupCoordinator, cluster: ClusterView, streams_topics: InternalStreamsTopics
) -> Handle:
    """StreamsGroupHeartbeat (key 88, v0-1): membership of streams groups (KIP-1071).

    v1 can ask for descriptions of topologies (KIP-1331). The response follows when its records are
    committed.
    """
    streams = groups.streams

    def handle_streams_group_heartbeat(
        context: RequestContext, request: StreamsGroupHeartbeatRequest
    ) -> Message | None:
        if not cluster.image.features.has_streams_groups:
            return failed_streams_heartbeat(ErrorCode.UNSUPPORTED_VERSION, None)
        if request.topology is None:
            return serve(context, request, None)
        return context.after(topology_problem(request.topology), partial(serve, context, request))

    def serve(
        context: RequestContext, request: StreamsGroupHeartbeatRequest, problem: str | None
    ) -> StreamsGroupHeartbeatResponse | None:
        if problem is not None:
            return failed_streams_heartbeat(ErrorCode.STREAMS_INVALID_TOPOLOGY, problem)
        identity = client_of(context)

        def respond(heartbeat: StreamsHeartbeatResult) -> None:
            if heartbeat.to_create:
                # Kafka remembers errors for two heartbeats.
                errors_ms = 2 * heartbeat.response.heartbeat_interval_ms
                _create_topics(context.access, streams_topics, heartbeat, errors_ms)
            response = heartbeat.response
            context.respond(response, is_clean=response.error_code == ErrorCode.NONE)

        client = StreamsClient(identity, context.version)
        streams.heartbeat(request, client, respond, context.respond_in_slices)
        return None

    return handle_streams_group_heartbeat


def _create_topics(
    access: Access | None,
    topics: InternalStreamsTopics,
    heartbeat: StreamsHeartbeatResult,
    errors_ms: float,
) -> None:
    """Create the missing internal topics, and add earlier errors to the status."""
    response, to_create = heartbeat.response, heartbeat.to_create
    refused: list[str] = []
    if access is not None and not access.allows(_CREATE, _CLUSTER, _CLUSTER_NAME, is_logged=False):
        refused = [name for name in to_create if not access.allows(_CREATE, _TOPIC, name)]
    statuses = response.status
    assert statuses is not None, "a heartbeat without an error has a list of statuses"
    status = next((each for each in statuses if each.status_code == _MISSING), None)
    if refused:
        message = f"Unauthorized to CREATE on topics {','.join(refused)}."
        if status is None:
            statuses.append(Status(status_code=_MISSING, status_detail=message))
        else:
            status.status_detail += f"; {message}"
        return
    topics.create(to_create, errors_ms)
    errors = topics.errors(to_create)
    if status is None or not errors:
        return
    named = ",".join(f"{name} ({message})" for name, message in list(errors.items())[:_NAMED_MAX])
    if len(errors) > _NAMED_MAX:
        named += f" and {len(errors) - _NAMED_MAX} more"
    status.status_detail += f"; Creation failed: {named}."


_NO_PLUGIN = "The broker has no streams group topology description plugin configured."


def streams_group_topology_description_update(cluster: ClusterView) -> Handle:
    """StreamsGroupTopologyDescriptionUpdate (key 93, v0): descriptions of topologies (KIP-1331).

    Kafka passes descriptions to a plugin. Without a plugin, which is the default, it refuses them.
    A client sends a description only if a heartbeat has asked for it, which needs a plugin as well.
    """

    def handle_topology_description_update(
        _context: RequestContext, _request: StreamsGroupTopologyDescriptionUpdateRequest
    ) -> StreamsGroupTopologyDescriptionUpdateResponse:
        error = ErrorCode.UNSUPPORTED_VERSION
        is_enabled = cluster.image.features.has_streams_groups
        return failed_description_update(error, _NO_PLUGIN if is_enabled else error.message)

    return handle_topology_description_update


def failed_description_update(
    error: ErrorCode, message: str
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    """Return the response with an error."""
    return StreamsGroupTopologyDescriptionUpdateResponse(error_code=error, error_message=message)


def refuse_large_join(version: int) -> JoinGroupResponse:
    """Return the response to a JoinGroup that is too large."""
    return in_version(failed_join("", ErrorCode.GROUP_MAX_SIZE_REACHED), version)


def refuse_large_sync(_version: int) -> SyncGroupResponse:
    """Return the response to a SyncGroup that is too large."""
    # Kafka's error for an assignment that does not fit into a batch.
    return failed_sync(ErrorCode.UNKNOWN_SERVER_ERROR)


def refuse_large_consumer_heartbeat(_version: int) -> ConsumerGroupHeartbeatResponse:
    """Return the response to a ConsumerGroupHeartbeat that is too large."""
    return failed_heartbeat(ErrorCode.INVALID_REQUEST, _TOO_LARGE)


def refuse_large_share_heartbeat(_version: int) -> ShareGroupHeartbeatResponse:
    """Return the response to a ShareGroupHeartbeat that is too large."""
    return failed_share_heartbeat(ErrorCode.INVALID_REQUEST, _TOO_LARGE)


def refuse_large_streams_heartbeat(_version: int) -> StreamsGroupHeartbeatResponse:
    """Return the response to a StreamsGroupHeartbeat that is too large."""
    return failed_streams_heartbeat(ErrorCode.INVALID_REQUEST, _TOO_LARGE)
