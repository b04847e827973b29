"""The group coordinator of a broker (Kafka's GroupCoordinatorService).

The path of a request: handler -> `MemberRequests`, `OffsetRequests` or `GroupRequests` (checks
without the group) -> runtime -> a part of the group's `GroupShard` -> response and records.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.classic.classic_group import GroupState
from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroupState
from barnabas.coordinator.group.group_base import GroupMemory, GroupMetrics
from barnabas.coordinator.group.group_config import GroupSettings
from barnabas.coordinator.group.group_kind import GroupDependencies
from barnabas.coordinator.group.group_shard import GroupShard
from barnabas.coordinator.group.kinds import new_group_map
from barnabas.coordinator.group.requests.group_requests import GroupRequests
from barnabas.coordinator.group.requests.member_requests import ConsumerRequests, MemberRequests
from barnabas.coordinator.group.requests.offset_requests import OffsetRequests
from barnabas.coordinator.group.requests.share_offset_requests import (
    ShareOffsetDescriptions,
    ShareOffsetRequests,
)
from barnabas.coordinator.group.requests.share_requests import ShareInitializer, ShareRequests
from barnabas.coordinator.group.requests.streams_requests import StreamsRequests
from barnabas.coordinator.group.share.share_group import ShareGroupState
from barnabas.coordinator.group.streams.streams_group import StreamsGroupState
from barnabas.coordinator.group.topics import TopicHashes
from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from barnabas.coordinator.runtime.loader import load_time_families
from barnabas.metrics import names
from barnabas.metrics.registry import MetricFamily

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from barnabas.coordinator.group.group_config import GroupCoordinatorConfig
    from barnabas.coordinator.group.requests.share_offset_requests import LatestOffsetFinder
    from barnabas.coordinator.group.share.share_state import ShareStateStore
    from barnabas.coordinator.group.topics import TopicsView
    from barnabas.coordinator.runtime.runtime_dependencies import RuntimeDependencies
    from barnabas.coordinator.runtime.shard import ShardContext
    from barnabas.metrics.registry import Tags
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
        self.consumers = ConsumerRequests(self.runtime, topics, found)
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


def group_families(coordinator: GroupCoordinator) -> Iterator[MetricFamily]:
    """Yield the counters, and the current numbers of groups and state partitions."""
    metrics, runtime = coordinator.metrics, coordinator.runtime
    shards = runtime.active_shards()
    states = Counter(group.state for shard in shards for group in shard.classic_groups.all())
    offsets = sum(shard.offsets.count() for shard in shards)
    for name, value in (
        (names.GROUP_OFFSETS, offsets),
        (names.GROUPS, sum(states.values())),
        (names.GROUPS_PREPARING_REBALANCE, states[GroupState.PREPARING_REBALANCE]),
        (names.GROUPS_COMPLETING_REBALANCE, states[GroupState.COMPLETING_REBALANCE]),
        (names.GROUPS_STABLE, states[GroupState.STABLE]),
        (names.GROUPS_EMPTY, states[GroupState.EMPTY]),
        (names.GROUP_REBALANCES, metrics.completed_rebalances),
        (names.CONSUMER_GROUP_REBALANCES, metrics.consumer_rebalances),
        (names.SHARE_GROUP_REBALANCES, metrics.share_rebalances),
        (names.STREAMS_GROUP_REBALANCES, metrics.streams_rebalances),
        (names.OFFSET_COMMITS, metrics.offset_commits),
        (names.OFFSET_DELETIONS, metrics.offset_deletions),
        (names.OFFSET_EXPIRATIONS, metrics.offset_expirations),
        (names.COORDINATOR_RECORDS_SKIPPED, runtime.skipped_records),
    ):
        yield MetricFamily(name, [((), value)])
    yield from load_time_families(
        runtime.load_times, runtime.now_ms(), (names.GROUP_LOAD_TIME_AVG, names.GROUP_LOAD_TIME_MAX)
    )
    counted = runtime.state_counts()
    yield MetricFamily(
        names.GROUP_STATE_PARTITIONS,
        [((("state", state.value),), count) for state, count in counted.items()],
    )
    modern = Counter(
        each.state for shard in shards for kind in shard.kinds()[1:] for each in kind.all()
    )
    for name, labels in (
        (names.CONSUMER_GROUPS, {state: state.value.lower() for state in ConsumerGroupState}),
        (names.SHARE_GROUPS, {state: state.value.lower() for state in ShareGroupState}),
        (names.STREAMS_GROUPS, {state: state.filter_name for state in StreamsGroupState}),
    ):
        counts = [((("state", label),), modern[state]) for state, label in labels.items()]
        yield MetricFamily(name, counts)
    yield MetricFamily(names.GROUP_CURRENT_OFFSET, _current_offsets(shards))


def _current_offsets(shards: Iterable[GroupShard]) -> Iterator[tuple[Tags, float]]:
    """Yield the offsets lazily, since there may be many, while the response is sent."""
    for shard in shards:
        for group_id, (topic, partition), committed in shard.offsets.items():
            tags = (("consumergroup", group_id), ("topic", topic), ("partition", str(partition)))
            yield tags, committed.offset
