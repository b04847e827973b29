"""Heartbeat (key 12, v0-4): keep a group member alive, and tell it about a rebalance."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.heartbeat import HeartbeatRequest
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that processes heartbeats of group members."""
    return HeartbeatHandler(dependencies).handle_heartbeat


class HeartbeatHandler:
    """Passes the request to the group coordinator."""

    __slots__ = ("_members",)

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._members = dependencies.groups.members

    def handle_heartbeat(self, context: RequestContext, request: HeartbeatRequest) -> None:
        """Process a heartbeat. The response is immediate unless a write of the group is pending."""
        self._members.heartbeat(request, context.respond)
