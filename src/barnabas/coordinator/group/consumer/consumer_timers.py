"""Session and rebalance timeouts of members of consumer groups."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
    from barnabas.coordinator.group.consumer.consumer_groups import ConsumerGroups
    from barnabas.coordinator.group.consumer.consumer_member import ConsumerMember
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.coordinator.runtime.shard_timers import ShardTimers

    Fence = Callable[[ConsumerGroup, ConsumerMember], list[CoordinatorRecord]]

_log = logging.getLogger(__name__)

# Delay of the next attempt if the removal of a member could not be written, in ms.
_RETRY_MS = 500


class ConsumerTimers:
    """The timers of one shard. An expired timer removes the member from its group."""

    __slots__ = ("_fence", "_groups", "_timers")

    def __init__(self, groups: ConsumerGroups, timers: ShardTimers, fence: Fence) -> None:
        self._groups = groups
        self._timers = timers
        # Returns the records that remove a member.
        self._fence = fence

    def restart_session(self, group_id: str, member_id: str, timeout_ms: float) -> None:
        """Remove the member unless this is called again within the timeout."""
        self._timers.schedule(
            ("consumer-session", group_id, member_id),
            timeout_ms,
            partial(self._on_session_expired, group_id, member_id),
        )

    def start_rebalance(self, group_id: str, member: ConsumerMember) -> None:
        """Remove the member unless it has left its epoch within its rebalance timeout."""
        self._timers.schedule(
            ("consumer-rebalance", group_id, member.member_id),
            max(member.rebalance_timeout_ms, 0),
            partial(self._on_rebalance_expired, group_id, member.member_id, member.member_epoch),
        )

    def end_rebalance(self, group_id: str, member_id: str) -> None:
        """Cancel the rebalance timeout of a member that has revoked its partitions."""
        self._timers.cancel(("consumer-rebalance", group_id, member_id))

    def end(self, group_id: str, member_id: str) -> None:
        """Cancel both timeouts of a member that has left."""
        self._timers.cancel(("consumer-session", group_id, member_id))
        self.end_rebalance(group_id, member_id)

    def _on_session_expired(self, group_id: str, member_id: str) -> CoordinatorResult[None]:
        group = self._groups.find(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return CoordinatorResult(None)
        _log.info("Member session expired: group=%s member=%s", group_id, member_id)

        def on_appended(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self.restart_session(group_id, member_id, _RETRY_MS)
            else:
                self.end_rebalance(group_id, member_id)

        return CoordinatorResult(None, self._fence(group, member), on_appended=on_appended)

    def _on_rebalance_expired(
        self, group_id: str, member_id: str, epoch: int
    ) -> CoordinatorResult[None]:
        group = self._groups.find(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None or member.member_epoch != epoch:
            return CoordinatorResult(None)
        _log.info(
            "Member did not revoke its partitions in time: group=%s member=%s member_epoch=%d",
            group_id,
            member_id,
            epoch,
        )

        def on_appended(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self._timers.schedule(
                    ("consumer-rebalance", group_id, member_id),
                    _RETRY_MS,
                    partial(self._on_rebalance_expired, group_id, member_id, epoch),
                )
            else:
                self._timers.cancel(("consumer-session", group_id, member_id))

        return CoordinatorResult(None, self._fence(group, member), on_appended=on_appended)
