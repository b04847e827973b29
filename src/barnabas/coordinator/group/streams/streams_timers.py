"""Timeouts of streams groups: sessions, rebalances of members, and the initial rebalance delay."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.group.group_map import GroupsOfKind
    from barnabas.coordinator.group.streams.members.streams_member import StreamsMember
    from barnabas.coordinator.group.streams.streams_group import StreamsGroup
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.coordinator.runtime.shards.shard_timers import ShardTimers

    Fence = Callable[[StreamsGroup, StreamsMember], list[CoordinatorRecord]]

_log = logging.getLogger(__name__)

# Delay of the next attempt if the removal of a member could not be written, in ms.
_RETRY_MS = 500


class StreamsTimers:
    """The timers of one shard. An expired timer of a member removes it from its group."""

    __slots__ = ("_fence", "_groups", "_timers")

    def __init__(
        self, groups: GroupsOfKind[StreamsGroup], timers: ShardTimers, fence: Fence
    ) -> None:
        self._groups = groups
        self._timers = timers
        # Returns the records that remove a member.
        self._fence = fence

    def restart_session(self, group_id: str, member_id: str, timeout_ms: float) -> None:
        """Remove the member unless this is called again within the timeout."""
        self._timers.schedule(
            ("streams-session", group_id, member_id),
            timeout_ms,
            partial(self._on_session_expired, group_id, member_id),
        )

    def start_rebalance(self, group_id: str, member: StreamsMember) -> None:
        """Remove the member unless it has left its epoch within its rebalance timeout."""
        self._schedule_rebalance(
            group_id, member.member_id, member.member_epoch, max(member.rebalance_timeout_ms, 0)
        )

    def end_rebalance(self, group_id: str, member_id: str) -> None:
        """Cancel the rebalance timeout of a member that has released its tasks."""
        self._timers.cancel(("streams-rebalance", group_id, member_id))

    def end(self, group_id: str, member_id: str) -> None:
        """Cancel the timeouts of a member that has left."""
        self._timers.cancel(("streams-session", group_id, member_id))
        self.end_rebalance(group_id, member_id)

    def start_delay(
        self, group_id: str, delay_ms: int, on_end: Callable[[], CoordinatorResult[None]]
    ) -> None:
        """Start the initial rebalance delay of a group, unless it has begun already."""
        key = ("streams-delay", group_id)
        if not self._timers.is_scheduled(key):
            self._timers.schedule(key, delay_ms, on_end)

    def is_delayed(self, group_id: str) -> bool:
        """Whether the initial rebalance delay of the group is not over."""
        return self._timers.is_scheduled(("streams-delay", group_id))

    def end_delay(self, group_id: str) -> None:
        """Cancel the initial rebalance delay of a group that is removed."""
        self._timers.cancel(("streams-delay", group_id))

    def _on_session_expired(self, group_id: str, member_id: str) -> CoordinatorResult[None]:
        found = self._find(group_id, member_id)
        if found is None:
            return CoordinatorResult(None)
        _log.info("Member session expired: group=%s member=%s", group_id, member_id)

        def on_appended(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self.end_rebalance(group_id, member_id)
            else:
                self.restart_session(group_id, member_id, _RETRY_MS)

        return CoordinatorResult(None, self._fence(*found), on_appended=on_appended)

    def _schedule_rebalance(
        self, group_id: str, member_id: str, epoch: int, timeout_ms: float
    ) -> None:
        self._timers.schedule(
            ("streams-rebalance", group_id, member_id),
            timeout_ms,
            partial(self._on_rebalance_expired, group_id, member_id, epoch),
        )

    def _on_rebalance_expired(
        self, group_id: str, member_id: str, epoch: int
    ) -> CoordinatorResult[None]:
        found = self._find(group_id, member_id)
        if found is None or found[1].member_epoch != epoch:
            return CoordinatorResult(None)
        _log.info(
            "Member did not release its tasks in time: group=%s member=%s member_epoch=%d",
            group_id,
            member_id,
            epoch,
        )

        def on_appended(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._timers.cancel(("streams-session", group_id, member_id))
            else:
                self._schedule_rebalance(group_id, member_id, epoch, _RETRY_MS)

        return CoordinatorResult(None, self._fence(*found), on_appended=on_appended)

    def _find(self, group_id: str, member_id: str) -> tuple[StreamsGroup, StreamsMember] | None:
        group = self._groups.find(group_id)
        member = None if group is None else group.members.get(member_id)
        return None if group is None or member is None else (group, member)
