"""The consumer, share or streams groups of one state partition. Their records add and change them.

Classic groups are in `ClassicGroups`, since their requests change them directly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from barnabas.coordinator.group.replayed.replayed_group import ReplayedGroup
from barnabas.protocol.protocol_error import ProtocolError
from barnabas.protocol.record_frame import decode_coordinator_key, decode_coordinator_value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from barnabas.coordinator.group.replayed.record_replay import RecordReplay


G = TypeVar("G", bound=ReplayedGroup[Any, Any])


class GroupTable(Generic[G]):
    """All groups of one type in a state partition, by id."""

    __slots__ = ("_by_id", "_create", "_make_room", "_replays", "_type_name")

    def __init__(
        self,
        type_name: str,
        create: Callable[[str], G],
        make_room: Callable[[str], bool],
        replays: Iterable[RecordReplay[G, Any, Any]],
    ) -> None:
        """Create the table without groups.

        Args:
            type_name: the type of the groups, for errors.
            create: returns a new group with an id.
            make_room: removes a classic group that has only offsets. False if the id has another
                group.
            replays: the record types of the groups.
        """
        self._type_name = type_name
        self._create = create
        self._make_room = make_room
        self._replays = {each.key.__record_type__: each for each in replays}
        self._by_id: dict[str, G] = {}

    def find(self, group_id: str) -> G | None:
        """Return the group, or None if it does not exist."""
        return self._by_id.get(group_id)

    def has(self, group_id: str) -> bool:
        """Whether the group exists."""
        return group_id in self._by_id

    def all(self) -> Collection[G]:
        """Return all groups. The result shows later changes."""
        return self._by_id.values()

    def ids(self) -> Collection[str]:
        """Return the ids of all groups. The result shows later changes."""
        return self._by_id.keys()

    def remove(self, group_id: str) -> None:
        """Remove a group, if it exists."""
        group = self._by_id.pop(group_id, None)
        if group is not None:
            group.release_memory()

    def restore(self, group: G) -> bool:
        """Bring back a removed group, unless a new one has its id. Return whether it is back."""
        return self._by_id.setdefault(group.group_id, group) is group

    def clear(self) -> None:
        """Remove all groups."""
        for group_id in list(self._by_id):
            self.remove(group_id)

    @property
    def record_types(self) -> Collection[int]:
        """The types of the records of these groups."""
        return self._replays.keys()

    def replay(self, record_type: int, key: bytes, value: bytes | None) -> None:
        """Apply a record of one of `record_types`. Raises ProtocolError."""
        replay = self._replays[record_type]
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
        replay = self._replays[record_type]
        group = self._by_id.get(names.group_id)
        if record is None:
            if replay.remove is None:
                self.remove(names.group_id)
            elif group is not None:
                replay.remove(group, names)
        elif group is not None:
            replay.put(group, names, record)
        else:
            self._add(replay, names, record)

    def _add(self, replay: RecordReplay[G, Any, Any], names: Any, record: Any) -> None:
        """Add the group of its first record. A damaged record adds no group."""
        group = self._create(names.group_id)
        replay.put(group, names, record)
        if not self._make_room(names.group_id):
            group.release_memory()
            raise ProtocolError(f"group {names.group_id!r} is not a {self._type_name} group")
        self._by_id[names.group_id] = group
