"""The groups of one state partition: one map from group id to a group of any kind.

An id belongs to one group, so a group of another kind can only take the place of the first one.
`GroupMap` finds, adds and removes groups, and replays their records. The parts of the coordinator
that work for one kind see its groups only, as `GroupsOfKind`.

Consumer, share and streams groups change by the replay of their records only: the first record
adds the group, and a tombstone removes it. A classic group changes at once, as in Kafka. Its record
is replayed (`replay_classic`) when another broker loads it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from barnabas.coordinator.group.group_base import Group, RefusalError
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.record_frame import decode_coordinator_key, decode_coordinator_value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from barnabas.coordinator.group.group_base import GroupMemory
    from barnabas.coordinator.group.replayed_group import RecordReplay, ReplayedGroup
    from barnabas.runtime.clock import Clock

    Replays = Mapping[type[ReplayedGroup[Any, Any]], Iterable[RecordReplay[Any, Any, Any]]]

G = TypeVar("G", bound=Group)


class GroupsOfKind(Generic[G]):
    """The groups of one kind in a map."""

    __slots__ = ("_by_id", "_group_class")

    def __init__(self, group_class: type[G], by_id: Mapping[str, Any]) -> None:
        self._group_class = group_class
        # The groups of all kinds.
        self._by_id = by_id

    @property
    def kind(self) -> str:
        """Kafka's name of the kind."""
        return self._group_class.kind

    def find(self, group_id: str) -> G | None:
        """Return the group, or None if the id has no group or one of another kind."""
        group = self._by_id.get(group_id)
        return group if type(group) is self._group_class else None

    def has(self, group_id: str) -> bool:
        """Whether the group exists and is of this kind."""
        return type(self._by_id.get(group_id)) is self._group_class

    def all(self) -> list[G]:
        """Return all groups of this kind."""
        return [each for each in self._by_id.values() if type(each) is self._group_class]

    def require(self, group_id: str) -> G:
        """Return an existing group. Raises RefusalError."""
        group = self.find(group_id)
        if group is None:
            if group_id in self._by_id:
                raise self.wrong_kind(group_id)
            raise RefusalError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def wrong_kind(self, group_id: str) -> RefusalError:
        """Return the error for an id that has a group of another kind."""
        return RefusalError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {self.kind} group."
        )


class GroupMap:
    """All groups of a state partition by id, including groups that only have offsets.

    A classic group in it is never DEAD, and a removed one is always DEAD.
    """

    __slots__ = ("_by_id", "_replays", "clock", "memory")

    def __init__(self, clock: Clock, memory: GroupMemory, replays: Replays) -> None:
        """Create the map without groups.

        Args:
            clock: tells when the state of a classic group changes.
            memory: memory accounting of all groups of this broker.
            replays: the record types of groups that change by replay, by the class of the group.
        """
        self.clock = clock
        self.memory = memory
        self._by_id: dict[str, Group] = {}
        self._replays = {
            replay.key.__record_type__: (group_class, replay)
            for group_class, each in replays.items()
            for replay in each
        }

    def of(self, group_class: type[G]) -> GroupsOfKind[G]:
        """Return the groups of one class."""
        return GroupsOfKind(group_class, self._by_id)

    # Groups of all kinds.

    def find(self, group_id: str) -> Group | None:
        """Return the group, or None if it does not exist."""
        return self._by_id.get(group_id)

    def find_with_offsets(self, group_id: str) -> Group | None:
        """Return the group if its offsets are committed here: all groups but share groups."""
        group = self._by_id.get(group_id)
        return group if group is not None and group.commits_offsets else None

    def ids(self) -> Collection[str]:
        """Return the ids of all groups. The result shows later changes."""
        return self._by_id.keys()

    def add(self, group: Group) -> None:
        """Add a group whose id is free."""
        assert group.group_id not in self._by_id, f"group={group.group_id} exists"
        self._by_id[group.group_id] = group

    def remove(self, group: Group, error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
        """Remove a group. Pending requests of a classic group fail with `error`."""
        assert self._by_id.get(group.group_id) is group, f"group={group.group_id} is not in the map"
        del self._by_id[group.group_id]
        group.release_memory()
        group.end(self.clock.wall_ms(), error)

    def replace(self, group: Group) -> Callable[[], None]:
        """Add a group instead of an earlier group with its id.

        Returns:
            A function that brings the earlier group back, unless a new one has its id then.
        """
        bring_back = self.discard(group.group_id)
        self._by_id[group.group_id] = group
        return bring_back

    def discard(self, group_id: str) -> Callable[[], None]:
        """Remove the group, if there is one, before its tombstones are written.

        Returns:
            A function that brings it back, unless a new group has its id then.
        """
        group = self._by_id.pop(group_id, None)
        held_bytes = 0 if group is None else group.held_bytes
        if group is not None:
            group.release_memory()

        def bring_back() -> None:
            if group is not None and self._by_id.setdefault(group_id, group) is group:
                group.reclaim_memory(held_bytes)

        return bring_back

    def clear(self) -> None:
        """Remove all groups. Pending requests fail with NOT_COORDINATOR."""
        for group in list(self._by_id.values()):
            self.remove(group, ErrorCode.NOT_COORDINATOR)

    # Replay.

    @property
    def record_types(self) -> Collection[int]:
        """The types of the records of consumer, share and streams groups."""
        return self._replays.keys()

    def replay(self, record_type: int, key: bytes, value: bytes | None) -> None:
        """Apply a record of one of `record_types`. Raises ProtocolError."""
        replay = self._replays[record_type][1]
        names = decode_coordinator_key(replay.key, key)
        record = None if value is None else decode_coordinator_value(replay.value, value)
        self.replay_decoded(record_type, names, record)

    def replay_decoded(self, record_type: int, names: Any, record: Any) -> None:
        """Apply a decoded record of one of `record_types`. Raises ProtocolError.

        Args:
            record_type: the type of the record.
            names: the key.
            record: the value, or None for a tombstone.
        """
        group_class, replay = self._replays[record_type]
        known = self._by_id.get(names.group_id)
        group: Any = known if type(known) is group_class else None
        if record is not None:
            if group is None:
                self._add(group_class, replay, names, record)
            else:
                replay.put(group, names, record)
        elif group is not None:
            if replay.remove is None:
                self.remove(group)
            else:
                replay.remove(group, names)

    def _add(
        self,
        group_class: type[ReplayedGroup[Any, Any]],
        replay: RecordReplay[Any, Any, Any],
        names: Any,
        record: Any,
    ) -> None:
        """Add the group of its first record. A damaged record adds no group.

        A classic group that has only offsets makes room for it.
        """
        group = group_class(names.group_id, self.memory)
        replay.put(group, names, record)
        known = self._by_id.get(names.group_id)
        if known is not None:
            if not known.has_only_offsets:
                group.release_memory()
                raise ProtocolError(f"group {names.group_id!r} is not a {group.kind} group")
            self.remove(known)
        self._by_id[names.group_id] = group
