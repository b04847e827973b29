"""Timeouts of the members of consumer, share and streams groups. `Rebalance` has the classic ones.

A member has a session, which each of its heartbeats restarts. A member that must give up partitions
or tasks has its rebalance timeout for that. If a timer expires, the member is removed.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from barnabas.coordinator.group.replayed_group import ReplayedGroup
from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.group.group_map import GroupsOfKind
    from barnabas.coordinator.runtime.shard import ShardTimers

R = TypeVar("R", bound=ReplayedGroup[Any, Any])

_log = logging.getLogger(__name__)

# Delay of the next attempt if the removal of a member could not be written, in ms.
RETRY_MS = 500


class _Member(Protocol):
    @property
    def member_id(self) -> str: ...
    @property
    def member_epoch(self) -> int: ...
    @property
    def rebalance_timeout_ms(self) -> int: ...
    @property
    def must_revoke(self) -> bool: ...


class MemberTimers(Generic[R]):
    """The timers of the groups of one kind in a shard."""

    __slots__ = ("_groups", "_rebalance", "_remove", "_session", "_timers")

    def __init__(
        self,
        groups: GroupsOfKind[R],
        timers: ShardTimers,
        remove: Callable[[R, Any], CoordinatorResult[None]],
    ) -> None:
        """Create it without timers.

        Args:
            groups: the groups.
            timers: the timers of the shard.
            remove: returns the result that removes a member, and that calls `end` afterwards.
        """
        self._groups = groups
        self._timers = timers
        self._remove = remove
        # Beginnings of the keys of timers.
        self._session = f"{groups.kind}-session"
        self._rebalance = f"{groups.kind}-rebalance"

    def start_all(self, session_timeout_ms: Callable[[R, Any], int]) -> None:
        """Start the timeouts of all members after the shard is loaded.

        Args:
            session_timeout_ms: returns the session timeout of a member of a group.
        """
        for group in self._groups.all():
            for member in group.members.values():
                timeout_ms = session_timeout_ms(group, member)
                self.restart_session(group.group_id, member.member_id, timeout_ms)
                if member.must_revoke:
                    self.update_rebalance(group.group_id, member)

    def restart_session(self, group_id: str, member_id: str, timeout_ms: float) -> None:
        """Remove the member unless this is called again within the timeout."""
        self._timers.schedule(
            (self._session, group_id, member_id),
            timeout_ms,
            partial(self._on_session_expired, group_id, member_id),
        )

    def update_rebalance(self, group_id: str, member: _Member) -> None:
        """Start the rebalance timeout of a member that must give something up, or cancel it.

        The member is removed unless it has left its epoch within its rebalance timeout.
        """
        if member.must_revoke:
            timeout_ms = max(member.rebalance_timeout_ms, 0)
            self._start_rebalance(group_id, member.member_id, member.member_epoch, timeout_ms)
        else:
            self._timers.cancel((self._rebalance, group_id, member.member_id))

    def end(self, group_id: str, member_id: str) -> None:
        """Cancel all timeouts of a member that has left."""
        self._timers.cancel((self._session, group_id, member_id))
        self._timers.cancel((self._rebalance, group_id, member_id))

    def _start_rebalance(
        self, group_id: str, member_id: str, epoch: int, timeout_ms: float
    ) -> None:
        self._timers.schedule(
            (self._rebalance, group_id, member_id),
            timeout_ms,
            partial(self._on_rebalance_expired, group_id, member_id, epoch),
        )

    def _on_session_expired(self, group_id: str, member_id: str) -> CoordinatorResult[None]:
        def retry() -> None:
            self.restart_session(group_id, member_id, RETRY_MS)

        return self.remove(group_id, member_id, "its session expired", lambda _: True, retry)

    def _on_rebalance_expired(
        self, group_id: str, member_id: str, epoch: int
    ) -> CoordinatorResult[None]:
        def retry() -> None:
            self._start_rebalance(group_id, member_id, epoch, RETRY_MS)

        return self.remove(
            group_id,
            member_id,
            f"it did not give up its partitions of epoch {epoch} in time",
            lambda member: member.member_epoch == epoch,
            retry,
        )

    def remove(
        self,
        group_id: str,
        member_id: str,
        reason: str,
        is_due: Callable[[Any], bool],
        retry: Callable[[], None],
    ) -> CoordinatorResult[None]:
        """Return the result that removes a member whose timer has expired.

        Args:
            group_id: the group.
            member_id: the member.
            reason: the end of a sentence for the log.
            is_due: whether a member with this id is the member that the timer was started for.
            retry: called if the removal cannot be written.
        """
        group = self._groups.find(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None or not is_due(member):
            return CoordinatorResult(None)
        _log.info("A member is removed: group=%s member=%s reason=%s", group_id, member_id, reason)
        result = self._remove(group, member)
        on_removed = result.on_appended

        def on_appended(error: ErrorCode) -> None:
            if on_removed is not None:
                on_removed(error)
            if error is not ErrorCode.NONE:
                retry()

        result.on_appended = on_appended
        return result
