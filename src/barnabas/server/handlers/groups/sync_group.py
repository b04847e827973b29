"""SyncGroup (key 14, v0-5): exchange the assignments of a group (v5 KIP-559).

The leader sends the assignments of all members, and each member receives its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.protocol.messages.sync_group import SyncGroupRequest
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that exchanges assignments of groups."""
    return SyncGroupHandler(dependencies).handle_sync_group


class SyncGroupHandler:
    """Passes the request to the group coordinator."""

    __slots__ = ("_members",)

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._members = dependencies.groups.members

    def handle_sync_group(self, context: RequestContext, request: SyncGroupRequest) -> None:
        """Exchange assignments. The response follows when the leader's assignment is written."""
        self._members.sync(request, context.version, context.respond)
