"""Checks of requests for streams groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.requests.streams_requests import failed_streams_group
from barnabas.coordinator.group.streams.streams_heartbeat import failed_streams_heartbeat
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateResponse,
)
from barnabas.server.cluster.streams_topic_names import topology_problem, topology_topics
from barnabas.server.security.authorizer.checks.check import (
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    Partial,
    divide,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.protocol.messages.streams_group_describe import (
        StreamsGroupDescribeRequest,
        StreamsGroupDescribeResponse,
    )
    from barnabas.protocol.messages.streams_group_heartbeat import (
        StreamsGroupHeartbeatRequest,
        Topology,
    )
    from barnabas.protocol.messages.streams_group_topology_description_update import (
        StreamsGroupTopologyDescriptionUpdateRequest,
    )
    from barnabas.server.security.authorizer.checks.check import Verdict
    from barnabas.server.security.authorizer.rights import Rights

_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TOPIC_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


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
    if topology_problem(topology) is not None:
        # The handler refuses the names.
        return None
    _, refused = yield from divide(
        topology_topics(topology), lambda topic: rights.allows(DESCRIBE, TOPIC, topic)
    )
    return failed_streams_heartbeat(_TOPIC_REFUSED, None) if refused else None


def check_streams_group_describe(
    rights: Rights, request: StreamsGroupDescribeRequest
) -> Generator[None, None, Verdict]:
    """Refuse the groups that the client may not describe."""
    allowed, refused = yield from divide(
        request.group_ids, lambda group: rights.allows(DESCRIBE, GROUP, group)
    )
    if not refused:
        return None
    request.group_ids = allowed

    def amend(response: StreamsGroupDescribeResponse) -> StreamsGroupDescribeResponse:
        response.groups = [
            *(failed_streams_group(group, _REFUSED, None) for group in refused),
            *response.groups,
        ]
        return response

    return Partial(request, amend)


def check_topology_description_update(
    rights: Rights, request: StreamsGroupTopologyDescriptionUpdateRequest
) -> Verdict:
    """Refuse a group that the client may not read."""
    if rights.allows(READ, GROUP, request.group_id):
        return None
    return StreamsGroupTopologyDescriptionUpdateResponse(error_code=_REFUSED, error_message=None)
