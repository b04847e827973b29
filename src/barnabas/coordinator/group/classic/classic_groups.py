"""The classic groups of one state partition, by group id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.classic.classic_group import (
    NO_MEMBER_ID,
    ClassicGroup,
    failed_join,
)
from barnabas.coordinator.group.classic.group_state import GroupEvent, GroupState

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.coordinator.group.classic.group_memory import GroupMemory
    from barnabas.protocol.errors import ErrorCode
    from barnabas.runtime.clock import Clock


class ClassicGroups:
    """All groups of a state partition, including groups with only offsets.

    A group in it is never DEAD, and a removed group is always DEAD.
    """

    __slots__ = ("_by_id", "_clock", "memory")

    def __init__(self, clock: Clock, memory: GroupMemory) -> None:
        self._clock = clock
        # Memory accounting of all groups of this broker.
        self.memory = memory
        self._by_id: dict[str, ClassicGroup] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, group_id: str) -> ClassicGroup | None:
        """Return the group, or None if it does not exist."""
        return self._by_id.get(group_id)

    def all(self) -> Collection[ClassicGroup]:
        """Return all groups. The result shows later changes."""
        return self._by_id.values()

    def ids(self) -> Collection[str]:
        """Return the ids of all groups. The result shows later changes."""
        return self._by_id.keys()

    def create(self, group_id: str) -> ClassicGroup:
        """Create a group without members."""
        assert group_id not in self._by_id, f"group={group_id} exists"
        now_ms = self._clock.wall_ms()
        group = ClassicGroup(group_id, GroupState.EMPTY, now_ms, self.memory)
        self._by_id[group_id] = group
        return group

    def replace(self, group: ClassicGroup) -> None:
        """Add a group that was loaded from a record, instead of an earlier one with its id."""
        assert not group.is_in(GroupState.DEAD), f"group={group.group_id} state={group.state}"
        known = self._by_id.get(group.group_id)
        if known is not None:
            known.release_memory()
        self._by_id[group.group_id] = group

    def remove(self, group: ClassicGroup, error: ErrorCode) -> None:
        """Remove a group. Its pending JoinGroup and SyncGroup requests fail with `error`."""
        assert self._by_id.get(group.group_id) is group, (
            f"group={group.group_id} state={group.state} is not in the shard"
        )
        group.on_event(GroupEvent.REMOVED, self._clock.wall_ms())
        del self._by_id[group.group_id]
        group.release_memory()
        for member in group.members.values():
            group.complete_join(member, failed_join(NO_MEMBER_ID, error))
            group.complete_sync(member, error)
