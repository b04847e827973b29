"""JoinGroup (key 11, v0-9): join a group or rejoin it (v4 KIP-394, v5 KIP-345, v9 KIP-814)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.classic.joining import ClientIdentity

if TYPE_CHECKING:
    from barnabas.protocol.messages.join_group import JoinGroupRequest
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that adds members to groups."""
    return JoinGroupHandler(dependencies).handle_join_group


class JoinGroupHandler:
    """Passes the request to the group coordinator."""

    __slots__ = ("_members",)

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._members = dependencies.groups.members

    def handle_join_group(self, context: RequestContext, request: JoinGroupRequest) -> None:
        """Join the group. The response follows when its next generation begins."""
        host = context.connection.peer.rpartition(":")[0].strip("[]")
        client = ClientIdentity(context.client_id or "", f"/{host}")
        self._members.join(request, context.version, client, context.respond)
