"""The base of `ConsumerShard`, `ShareShard` and `StreamsShard`: one kind of groups in a shard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import msgspec

from barnabas.coordinator.group.classic.classic_group import ClassicGroup, GroupState
from barnabas.coordinator.group.classic.group_record import group_tombstone
from barnabas.coordinator.group.refusal import RefusalError
from barnabas.coordinator.group.replayed_group import ReplayedGroup
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from barnabas.coordinator.group.configs.group_type_settings import GroupTypeSettings
    from barnabas.coordinator.group.group_map import GroupMap
    from barnabas.coordinator.group.group_metrics import GroupMetrics
    from barnabas.coordinator.group.topics import TopicHashes, TopicsView
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.coordinator.runtime.shard import ShardTimers
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.rng import Rng

C = TypeVar("C")
R = TypeVar("R", bound=ReplayedGroup[Any, Any])


class GroupDependencies(msgspec.Struct, frozen=True):
    """What the groups of all kinds in a shard use."""

    groups: GroupMap
    topics: TopicsView
    # Hashes of topics, which all kinds compare.
    hashes: TopicHashes
    timers: ShardTimers
    clock: Clock
    # Makes member ids.
    rng: Rng
    metrics: GroupMetrics


class KindShard(Generic[R, C]):
    """The groups of one kind (`R`) in a shard, with their configuration (`C`) and dependencies."""

    # Whether an empty classic group makes room for a group of this kind.
    replaces_classic: ClassVar[bool] = True
    # The error of a group that may not grow.
    too_large: ClassVar[str] = "The subscriptions of the members take too much memory."

    __slots__ = (
        "_all_groups",
        "_assignment_interval",
        "_group_class",
        "_heartbeat_interval",
        "_session_timeout",
        "_settings",
        "clock",
        "groups",
        "hashes",
        "metrics",
        "timers",
        "topics",
    )

    def __init__(
        self,
        group_class: type[R],
        settings: GroupTypeSettings[C],
        dependencies: GroupDependencies,
    ) -> None:
        self._settings = settings
        # Names of configs.
        self._session_timeout = f"{group_class.kind}.session.timeout.ms"
        self._heartbeat_interval = f"{group_class.kind}.heartbeat.interval.ms"
        self._assignment_interval = f"{group_class.kind}.assignment.interval.ms"
        self._group_class = group_class
        self._all_groups = dependencies.groups
        self.groups = dependencies.groups.of(group_class)
        self.topics = dependencies.topics
        self.hashes = dependencies.hashes
        self.timers = dependencies.timers
        self.clock = dependencies.clock
        self.metrics = dependencies.metrics

    # Groups.

    def find_or_create(
        self,
        group_id: str,
        records: list[CoordinatorRecord],
        convert: Callable[[ClassicGroup], R] | None = None,
        *,
        is_joining: bool,
    ) -> R:
        """Return the group of a heartbeat. Raises RefusalError.

        The replay of its first record adds a new group to the map.

        Args:
            group_id: the group.
            records: gets the tombstone of an empty classic group, which makes room.
            convert: returns the group that a classic group with members becomes.
            is_joining: whether the heartbeat may create or convert a group.
        """
        group = self._all_groups.find(group_id)
        if isinstance(group, self._group_class):
            return group
        if group is None:
            if is_joining:
                return self._group_class(group_id, self._all_groups.memory)
            name = self.groups.kind.capitalize()
            raise RefusalError(ErrorCode.GROUP_ID_NOT_FOUND, f"{name} group {group_id} not found.")
        if is_joining and isinstance(group, ClassicGroup) and self.replaces_classic:
            if group.is_in(GroupState.EMPTY):
                records.append(group_tombstone(group_id))
                return self._group_class(group_id, self._all_groups.memory)
            if convert is not None:
                return convert(group)
        raise self.groups.wrong_kind(group_id)

    # Configuration.

    @property
    def config(self) -> C:
        """The broker's current configuration."""
        return self._settings.config

    def session_timeout_ms(self, group_id: str) -> int:
        """Return the session timeout of a group's members."""
        return self._settings.value(group_id, self._session_timeout)

    def session_and_interval_ms(self, group_id: str) -> tuple[int, int]:
        """Return the session timeout and the heartbeat interval of a group's members."""
        return self._settings.values(group_id, self._session_timeout, self._heartbeat_interval)

    def assignment_interval_ms(self, group_id: str) -> int:
        """Return the minimum time between two target assignments of a group."""
        return self._settings.value(group_id, self._assignment_interval)

    # Topics and memory.

    def on_topics_changed(self, names: Collection[str]) -> None:
        """Let the next heartbeat of each group that uses these topics compare them."""
        for group in self.groups.all():
            if any(group.needs_topic(name) for name in names):
                group.request_refresh()

    def check_memory(self, group: R, growth: int) -> None:
        """Check that the group may grow by a number of bytes. Raises RefusalError."""
        error = group.memory.check(group.held_bytes, growth)
        if error is not ErrorCode.NONE:
            raise RefusalError(error, self.too_large)
