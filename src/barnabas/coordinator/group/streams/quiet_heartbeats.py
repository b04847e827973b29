"""Heartbeats that change nothing: nearly all heartbeats of a stable group.

They write no records, and their responses have no news. `StreamsMembership` gives the same
response, but looks for each possible change. A test compares both for random groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.streams.members.streams_member import JOIN_EPOCH
from barnabas.coordinator.group.streams.streams_heartbeat import new_response

if TYPE_CHECKING:
    from barnabas.coordinator.group.member_timers import MemberTimers
    from barnabas.coordinator.group.streams.members.streams_member import StreamsMember
    from barnabas.coordinator.group.streams.streams_group import StreamsGroup
    from barnabas.coordinator.group.streams.streams_heartbeat import StreamsClient
    from barnabas.coordinator.group.streams.streams_shard import StreamsShard
    from barnabas.protocol.messages.streams_group_heartbeat import (
        StreamsGroupHeartbeatRequest,
        StreamsGroupHeartbeatResponse,
    )


def quiet_heartbeat(
    shard: StreamsShard,
    timers: MemberTimers[StreamsGroup],
    request: StreamsGroupHeartbeatRequest,
    client: StreamsClient,
) -> StreamsGroupHeartbeatResponse | None:
    """Return the response to a heartbeat that changes nothing; None for other heartbeats."""
    group = shard.groups.find(request.group_id)
    member = None if group is None else group.members.get(request.member_id)
    if group is None or member is None or not _is_known(request, client, group, member):
        return None
    configs = shard.configs_of(group)
    if (
        configs.rack_tags
        or configs.assignment != group.assignment_configs
        or group.endpoint_epoch != request.endpoint_information_epoch
        or group.shutdown_member_id is not None
        or not group.is_settled(member, shard.clock.wall_ms())
    ):
        return None
    timers.restart_session(group.group_id, member.member_id, configs.session_timeout_ms)
    response = new_response(member, configs, [])
    response.endpoint_information_epoch = group.endpoint_epoch
    return response


def _is_known(
    request: StreamsGroupHeartbeatRequest,
    client: StreamsClient,
    group: StreamsGroup,
    member: StreamsMember,
) -> bool:
    """Whether the request has the epoch of the member, and nothing else that is new.

    `check_streams_heartbeat` has accepted the request: only a join has a topology, and a request
    without active tasks has no other tasks.
    """
    return (
        request.member_epoch == member.member_epoch
        and request.member_epoch > JOIN_EPOCH
        and request.active_tasks is None
        and request.rack_id is None
        and request.rebalance_timeout_ms == -1
        and request.process_id is None
        and request.user_endpoint is None
        and request.client_tags is None
        and request.task_offsets is None
        and request.task_end_offsets is None
        and not request.shutdown_application
        and client.identity.client_id == member.client_id
        and client.identity.host == member.client_host
        and (request.instance_id is None or group.static_member(request.instance_id) is member)
    )
