"""The group coordinator of a broker (Kafka's GroupCoordinatorService).

The path of a request: handler ->  `MemberRequests`, `OffsetRequests` or `GroupRequests` (checks
without the group) -> runtime -> a part of the group's `GroupShard` -> response and records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.classic.group_memory import GroupMemory
from barnabas.coordinator.group.consumer.consumer_shard import (
    ConsumerSettings,
    ConsumerSurroundings,
)
from barnabas.coordinator.group.consumer_requests import ConsumerRequests
from barnabas.coordinator.group.group_metrics import GroupMetrics
from barnabas.coordinator.group.group_requests import GroupRequests
from barnabas.coordinator.group.group_shard import GroupShard
from barnabas.coordinator.group.member_requests import MemberRequests
from barnabas.coordinator.group.offset_requests import OffsetRequests
from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from barnabas.coordinator.group.config import GroupCoordinatorConfig
    from barnabas.coordinator.group.topics_view import TopicsView
    from barnabas.coordinator.runtime.runtime_dependencies import RuntimeDependencies
    from barnabas.coordinator.runtime.shard_context import ShardContext
    from barnabas.runtime.rng import Rng

OFFSETS_TOPIC = "__consumer_offsets"


class GroupCoordinator:
    """The groups whose partition of `__consumer_offsets` this broker leads."""

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        dependencies: RuntimeDependencies,
        topics: TopicsView,
        rng: Rng,
        consumers: ConsumerSettings | None = None,
    ) -> None:
        settings = ConsumerSettings() if consumers is None else consumers
        # The configuration of consumer groups. The broker changes it.
        self.consumer_settings = settings
        # Counters and memory accounting of all shards.
        self.metrics = GroupMetrics()
        self.memory = GroupMemory()

        def make_shard(context: ShardContext) -> GroupShard:
            surroundings = ConsumerSurroundings(
                settings, topics, context.timers, dependencies.clock, rng, self.metrics
            )
            return GroupShard(config, surroundings, self.memory)

        self.runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            OFFSETS_TOPIC, dependencies, make_shard
        )
        # The requests, by their clients: members, members and others, administrators.
        self.members = MemberRequests(config, self.runtime)
        self.offsets = OffsetRequests(self.runtime, topics, dependencies.clock)
        self.groups = GroupRequests(self.runtime, topics)
        self.consumers = ConsumerRequests(self.runtime, topics, settings)

    def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Remove the groups' committed offsets of these topics (ids by name)."""
        for shard in self.runtime.shards():
            shard.forget_topics(topics)

    def on_topics_changed(self, names: Collection[str], *, has_new: bool) -> None:
        """Let consumer groups compare topics that were created, changed or deleted.

        Args:
            names: the names of the topics.
            has_new: whether there are new topics, which regular expressions may match.
        """
        for shard in self.runtime.shards():
            shard.consumer_groups.on_topics_changed(names, has_new=has_new)
