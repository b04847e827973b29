"""Session timeouts of members of share groups."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.group.group_map import GroupsOfKind
    from barnabas.coordinator.group.share.share_group import ShareGroup
    from barnabas.coordinator.group.share.share_member import ShareMember
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.coordinator.runtime.shards.shard_timers import ShardTimers

    Fence = Callable[[ShareGroup, ShareMember], list[CoordinatorRecord]]

_log = logging.getLogger(__name__)

# Delay of the next attempt if the removal of a member could not be written, in ms.
_RETRY_MS = 500


class ShareTimers:
    """The session timers of one shard. An expired session removes the member from its group."""

    __slots__ = ("_fence", "_groups", "_timers")

    def __init__(self, groups: GroupsOfKind[ShareGroup], timers: ShardTimers, fence: Fence) -> None:
        self._groups = groups
        self._timers = timers
        # Returns the records that remove a member.
        self._fence = fence

    def restart_session(self, group_id: str, member_id: str, timeout_ms: float) -> None:
        """Remove the member unless this is called again within the timeout."""
        self._timers.schedule(
            ("share-session", group_id, member_id),
            timeout_ms,
            partial(self._on_session_expired, group_id, member_id),
        )

    def end_session(self, group_id: str, member_id: str) -> None:
        """Cancel the timeout of a member that has left."""
        self._timers.cancel(("share-session", group_id, member_id))

    def _on_session_expired(self, group_id: str, member_id: str) -> CoordinatorResult[None]:
        group = self._groups.find(group_id)
        member = None if group is None else group.members.get(member_id)
        if group is None or member is None:
            return CoordinatorResult(None)
        _log.info("Member session expired: group=%s member=%s", group_id, member_id)

        def on_appended(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                self.restart_session(group_id, member_id, _RETRY_MS)

        return CoordinatorResult(None, self._fence(group, member), on_appended=on_appended)
