"""ConsumerGroupHeartbeat (key 68, v0-1): membership of consumer groups (KIP-848).

Version 1 adds regular expressions and member ids that clients choose (KIP-1082).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.consumer.consumer_membership import failed_heartbeat
from barnabas.coordinator.group.consumer.heartbeats import Heartbeating
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.resources import AclOperation, AclResourceType
from barnabas.server.handlers.groups.client_identity import client_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.messages.groups import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
    )
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies

_DESCRIBE, _TOPIC = int(AclOperation.DESCRIBE), int(AclResourceType.TOPIC)


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler of heartbeats. The response follows when its records are committed."""
    consumers, cluster = dependencies.groups.consumers, dependencies.cluster

    def handle_consumer_group_heartbeat(
        context: RequestContext, request: ConsumerGroupHeartbeatRequest
    ) -> ConsumerGroupHeartbeatResponse | None:
        if not cluster.image.features.has_consumer_groups:
            return failed_heartbeat(ErrorCode.UNSUPPORTED_VERSION, None)
        client = client_of(context)
        heartbeat = Heartbeating(request, client, _may_describe(context))
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
