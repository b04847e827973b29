"""Publishes the group coordinator's metrics under Kafka's names (GroupCoordinatorMetrics)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from barnabas.coordinator.group.classic.group_state import GroupState
from barnabas.coordinator.group.consumer.consumer_group_state import ConsumerGroupState
from barnabas.coordinator.group.share.share_group_state import ShareGroupState
from barnabas.coordinator.group.streams.streams_group_state import StreamsGroupState
from barnabas.coordinator.runtime.loading.load_times import load_time_families
from barnabas.metrics import names
from barnabas.metrics.family import MetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.coordinator.group.group_coordinator import GroupCoordinator
    from barnabas.coordinator.group.group_shard import GroupShard
    from barnabas.metrics.family import Tags


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
