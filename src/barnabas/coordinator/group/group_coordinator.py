"""The group coordinator of a broker (Kafka's GroupCoordinatorService).

The path of a request: handler -> `MemberRequests`, `OffsetRequests` or `GroupRequests` (checks
without the group) -> runtime -> a part of the group's `GroupShard` -> response and records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.configs.group_type_settings import GroupSettings
from barnabas.coordinator.group.group_kind import GroupDependencies
from barnabas.coordinator.group.group_memory import GroupMemory
from barnabas.coordinator.group.group_metrics import GroupMetrics
from barnabas.coordinator.group.group_shard import GroupShard, new_group_map
from barnabas.coordinator.group.requests.consumer_requests import ConsumerRequests
from barnabas.coordinator.group.requests.group_requests import GroupRequests
from barnabas.coordinator.group.requests.member_requests import MemberRequests
from barnabas.coordinator.group.requests.offset_requests import OffsetRequests
from barnabas.coordinator.group.requests.share_offset_requests import ShareOffsetRequests
from barnabas.coordinator.group.requests.share_requests import ShareRequests
from barnabas.coordinator.group.requests.streams_requests import StreamsRequests
from barnabas.coordinator.group.share_initializer import ShareInitializer
from barnabas.coordinator.group.share_offset_describe import ShareOffsetDescriptions
from barnabas.coordinator.group.topic_hash import TopicHashes
from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from barnabas.coordinator.group.configs.config import GroupCoordinatorConfig
    from barnabas.coordinator.group.share.state_store import ShareStateStore
    from barnabas.coordinator.group.share_offset_describe import LatestOffsetFinder
    from barnabas.coordinator.group.topics_view import TopicsView
    from barnabas.coordinator.runtime.runtime_dependencies import RuntimeDependencies
    from barnabas.coordinator.runtime.shards.shard_context import ShardContext
    from barnabas.runtime.rng import Rng

OFFSETS_TOPIC = "__consumer_offsets"


class ShareServices(msgspec.Struct, frozen=True):
    """The services of the broker on which share groups depend."""

    store: ShareStateStore
    latest: LatestOffsetFinder


class GroupCoordinator:
    """The groups whose partition of `__consumer_offsets` this broker leads."""

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        dependencies: RuntimeDependencies,
        topics: TopicsView,
        rng: Rng,
        share_services: ShareServices,
        settings: GroupSettings | None = None,
    ) -> None:
        """Create the coordinator.

        Args:
            config: values of configuration keys that do not change.
            dependencies: the dependencies of the runtime.
            topics: the topics of the cluster.
            rng: makes member ids.
            share_services: the share coordinators and the leaders of partitions.
            settings: values of configuration keys that change.
        """
        found = GroupSettings() if settings is None else settings
        self.settings = found
        # Counters and memory accounting of all shards.
        self.metrics = GroupMetrics()
        self.memory = GroupMemory()

        def make_shard(context: ShardContext) -> GroupShard:
            clock = dependencies.clock
            groups, hashes = new_group_map(clock, self.memory), TopicHashes(topics)
            needed = GroupDependencies(
                groups, topics, hashes, context.timers, clock, rng, self.metrics
            )
            return GroupShard(config, found, needed)

        self.runtime: CoordinatorRuntime[GroupShard] = CoordinatorRuntime(
            OFFSETS_TOPIC, dependencies, make_shard
        )
        # The handlers of requests, by type of group and of request.
        self.members = MemberRequests(config, self.runtime)
        self.offsets = OffsetRequests(self.runtime, topics, dependencies.clock)
        self.consumers = ConsumerRequests(self.runtime, topics, found.consumers)
        store = share_services.store
        initializer = ShareInitializer(self.runtime, store)
        self.shares = ShareRequests(self.runtime, topics, store, initializer)
        self.streams = StreamsRequests(self.runtime, topics)
        self.share_offsets = ShareOffsetRequests(self.runtime, topics, store, initializer)
        self.share_descriptions = ShareOffsetDescriptions(
            self.runtime, topics, store, share_services.latest
        )
        self.groups = GroupRequests(self.runtime, topics, self.shares.delete_state)

    def on_topics_deleted(self, topics: Mapping[str, bytes]) -> None:
        """Remove the groups' committed offsets and share state of these topics (ids by name)."""
        for shard in self.runtime.shards():
            shard.forget_topics(topics)

    def on_topics_changed(self, names: Collection[str], *, has_new: bool) -> None:
        """Let groups compare topics that were created, changed or deleted.

        Args:
            names: the names of the topics.
            has_new: whether there are new topics, which regular expressions may match.
        """
        for shard in self.runtime.shards():
            shard.on_topics_changed(names, has_new=has_new)
