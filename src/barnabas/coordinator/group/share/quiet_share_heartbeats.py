"""Heartbeats of share groups that change nothing: nearly all heartbeats of a stable group.

They write no records, and their responses have no news. `ShareMembership` gives the same response,
but looks for each possible change. A test compares both for random groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.share.share_member import JOIN_EPOCH
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from barnabas.coordinator.group.classic.joining import ClientIdentity
    from barnabas.coordinator.group.member_timers import MemberTimers
    from barnabas.coordinator.group.share.share_group import ShareGroup
    from barnabas.coordinator.group.share.share_shard import ShareShard
    from barnabas.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

# Attribute lookup on the enum class costs 100 ns, as much as a function call.
_NONE = ErrorCode.NONE


def quiet_share_heartbeat(
    shard: ShareShard,
    timers: MemberTimers[ShareGroup],
    request: ShareGroupHeartbeatRequest,
    client: ClientIdentity,
) -> ShareGroupHeartbeatResponse | None:
    """Return the response to a heartbeat that changes nothing; None for other heartbeats."""
    group_id, member_id, epoch = request.group_id, request.member_id, request.member_epoch
    group = shard.groups.find(group_id)
    member = None if group is None else group.members.get(member_id)
    if (
        group is None
        or member is None
        or epoch != member.member_epoch
        or epoch <= JOIN_EPOCH
        or request.subscribed_topic_names is not None
        or request.rack_id is not None
        or client.client_id != member.client_id
        or client.host != member.client_host
        or not group.is_settled(member, shard.clock.wall_ms())
    ):
        return None
    timeout_ms, interval_ms = shard.session_and_interval_ms(group_id)
    timers.restart_session(group_id, member_id, timeout_ms)
    return ShareGroupHeartbeatResponse(
        error_code=_NONE,
        member_id=member_id,
        member_epoch=epoch,
        heartbeat_interval_ms=interval_ms,
    )
