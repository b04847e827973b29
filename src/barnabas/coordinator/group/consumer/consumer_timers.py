"""Timeouts of members of consumer groups: sessions, rebalances, JoinGroup and SyncGroup."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
    from barnabas.coordinator.group.consumer.members.consumer_member import ConsumerMember
    from barnabas.coordinator.group.group_map import GroupsOfKind
    from barnabas.coordinator.runtime.shards.shard_timers import ShardTimers

    Fence = Callable[[ConsumerGroup, ConsumerMember], CoordinatorResult[None]]

_log = logging.getLogger(__name__)

# Delay of the next attempt if the removal of a member could not be written, in ms.
_RETRY_MS = 500


class ConsumerTimers:
    """The timers of one shard. An expired timer removes the member from its group."""

    __slots__ = ("_fence", "_groups", "_timers")

    def __init__(
        self, groups: GroupsOfKind[ConsumerGroup], timers: ShardTimers, fence: Fence
    ) -> None:
        self._groups = groups
        self._timers = timers
        # Returns the result that removes a member.
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

    def start_join(self, group_id: str, member: ConsumerMember) -> None:
        """Remove a member of the classic protocol unless it rejoins within its rebalance timeout.

        A timeout that runs already is not extended.
        """
        key = ("consumer-join", group_id, member.member_id)
        if not self._timers.is_scheduled(key):
            self._start_classic(key, group_id, member.member_id, member.rebalance_timeout_ms)

    def end_join(self, group_id: str, member_id: str) -> None:
        """Cancel the timeout of a member of the classic protocol that has rejoined."""
        self._timers.cancel(("consumer-join", group_id, member_id))

    def start_sync(self, group_id: str, member_id: str, timeout_ms: float) -> None:
        """Remove a member of the classic protocol unless it sends SyncGroup within the timeout."""
        key = ("consumer-sync", group_id, member_id)
        self._start_classic(key, group_id, member_id, timeout_ms)

    def end_sync(self, group_id: str, member_id: str) -> None:
        """Cancel the timeout of a member of the classic protocol that has sent SyncGroup."""
        self._timers.cancel(("consumer-sync", group_id, member_id))

    def end(self, group_id: str, member_id: str) -> None:
        """Cancel all timeouts of a member that has left."""
        self._timers.cancel(("consumer-session", group_id, member_id))
        self.end_rebalance(group_id, member_id)
        self.end_join(group_id, member_id)
        self.end_sync(group_id, member_id)

    def _on_session_expired(self, group_id: str, member_id: str) -> CoordinatorResult[None]:
        group = self._groups.find(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return CoordinatorResult(None)
        _log.info("Member session expired: group=%s member=%s", group_id, member_id)
        return self._remove(
            group, member, lambda: self.restart_session(group_id, member_id, _RETRY_MS)
        )

    def _start_classic(
        self, key: tuple[str, str, str], group_id: str, member_id: str, timeout_ms: float
    ) -> None:
        self._timers.schedule(
            key, max(timeout_ms, 0), partial(self._on_classic_expired, key, group_id, member_id)
        )

    def _on_classic_expired(
        self, key: tuple[str, str, str], group_id: str, member_id: str
    ) -> CoordinatorResult[None]:
        group = self._groups.find(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None or not member.uses_classic_protocol:
            return CoordinatorResult(None)
        _log.info(
            "Member did not rejoin in time: group=%s member=%s timeout=%s",
            group_id,
            member_id,
            key[0],
        )
        return self._remove(
            group, member, lambda: self._start_classic(key, group_id, member_id, _RETRY_MS)
        )

    def _remove(
        self, group: ConsumerGroup, member: ConsumerMember, retry: Callable[[], None]
    ) -> CoordinatorResult[None]:
        """Return the result that removes a member. Call `retry` if it cannot be written."""
        result = self._fence(group, member)
        on_removed = result.on_appended

        def on_appended(error: ErrorCode) -> None:
            if on_removed is not None:
                on_removed(error)
            if error is not ErrorCode.NONE:
                retry()

        result.on_appended = on_appended
        return result

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

        def retry() -> None:
            self._timers.schedule(
                ("consumer-rebalance", group_id, member_id),
                _RETRY_MS,
                partial(self._on_rebalance_expired, group_id, member_id, epoch),
            )

        return self._remove(group, member, retry)
