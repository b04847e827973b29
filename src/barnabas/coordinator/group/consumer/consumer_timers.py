"""Timeouts of members of consumer groups: also those for JoinGroup and SyncGroup."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.group.member_timers import RETRY_MS, MemberTimers

if TYPE_CHECKING:
    from barnabas.coordinator.group.consumer.members.consumer_member import ConsumerMember
    from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult

_JOIN, _SYNC = "consumer-join", "consumer-sync"


class ConsumerTimers(MemberTimers[ConsumerGroup]):
    """The timers of one shard. Members of the classic protocol have more of them."""

    __slots__ = ()

    def start_join(self, group_id: str, member: ConsumerMember) -> None:
        """Remove a member of the classic protocol unless it rejoins within its rebalance timeout.

        A timeout that runs already is not extended.
        """
        if not self._timers.is_scheduled((_JOIN, group_id, member.member_id)):
            self._start(_JOIN, group_id, member.member_id, member.rebalance_timeout_ms)

    def end_join(self, group_id: str, member_id: str) -> None:
        """Cancel the timeout of a member of the classic protocol that has rejoined."""
        self._timers.cancel((_JOIN, group_id, member_id))

    def start_sync(self, group_id: str, member_id: str, timeout_ms: float) -> None:
        """Remove a member of the classic protocol unless it sends SyncGroup within the timeout."""
        self._start(_SYNC, group_id, member_id, timeout_ms)

    def end_sync(self, group_id: str, member_id: str) -> None:
        """Cancel the timeout of a member of the classic protocol that has sent SyncGroup."""
        self._timers.cancel((_SYNC, group_id, member_id))

    def end(self, group_id: str, member_id: str) -> None:
        """Cancel all timeouts of a member that has left."""
        super().end(group_id, member_id)
        self.end_join(group_id, member_id)
        self.end_sync(group_id, member_id)

    def _start(self, name: str, group_id: str, member_id: str, timeout_ms: float) -> None:
        self._timers.schedule(
            (name, group_id, member_id),
            max(timeout_ms, 0),
            partial(self._on_classic_expired, name, group_id, member_id),
        )

    def _on_classic_expired(
        self, name: str, group_id: str, member_id: str
    ) -> CoordinatorResult[None]:
        def is_due(member: ConsumerMember) -> bool:
            return member.uses_classic_protocol

        def retry() -> None:
            self._start(name, group_id, member_id, RETRY_MS)

        return self.remove(group_id, member_id, f"{name} has timed out", is_due, retry)
