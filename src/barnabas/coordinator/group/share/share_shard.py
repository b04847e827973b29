"""The share groups of one state partition, with their configuration and dependencies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.refusal import RefusalError
from barnabas.coordinator.group.replayed.group_table import GroupTable
from barnabas.coordinator.group.share.share_group import ShareGroup
from barnabas.coordinator.group.share.share_replay import share_replays
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from barnabas.coordinator.group.classic.group_memory import GroupMemory
    from barnabas.coordinator.group.configs.group_type_settings import GroupTypeSettings
    from barnabas.coordinator.group.configs.share_config import ShareGroupConfig
    from barnabas.coordinator.group.group_metrics import GroupMetrics
    from barnabas.coordinator.group.share.share_member import ShareMember
    from barnabas.coordinator.group.topic_hash import TopicHashes
    from barnabas.coordinator.group.topics_view import TopicsView
    from barnabas.coordinator.runtime.shards.shard_timers import ShardTimers
    from barnabas.runtime.clock import Clock

# The name that Kafka writes for topic ids that no longer exist.
_UNKNOWN_NAME = "<UNKNOWN>"


class ShareSurroundings(msgspec.Struct, frozen=True):
    """Dependencies of a shard's share groups."""

    settings: GroupTypeSettings[ShareGroupConfig]
    topics: TopicsView
    timers: ShardTimers
    clock: Clock
    metrics: GroupMetrics
    # Memory accounting of all groups of this broker.
    memory: GroupMemory
    # Hashes of topics, which consumer groups use too.
    hashes: TopicHashes
    # offsets.commit.timeout.ms.
    write_timeout_ms: int


class ShareShard:
    """The share groups of one shard. A group id belongs to one group of any type."""

    __slots__ = (
        "_has_other",
        "_memory",
        "_settings",
        "_write_timeout_ms",
        "clock",
        "groups",
        "hashes",
        "metrics",
        "timers",
        "topics",
    )

    def __init__(
        self,
        surroundings: ShareSurroundings,
        make_room: Callable[[str], bool],
        has_other: Callable[[str], bool],
    ) -> None:
        """Create the shard.

        Args:
            surroundings: dependencies of the groups.
            make_room: removes a classic group that has only offsets. False if the id has another
                group.
            has_other: whether an id has a classic or consumer group.
        """
        self._settings = surroundings.settings
        self._memory = surroundings.memory
        self._has_other = has_other
        self._write_timeout_ms = surroundings.write_timeout_ms
        self.topics = surroundings.topics
        self.timers = surroundings.timers
        self.clock = surroundings.clock
        self.metrics = surroundings.metrics
        self.hashes = surroundings.hashes
        self.groups = GroupTable("share", self._create, make_room, share_replays(self.clock))

    def _create(self, group_id: str) -> ShareGroup:
        return ShareGroup(group_id, self._memory)

    # Groups.

    def require(self, group_id: str) -> ShareGroup:
        """Return an existing share group. Raises RefusalError."""
        group = self.groups.find(group_id)
        if group is None:
            self._check_type(group_id)
            raise RefusalError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def find_or_create(self, group_id: str, *, may_create: bool) -> ShareGroup:
        """Return the group of a request. Raises RefusalError.

        A new group is added by the replay of its records.
        """
        group = self.groups.find(group_id)
        if group is None:
            self._check_type(group_id)
            if not may_create:
                raise RefusalError(
                    ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found."
                )
            group = self._create(group_id)
        return group

    def _check_type(self, group_id: str) -> None:
        if self._has_other(group_id):
            raise RefusalError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group."
            )

    def check_memory(self, group: ShareGroup, member: ShareMember) -> None:
        """Check that the group may grow by the new state of a member. Raises RefusalError."""
        error = self._memory.check(group.held_bytes, group.growth_by(member))
        if error is not ErrorCode.NONE:
            raise RefusalError(error, "The subscriptions of the members take too much memory.")

    # Configuration.

    @property
    def config(self) -> ShareGroupConfig:
        """The broker's current configuration."""
        return self._settings.config

    @property
    def initialize_retry_ms(self) -> int:
        """Time after which an initialization without a result is repeated."""
        return max(self.config.group_share_initialize_retry_interval_ms, self._write_timeout_ms)

    def session_timeout_ms(self, group_id: str) -> int:
        """Return the session timeout of a group's members."""
        return self._settings.value(group_id, "share.session.timeout.ms")

    def session_and_interval_ms(self, group_id: str) -> tuple[int, int]:
        """Return the session timeout and the heartbeat interval of a group's members."""
        return self._settings.values(
            group_id, "share.session.timeout.ms", "share.heartbeat.interval.ms"
        )

    def assignment_interval_ms(self, group_id: str) -> int:
        """Return the minimum time between two target assignments of a group."""
        return self._settings.value(group_id, "share.assignment.interval.ms")

    # Topics.

    def names_of(self, topic_ids: Iterable[bytes]) -> dict[bytes, str]:
        """Return the names of topics; Kafka's placeholder for topics that do not exist."""
        return {each: self.topics.topic_name(each) or _UNKNOWN_NAME for each in topic_ids}

    def on_topics_changed(self, names: Collection[str]) -> None:
        """Let the next heartbeat of each group that subscribes to these topics compare them."""
        for group in self.groups.all():
            if any(group.is_subscribed_to(name) for name in names):
                group.request_refresh()
