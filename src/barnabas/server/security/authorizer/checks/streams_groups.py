"""Checks of requests for streams groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.requests.streams_requests import failed_streams_group
from barnabas.coordinator.group.streams.streams_heartbeat import failed_streams_heartbeat
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.streams_groups import (
    StreamsGroupTopologyDescriptionUpdateResponse,
)
from barnabas.server.cluster.streams_topic_names import topology_problem, topology_topics
from barnabas.server.security.authorizer.checks.check import GROUP, READ
from barnabas.server.security.authorizer.checks.group_checks import (
    check_described_groups,
    check_topics,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
    from barnabas.protocol.messages.streams_groups import (
        StreamsGroupHeartbeatRequest,
        StreamsGroupTopologyDescriptionUpdateRequest,
        Topology,
    )
    from barnabas.server.security.authorizer.checks.check import Verdict
    from barnabas.server.security.authorizer.rights import Rights

_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED


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
    return (yield from check_topics(rights, names, failed_streams_heartbeat))


def check_streams_group_describe(
    rights: Rights, request: StreamsGroupDescribeRequest
) -> Generator[None, None, Verdict]:
    """Refuse the groups that the client may not describe."""
    return check_described_groups(rights, request, failed_streams_group)


def check_topology_description_update(
    rights: Rights, request: StreamsGroupTopologyDescriptionUpdateRequest
) -> Verdict:
    """Refuse a group that the client may not read."""
    if rights.allows(READ, GROUP, request.group_id):
        return None
    return StreamsGroupTopologyDescriptionUpdateResponse(error_code=_REFUSED, error_message=None)
