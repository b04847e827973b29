"""The base of `ConsumerShard`, `ShareShard` and `StreamsShard`: one kind of groups in a shard.

A member has a session, which each of its heartbeats restarts. A member that must give up partitions
or tasks has its rebalance timeout for that. If a timer expires, the member is removed. `Rebalance`
has the timeouts of classic groups.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import msgspec

from barnabas.coordinator.group.classic.classic_group import ClassicGroup, GroupState
from barnabas.coordinator.group.classic.group_record import group_tombstone
from barnabas.coordinator.group.group_base import GroupMember, RefusalError
from barnabas.coordinator.group.replayed_group import ReplayedGroup
from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from barnabas.coordinator.group.group_base import GroupMetrics
    from barnabas.coordinator.group.group_config import GroupSettings
    from barnabas.coordinator.group.group_map import GroupMap, GroupsOfKind
    from barnabas.coordinator.group.topics import TopicHashes, TopicsView
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.coordinator.runtime.shard import ShardTimers
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.rng import Rng
    from barnabas.settings.definition import ParsedConfig

_log = logging.getLogger(__name__)


R = TypeVar("R", bound=ReplayedGroup[Any, Any])


# Delay of the next attempt if the removal of a member could not be written, in ms.
RETRY_MS = 500


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

    def update_rebalance(self, group_id: str, member: GroupMember) -> None:
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

    def end_removed(self, group_id: str, member_ids: Iterable[str], error: ErrorCode) -> None:
        """Cancel the timeouts of members whose removal was written, unless they have returned."""
        group = self._groups.find(group_id)
        for each in member_ids:
            if error is ErrorCode.NONE and (group is None or each not in group.members):
                self.end(group_id, each)

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


class GroupDependencies(msgspec.Struct, frozen=True):
    """The objects that the groups of all kinds in a shard share."""

    groups: GroupMap
    topics: TopicsView
    # Hashes of topics, which all kinds compare.
    hashes: TopicHashes
    timers: ShardTimers
    clock: Clock
    # Makes member ids.
    rng: Rng
    metrics: GroupMetrics


class KindShard(Generic[R]):
    """The groups of one kind in a shard, with their configuration and dependencies."""

    # Whether an empty classic group makes room for a group of this kind.
    replaces_classic: ClassVar[bool] = True
    # The error of a group that may not grow.
    too_large: ClassVar[str] = "The subscriptions of the members take too much memory."

    __slots__ = (
        "_all_groups",
        "_assignment_interval",
        "_broker_interval",
        "_broker_timeout",
        "_group_class",
        "_heartbeat_interval",
        "_session_timeout",
        "_settings",
        "_size_max",
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
        settings: GroupSettings,
        dependencies: GroupDependencies,
    ) -> None:
        self._settings = settings
        # Names of configs of groups, and of their defaults in the configuration of the broker.
        self._session_timeout = f"{group_class.kind}.session.timeout.ms"
        self._heartbeat_interval = f"{group_class.kind}.heartbeat.interval.ms"
        self._broker_timeout = f"group.{self._session_timeout}"
        self._broker_interval = f"group.{self._heartbeat_interval}"
        self._assignment_interval = f"{group_class.kind}.assignment.interval.ms"
        self._size_max = f"group.{group_class.kind}.max.size"
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
    def config(self) -> ParsedConfig:
        """The broker's current configuration."""
        return self._settings.config

    @property
    def size_max(self) -> int:
        """The highest number of members of a group."""
        return self.config.integer(self._size_max)

    def check_size(self, group: R, member_id: str, instance_id: str | None) -> None:
        """Check that the group may have the member of a heartbeat. Raises RefusalError."""
        if member_id in group.members or group.static_member(instance_id) is not None:
            return
        if len(group.members) >= self.size_max:
            raise RefusalError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The group already has {self.size_max} members, the limit of {self._size_max}.",
            )

    def session_timeout_ms(self, group_id: str) -> int:
        """Return the session timeout of a group's members."""
        return self._settings.value(group_id, self._session_timeout)

    def session_and_interval_ms(self, group_id: str) -> tuple[int, int]:
        """Return the session timeout and the heartbeat interval of a group's members."""
        settings = self._settings
        if group_id not in settings.overrides:
            # Nearly all groups, with each heartbeat.
            broker: dict[str, Any] = settings.config.values
            return broker[self._broker_timeout], broker[self._broker_interval]
        session_timeout_ms = settings.value(group_id, self._session_timeout)
        return session_timeout_ms, settings.value(group_id, self._heartbeat_interval)

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
