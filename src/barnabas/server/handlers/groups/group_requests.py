"""Group requests that the coordinator serves without help of the handler, one function each.

`broker_apis` names the functions. Each returns the handler of its API.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.server.handlers.groups.client_identity import client_of

if TYPE_CHECKING:
    from barnabas.protocol.messages.groups import (
        DeleteGroupsRequest,
        HeartbeatRequest,
        JoinGroupRequest,
        ListGroupsRequest,
        ListGroupsResponse,
        SyncGroupRequest,
    )
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies


def join_group(dependencies: BrokerDependencies) -> Handle:
    """JoinGroup (key 11, v0-9): join a group or rejoin it (v4 KIP-394, v5 KIP-345, v9 KIP-814).

    The response follows when the next generation of the group begins.
    """
    members = dependencies.groups.members

    def handle_join_group(context: RequestContext, request: JoinGroupRequest) -> None:
        members.join(request, context.version, client_of(context), context.respond)

    return handle_join_group


def sync_group(dependencies: BrokerDependencies) -> Handle:
    """SyncGroup (key 14, v0-5): exchange the assignments of a group (v5 KIP-559).

    The leader sends the assignments of all members, and each member receives its own. The response
    follows when the leader's assignment is written.
    """
    members = dependencies.groups.members

    def handle_sync_group(context: RequestContext, request: SyncGroupRequest) -> None:
        members.sync(request, context.version, context.respond)

    return handle_sync_group


def heartbeat(dependencies: BrokerDependencies) -> Handle:
    """Heartbeat (key 12, v0-4): keep a group member alive, and report a rebalance to it.

    The response is immediate unless a write of the group is pending.
    """
    members = dependencies.groups.members

    def handle_heartbeat(context: RequestContext, request: HeartbeatRequest) -> None:
        members.heartbeat(request, context.respond)

    return handle_heartbeat


def list_groups(dependencies: BrokerDependencies) -> Handle:
    """ListGroups (key 16, v0-5): list groups of this broker (v4 KIP-518, v5 KIP-848)."""
    groups = dependencies.groups.groups

    def handle_list_groups(
        context: RequestContext, request: ListGroupsRequest
    ) -> ListGroupsResponse | None:
        return context.in_slices(groups.list_groups(request))

    return handle_list_groups


def delete_groups(dependencies: BrokerDependencies) -> Handle:
    """DeleteGroups (key 42, v0-3): delete groups without members (KIP-229).

    The response follows when all of them are deleted or rejected.
    """
    groups = dependencies.groups.groups

    def handle_delete_groups(context: RequestContext, request: DeleteGroupsRequest) -> None:
        context.in_slices(groups.delete(request.groups_names, context.respond))

    return handle_delete_groups
