"""Heartbeats of consumer groups that change nothing: nearly all heartbeats of a stable group.

They write no records, and their responses have no news. `ConsumerMembership` gives the same
response, but looks for each possible change. A test compares both for random groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.consumer.members.consumer_member import JOIN_EPOCH
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from barnabas.coordinator.group.consumer.consumer_shard import ConsumerShard
    from barnabas.coordinator.group.consumer.consumer_timers import ConsumerTimers
    from barnabas.coordinator.group.consumer.heartbeats.heartbeating import Heartbeating

# Attribute lookup on the enum class costs 100 ns, as much as a function call.
_NONE = ErrorCode.NONE


def quiet_consumer_heartbeat(
    shard: ConsumerShard, timers: ConsumerTimers, heartbeat: Heartbeating
) -> ConsumerGroupHeartbeatResponse | None:
    """Return the response to a heartbeat that changes nothing; None for other heartbeats."""
    request = heartbeat.request
    group_id, member_id, epoch = request.group_id, request.member_id, request.member_epoch
    group = shard.groups.find(group_id)
    member = None if group is None else group.members.get(member_id)
    if (
        group is None
        or member is None
        or epoch != member.member_epoch
        or epoch <= JOIN_EPOCH
        or heartbeat.has_changes(member)
        or not group.is_settled(member, shard.clock.wall_ms())
    ):
        return None
    timeout_ms, interval_ms = shard.session_and_interval_ms(group_id)
    timers.restart_session(group_id, member_id, timeout_ms)
    return ConsumerGroupHeartbeatResponse(
        error_code=_NONE,
        member_id=member_id,
        member_epoch=epoch,
        heartbeat_interval_ms=interval_ms,
    )
