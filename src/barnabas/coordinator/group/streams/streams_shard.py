"""The streams groups of one state partition, with their configuration and dependencies."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.classic.group_record import group_tombstone
from barnabas.coordinator.group.classic.group_state import GroupState
from barnabas.coordinator.group.refusal import RefusalError
from barnabas.coordinator.group.replayed.group_table import GroupTable
from barnabas.coordinator.group.streams.streams_configs import read_configs
from barnabas.coordinator.group.streams.streams_group import StreamsGroup
from barnabas.coordinator.group.streams.streams_replay import STREAMS_REPLAYS
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from barnabas.coordinator.group.classic.classic_group import ClassicGroup
    from barnabas.coordinator.group.classic.group_memory import GroupMemory
    from barnabas.coordinator.group.configs.group_type_settings import GroupTypeSettings
    from barnabas.coordinator.group.configs.streams_config import StreamsGroupConfig
    from barnabas.coordinator.group.group_metrics import GroupMetrics
    from barnabas.coordinator.group.streams.members.streams_member import StreamsMember
    from barnabas.coordinator.group.streams.streams_configs import StreamsConfigs
    from barnabas.coordinator.group.streams.streams_topology import StreamsTopology
    from barnabas.coordinator.group.topic_hash import TopicHashes
    from barnabas.coordinator.group.topics_view import TopicsView
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.coordinator.runtime.shards.shard_timers import ShardTimers
    from barnabas.runtime.clock import Clock


class StreamsSurroundings(msgspec.Struct, frozen=True):
    """Dependencies of a shard's streams groups."""

    settings: GroupTypeSettings[StreamsGroupConfig]
    topics: TopicsView
    timers: ShardTimers
    clock: Clock
    metrics: GroupMetrics
    # Memory accounting of all groups of this broker.
    memory: GroupMemory
    # Hashes of topics, which consumer groups use too.
    hashes: TopicHashes


class OtherGroups(msgspec.Struct, frozen=True):
    """Access to the groups of other types in the same shard."""

    # Removes a classic group that has only offsets. False if the id has another group.
    make_room: Callable[[str], bool]
    # Whether an id has a consumer or share group.
    has_other: Callable[[str], bool]
    # Returns a classic group, or None.
    find_classic: Callable[[str], ClassicGroup | None]


class StreamsShard:
    """The streams groups of one shard. A group id belongs to one group of any type."""

    __slots__ = (
        "_last_configs",
        "_memory",
        "_others",
        "_settings",
        "clock",
        "groups",
        "hashes",
        "metrics",
        "timers",
        "topics",
    )

    def __init__(self, surroundings: StreamsSurroundings, others: OtherGroups) -> None:
        self._settings = surroundings.settings
        self._memory = surroundings.memory
        self._others = others
        # The configs that were read last.
        self._last_configs: StreamsConfigs | None = None
        self.topics = surroundings.topics
        self.timers = surroundings.timers
        self.clock = surroundings.clock
        self.metrics = surroundings.metrics
        self.hashes = surroundings.hashes
        self.groups = GroupTable("streams", self._create, others.make_room, STREAMS_REPLAYS)

    def _create(self, group_id: str) -> StreamsGroup:
        return StreamsGroup(group_id, self._memory)

    # Groups.

    def require(self, group_id: str) -> StreamsGroup:
        """Return an existing streams group. Raises RefusalError."""
        group = self.groups.find(group_id)
        if group is None:
            if self._others.has_other(group_id) or self._others.find_classic(group_id) is not None:
                raise _wrong_type(group_id)
            raise RefusalError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def find_or_create(
        self, group_id: str, records: list[CoordinatorRecord], *, is_joining: bool
    ) -> StreamsGroup:
        """Return the group of a heartbeat. Raises RefusalError.

        A new group is added by the replay of its records. A classic group without members makes
        room for it.
        """
        group = self.groups.find(group_id)
        if group is not None:
            return group
        if self._others.has_other(group_id):
            raise _wrong_type(group_id)
        classic = self._others.find_classic(group_id)
        if classic is not None:
            if not is_joining or not classic.is_in(GroupState.EMPTY):
                raise _wrong_type(group_id)
            records.append(group_tombstone(group_id))
        elif not is_joining:
            raise RefusalError(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {group_id} not found.")
        return self._create(group_id)

    def check_memory(
        self, group: StreamsGroup, member: StreamsMember, topology: StreamsTopology
    ) -> None:
        """Check that the group may grow by a member and a topology. Raises RefusalError."""
        growth = group.growth_by(member, topology)
        error = self._memory.check(group.held_bytes, growth)
        if error is not ErrorCode.NONE:
            raise RefusalError(error, "The topology and the members take too much memory.")

    def discard(self, group: StreamsGroup) -> Callable[[], None]:
        """Remove a group without members at once. Return a function that brings it back."""
        self.groups.remove(group.group_id)
        return partial(self._restore, group)

    def _restore(self, group: StreamsGroup) -> None:
        if self.groups.restore(group):
            group.reclaim_memory()

    # Configuration.

    @property
    def config(self) -> StreamsGroupConfig:
        """The broker's current configuration."""
        return self._settings.config

    def configs_of(self, group: StreamsGroup) -> StreamsConfigs:
        """Return the current configs of a group."""
        broker, own = self._settings.config, self._settings.overrides(group.group_id)
        known = group.configs
        if known is None or not known.is_of(broker, own):
            # Groups without own configs share the object.
            known = self._last_configs
            if known is None or not known.is_of(broker, own):
                known = self._last_configs = read_configs(self._settings, group.group_id, own)
            group.configs = known
        return known

    # Topics.

    def on_topics_changed(self, names: Collection[str]) -> None:
        """Let the next heartbeat of each group that uses these topics compare them."""
        for group in self.groups.all():
            if any(group.needs_topic(name) for name in names):
                group.request_refresh()


def _wrong_type(group_id: str) -> RefusalError:
    return RefusalError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
