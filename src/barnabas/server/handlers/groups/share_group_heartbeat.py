"""ShareGroupHeartbeat (key 76, v1): membership of share groups (KIP-932)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.share.share_membership import failed_share_heartbeat
from barnabas.protocol.errors import ErrorCode
from barnabas.server.handlers.groups.client_identity import client_of

if TYPE_CHECKING:
    from barnabas.protocol.messages.share_consumers import (
        ShareGroupHeartbeatRequest,
        ShareGroupHeartbeatResponse,
    )
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies

_MEMBER_ID_LENGTH_MAX = 36


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler of heartbeats. The response follows when its records are committed."""
    shares, cluster = dependencies.groups.shares, dependencies.cluster

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
