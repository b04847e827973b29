"""Plans of the calls that both consumers have and that wait: positions, commits, offsets, topics.

Timeouts are in seconds; None means default.api.timeout.ms.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.client.connections.lookups import TopicLookup, look_up_all_topics
from barnabas.client.consumer.assignment.topic_partition_state import OffsetReset
from barnabas.client.consumer.commits import as_offsets
from barnabas.client.fetch.offset_lookups import EARLIEST, LATEST, OffsetLookup
from barnabas.client.topic_partition import (
    TopicPartition,
    as_partition,
    as_partitions,
    by_partition,
    flat_partitions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.client.connections.metadata_cache import PartitionInfo, TopicInfo
    from barnabas.client.consumer.consumer_calls import ConsumerCalls
    from barnabas.client.fetch.offset_lookups import ListedOffset
    from barnabas.client.group.group_offsets import CommittedOffset
    from barnabas.client.retries import OnDone
    from barnabas.client.session.plans import WaitingPlan
    from barnabas.client.topic_partition import K

    Partition = tuple[str, int]
    Partitions = Partition | Iterable[Partition]


def unsubscribe(calls: ConsumerCalls) -> WaitingPlan[None]:
    """Give up all partitions, and leave the group if the consumer is a member."""
    core = calls.core
    if not (core.host.is_leaving and calls.may_overlap):
        core.unsubscribe("the consumer unsubscribed", _nothing)
    yield from finish_leaving(calls)
    calls.raise_callback_error()


def finish_leaving(calls: ConsumerCalls) -> WaitingPlan[None]:
    """Wait until the consumer has left; `callback_error` keeps a callback's exception."""
    core = calls.core
    deadline_ms = calls.clock.monotonic_ms() + calls.limit_ms(None)
    yield from calls.run_steps(lambda: not core.host.is_leaving, deadline_ms)
    if core.host.is_leaving:
        core.end_subscription()


def position(
    calls: ConsumerCalls, partition: Partition, timeout: float | None = None
) -> WaitingPlan[int]:
    """Return the offset of the record that the next poll begins with.

    Args:
        partition: An assigned partition, as (topic, number).
        timeout: Seconds; None for default.api.timeout.ms.

    Raises:
        SubscriptionError: The partition is not assigned.
        ClientTimeoutError: The position was not found within the timeout.
    """
    tp = as_partition(partition)
    core, begun, limit_ms = calls.core, calls.closings, calls.limit_ms(timeout)
    state = core.subscription.partition(tp)
    deadline_ms = calls.clock.monotonic_ms() + limit_ms
    has_time = True
    while not state.has_position:
        if not has_time:
            raise calls.timeout_error(f"position of {tp}", limit_ms)
        core.is_awake = False
        calls.check_interrupted(begun)
        # Start the requests that partitions without a valid position need.
        core.positions.update()
        if not state.has_position:
            yield calls.event_before(deadline_ms, begun)
            has_time = calls.clock.monotonic_ms() < deadline_ms
    return state.offset


def seek_to_time(
    calls: ConsumerCalls, timestamp_ms: int, *partitions: Partitions
) -> WaitingPlan[None]:
    """Continue at the first record at or after a timestamp; at the end if there is none.

    Args:
        timestamp_ms: Timestamp in ms since the epoch.
        partitions: (topic, number) pairs; all assigned partitions if omitted.

    Raises:
        SubscriptionError: A partition is not assigned.
        ValueError: The timestamp is negative.
    """
    subscription, positions = calls.core.subscription, calls.core.positions
    wanted = flat_partitions(partitions) or list(subscription.assignment)
    for tp in wanted:
        subscription.partition(tp)
    first = yield from _first_since(calls, dict.fromkeys(wanted, timestamp_ms), "seek to a time")
    for tp, listed in first.items():
        if tp not in subscription.assignment:
            continue
        if listed is None:
            positions.reset(tp, OffsetReset.latest())
        else:
            positions.seek(tp, listed.offset)


def commit(
    calls: ConsumerCalls,
    offsets: Mapping[K, int | CommittedOffset] | None = None,
    timeout: float | None = None,
) -> WaitingPlan[None]:
    """Commit offsets and wait for the result (Java's commitSync).

    Args:
        offsets: For each partition the offset of the next record to read; None commits all
            positions.
        timeout: Seconds; None for default.api.timeout.ms.

    Raises:
        CommitFailedError: The group has assigned the partitions to other members.
        ClientTimeoutError: The commit did not succeed within the timeout.
        InvalidGroupIdError: `group.id` is missing.
        ValueError: An offset is negative.
    """
    core = calls.core
    try:
        _ = core.group_id
        wanted = core.commits.consumed() if offsets is None else as_offsets(offsets)
        start = partial(core.commits.commit, wanted, calls.limit_ms(timeout))
        yield from calls.result(start, "commit", timeout)
    finally:
        core.commits.run_callbacks()


def committed(
    calls: ConsumerCalls, partitions: Iterable[Partition], timeout: float | None = None
) -> WaitingPlan[dict[TopicPartition, CommittedOffset | None]]:
    """Return the group's committed offsets of these partitions; None where there is none.

    Args:
        partitions: (topic, number) pairs.
        timeout: Seconds; None for default.api.timeout.ms.

    Raises:
        InvalidGroupIdError: `group.id` is missing.
    """
    core, wanted = calls.core, as_partitions(partitions)

    def start(on_done: OnDone[dict[TopicPartition, CommittedOffset]]) -> None:
        limit_ms = calls.limit_ms(timeout)
        core.offsets.committed(lambda: core.generation, wanted, limit_ms, on_done)

    offsets = yield from calls.result(start, "committed offsets", timeout)
    return {tp: offsets.get(tp) for tp in wanted}


def beginning_offsets(
    calls: ConsumerCalls, partitions: Iterable[Partition], timeout: float | None = None
) -> WaitingPlan[dict[TopicPartition, int]]:
    """Return the first offset of each partition.

    Args:
        partitions: (topic, number) pairs.
        timeout: Seconds; None for default.api.timeout.ms.
    """
    specs = dict.fromkeys(as_partitions(partitions), EARLIEST)
    listed = yield from _list_offsets(calls, specs, "offsets", timeout)
    return {tp: each.offset for tp, each in listed.items()}


def end_offsets(
    calls: ConsumerCalls, partitions: Iterable[Partition], timeout: float | None = None
) -> WaitingPlan[dict[TopicPartition, int]]:
    """Return the end offset of each partition: the offset after the last visible record.

    With isolation.level=read_committed this is the last stable offset.

    Args:
        partitions: (topic, number) pairs.
        timeout: Seconds; None for default.api.timeout.ms.
    """
    specs = dict.fromkeys(as_partitions(partitions), LATEST)
    listed = yield from _list_offsets(calls, specs, "offsets", timeout)
    return {tp: each.offset for tp, each in listed.items()}


def offsets_for_times(
    calls: ConsumerCalls, timestamps: Mapping[K, int], timeout: float | None = None
) -> WaitingPlan[dict[TopicPartition, ListedOffset | None]]:
    """Return for each partition the first record at or after a timestamp, or None.

    Args:
        timestamps: Timestamps in ms since the epoch, by partition.
        timeout: Seconds; None for default.api.timeout.ms.

    Returns:
        Offset, timestamp and leader epoch by partition; None where no record is that recent.

    Raises:
        ValueError: A timestamp is negative.
    """
    return _first_since(calls, by_partition(timestamps), "offsets", timeout)


def _first_since(
    calls: ConsumerCalls,
    timestamps: Mapping[TopicPartition, int],
    subject: str,
    timeout: float | None = None,
) -> WaitingPlan[dict[TopicPartition, ListedOffset | None]]:
    for tp, timestamp in timestamps.items():
        if timestamp < 0:
            raise ValueError(f"{tp}: the timestamp is negative: {timestamp}")
    listed = yield from _list_offsets(calls, timestamps, subject, timeout)
    return {tp: None if each.offset < 0 else each for tp, each in listed.items()}


def _list_offsets(
    calls: ConsumerCalls,
    specs: Mapping[TopicPartition, int],
    subject: str,
    timeout: float | None,
) -> WaitingPlan[dict[TopicPartition, ListedOffset]]:
    isolation = int(calls.core.config.isolation_level == "read_committed")

    def start(on_done: OnDone[dict[TopicPartition, ListedOffset]]) -> None:
        OffsetLookup(calls.cluster, specs, isolation, calls.limit_ms(timeout), on_done).start()

    return calls.result(start, subject, timeout)


def partitions_for(
    calls: ConsumerCalls, topic: str, timeout: float | None = None
) -> WaitingPlan[list[PartitionInfo]]:
    """Return the partitions of a topic, with leaders and replicas.

    Args:
        topic: Name of the topic.
        timeout: Seconds; None for default.api.timeout.ms.

    Raises:
        UnknownTopicError: The topic does not exist.
    """

    def start(on_done: OnDone[dict[str, TopicInfo]]) -> None:
        TopicLookup(calls.cluster, [topic], calls.limit_ms(timeout), on_done).start()

    topics = yield from calls.result(start, f"partitions of {topic}", timeout)
    return _by_number(topics[topic])


def list_topics(
    calls: ConsumerCalls, timeout: float | None = None
) -> WaitingPlan[dict[str, list[PartitionInfo]]]:
    """Return all topics that this principal may describe, with their partitions."""
    start = partial(look_up_all_topics, calls.cluster, calls.limit_ms(timeout))
    topics = yield from calls.result(start, "list of topics", timeout)
    return {name: _by_number(topic) for name, topic in topics.items()}


def _by_number(topic: TopicInfo) -> list[PartitionInfo]:
    return [topic.partitions[number] for number in sorted(topic.partitions)]


def _nothing() -> None:
    """Do nothing: `GroupHost.is_leaving` shows when the consumer has left."""
