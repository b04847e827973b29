"""The consumer groups of one state partition, with their configuration and dependencies."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.classic.group_record import group_tombstone
from barnabas.coordinator.group.classic.group_state import GroupState
from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
from barnabas.coordinator.group.consumer.consumer_replay import CONSUMER_REPLAYS
from barnabas.coordinator.group.consumer.matched_topics import MatchedTopics
from barnabas.coordinator.group.consumer.members.member_state import MemberState
from barnabas.coordinator.group.refusal import RefusalError
from barnabas.coordinator.group.replayed.group_table import GroupTable
from barnabas.coordinator.group.topic_hash import TopicHashes
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.primitives import uuid_to_string

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from barnabas.coordinator.group.classic.classic_group import ClassicGroup
    from barnabas.coordinator.group.classic.classic_groups import ClassicGroups
    from barnabas.coordinator.group.configs.consumer_config import ConsumerGroupConfig
    from barnabas.coordinator.group.configs.group_type_settings import GroupTypeSettings
    from barnabas.coordinator.group.consumer.consumer_timers import ConsumerTimers
    from barnabas.coordinator.group.consumer.members.consumer_member import ConsumerMember
    from barnabas.coordinator.group.group_metrics import GroupMetrics
    from barnabas.coordinator.group.topics_view import TopicsView
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.coordinator.runtime.shards.shard_timers import ShardTimers
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.rng import Rng


class ConsumerSurroundings(msgspec.Struct, frozen=True):
    """Dependencies of a shard's consumer groups."""

    settings: GroupTypeSettings[ConsumerGroupConfig]
    topics: TopicsView
    timers: ShardTimers
    clock: Clock
    rng: Rng
    metrics: GroupMetrics


class ConsumerShard:
    """The consumer groups of one shard. A group id belongs to a classic or to a consumer group."""

    __slots__ = (
        "_classic",
        "_has_other",
        "_rng",
        "_settings",
        "clock",
        "groups",
        "hashes",
        "matched_topics",
        "metrics",
        "new_topics_version",
        "timers",
        "topics",
    )

    def __init__(
        self,
        surroundings: ConsumerSurroundings,
        classic: ClassicGroups,
        has_other: Callable[[str], bool],
    ) -> None:
        self._classic = classic
        # Whether an id has a share or streams group.
        self._has_other = has_other
        self._settings = surroundings.settings
        self._rng = surroundings.rng
        self.topics = surroundings.topics
        self.timers = surroundings.timers
        self.clock = surroundings.clock
        self.metrics = surroundings.metrics
        self.hashes = TopicHashes(self.topics)
        self.matched_topics = MatchedTopics()
        self.groups = GroupTable("consumer", self._create, self._make_room, CONSUMER_REPLAYS)
        # Offset of the last metadata image with new topics. Older results of regular expressions
        # are outdated.
        self.new_topics_version = -1

    def _create(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self._classic.memory)

    def _make_room(self, group_id: str) -> bool:
        return not self._has_other(group_id) and self.remove_offsets_only(group_id)

    def remove_offsets_only(self, group_id: str) -> bool:
        """Remove a classic group that has only offsets. Return whether the id is free now."""
        group = self._classic.find(group_id)
        if group is None:
            return True
        if not group.is_in(GroupState.EMPTY) or group.protocol_type is not None:
            return False
        self._classic.remove(group, ErrorCode.UNKNOWN_MEMBER_ID)
        return True

    # Groups.

    def require(self, group_id: str) -> ConsumerGroup:
        """Return an existing consumer group. Raises RefusalError."""
        group = self.groups.find(group_id)
        if group is not None:
            return group
        if self._classic.find(group_id) is None and not self._has_other(group_id):
            message = f"Group {group_id} not found."
        else:
            message = f"Group {group_id} is not a consumer group."
        raise RefusalError(ErrorCode.GROUP_ID_NOT_FOUND, message)

    def find_or_create(
        self,
        group_id: str,
        records: list[CoordinatorRecord],
        upgrade: Callable[[ClassicGroup], ConsumerGroup],
        *,
        is_joining: bool,
    ) -> ConsumerGroup:
        """Return the group of a heartbeat. Raises RefusalError.

        A new group is added by the replay of its records. A classic group without members makes
        room for it. A classic group with members is converted.

        Args:
            group_id: the group.
            records: gets the records of the change.
            upgrade: returns the consumer group of a classic group with members.
            is_joining: whether the heartbeat may create or convert a group.
        """
        group = self.groups.find(group_id)
        if group is not None:
            return group
        if self._has_other(group_id):
            raise RefusalError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group."
            )
        classic = self._classic.find(group_id)
        if classic is None:
            if is_joining:
                return self._create(group_id)
            raise RefusalError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found."
            )
        if not is_joining:
            raise RefusalError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group."
            )
        if not classic.is_in(GroupState.EMPTY):
            return upgrade(classic)
        records.append(group_tombstone(group_id))
        return self._create(group_id)

    def new_member_id(self) -> str:
        """Return a random id for a client that has not chosen one."""
        return uuid_to_string(self._rng.uuid())

    def check_memory(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Check that the group may grow by the new state of a member. Raises RefusalError."""
        growth = group.growth_by(member)
        error = self._classic.memory.check(group.held_bytes, growth)
        if error is not ErrorCode.NONE:
            raise RefusalError(error, "The subscriptions of the members take too much memory.")

    # Configuration.

    def session_timeout_ms(self, group_id: str) -> int:
        """Return the session timeout of a group's members."""
        return self._settings.value(group_id, "consumer.session.timeout.ms")

    def session_timeout_of(self, group_id: str, member: ConsumerMember) -> int:
        """Return the session timeout of a member, its own one with the classic protocol."""
        if member.classic is not None:
            return member.classic.session_timeout_ms
        return self.session_timeout_ms(group_id)

    def session_and_interval_ms(self, group_id: str) -> tuple[int, int]:
        """Return the session timeout and the heartbeat interval of a group's members."""
        return self._settings.values(
            group_id, "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
        )

    @property
    def config(self) -> ConsumerGroupConfig:
        """The broker's current configuration."""
        return self._settings.config

    def assignment_interval_ms(self, group_id: str) -> int:
        """Return the minimum time between two target assignments of a group."""
        return self._settings.value(group_id, "consumer.assignment.interval.ms")

    # Topics and leadership.

    def on_topics_changed(self, names: Collection[str], *, has_new: bool) -> None:
        """Let the next heartbeat of each group that subscribes to these topics compare them."""
        self.hashes.forget(names)
        self.matched_topics.clear()
        if has_new:
            self.new_topics_version = self.topics.version()
        for group in self.groups.all():
            if any(group.is_subscribed_to(name) for name in names):
                group.request_refresh()

    def start_timers(self, timers: ConsumerTimers) -> None:
        """Start the timeouts of all members after the shard is loaded."""
        for group in self.groups.all():
            for member in group.members.values():
                timeout_ms = self.session_timeout_of(group.group_id, member)
                timers.restart_session(group.group_id, member.member_id, timeout_ms)
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    timers.start_rebalance(group.group_id, member)

    def discard(self, group: ConsumerGroup) -> Callable[[], None]:
        """Remove a group without members at once. Return a function that brings it back."""
        self.groups.remove(group.group_id)
        return partial(self.restore, group)

    def restore(self, group: ConsumerGroup) -> None:
        """Bring back a removed group, unless a new one has its id."""
        if self.groups.restore(group):
            group.reclaim_memory()
