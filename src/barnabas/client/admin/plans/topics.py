"""Topics and their partitions: created, deleted, described, moved; their records and offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.admin import offsets, partitions, reassignments, topic_partitions, topics
from barnabas.client.cluster import ANY_NODE, CONTROLLER
from barnabas.client.errors import BrokerError, ClientError, UnsupportedVersionError
from barnabas.client.list_offsets import offset_spec
from barnabas.client.topic_partition import K, as_partitions, by_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.admin.call import AdminCall
    from barnabas.client.admin.plan import Plan
    from barnabas.client.admin.sender import AdminSender
    from barnabas.client.list_offsets import ListedOffset
    from barnabas.client.topic_partition import TopicPartition


def create_topics(
    sender: AdminSender, new: Sequence[topics.NewTopic], *, validate_only: bool = False
) -> Plan[dict[str, BrokerError | None]]:
    """Create topics; an error or None for each. They may not have leaders yet."""
    call = topics.create_topics(new, sender.timeout_ms, validate_only=validate_only)
    return sender.send(CONTROLLER, call)


def delete_topics(sender: AdminSender, names: Sequence[str]) -> Plan[dict[str, BrokerError | None]]:
    """Delete topics; an error or None for each."""
    return sender.send(CONTROLLER, topics.delete_topics(names, sender.timeout_ms))


def delete_topics_by_id(
    sender: AdminSender, ids: Sequence[bytes]
) -> Plan[dict[bytes, BrokerError | None]]:
    """Delete topics by their ids of 16 bytes (KIP-516): not another of the same name."""
    return sender.send(CONTROLLER, topics.delete_topics_by_id(ids, sender.timeout_ms))


def create_partitions(
    sender: AdminSender,
    counts: Mapping[str, int | topics.NewPartitions],
    *,
    validate_only: bool = False,
) -> Plan[dict[str, BrokerError | None]]:
    """Raise the number of partitions of topics to `counts`; an error or None for each."""
    call = topics.create_partitions(counts, sender.timeout_ms, validate_only=validate_only)
    return sender.send(CONTROLLER, call)


def describe_topic_partitions(
    sender: AdminSender, names: Sequence[str] = ()
) -> Plan[dict[str, topic_partitions.TopicState | ClientError]]:
    """Topics with their partitions as the controller has them, all topics if none is named."""
    found: dict[str, topic_partitions.TopicState | ClientError] = {}
    cursor: topic_partitions.Cursor | None = None
    while True:
        call = topic_partitions.describe_topic_partitions(names, cursor)
        try:
            page = yield from sender.send(ANY_NODE, call)
        except UnsupportedVersionError:
            call = topic_partitions.describe_topics_by_metadata(names)
            return (yield from sender.send(ANY_NODE, call)).topics
        for name, topic in page.topics.items():
            known = found.setdefault(name, topic)
            if known is not topic and not isinstance(known, ClientError):
                # A topic that goes on from the page before.
                assert not isinstance(topic, ClientError)
                known.partitions.update(topic.partitions)
        cursor = page.next_cursor
        if cursor is None:
            return found


def delete_records(
    sender: AdminSender, before: Mapping[K, int]
) -> Plan[dict[TopicPartition, int | ClientError]]:
    """Delete the records before an offset, all for -1.

    Returns:
        The offset that each partition now starts at.
    """

    offsets_wanted = by_partition(before)

    def call_for(part: list[TopicPartition]) -> AdminCall[dict[TopicPartition, int | ClientError]]:
        return partitions.delete_records({tp: offsets_wanted[tp] for tp in part}, sender.timeout_ms)

    return sender.send_to_leaders(offsets_wanted, call_for)


def elect_leaders(
    sender: AdminSender,
    kind: partitions.ElectionType = partitions.ElectionType.PREFERRED,
    wanted: Sequence[tuple[str, int]] | None = None,
) -> Plan[dict[TopicPartition, BrokerError | None]]:
    """Have leaders elected, of all partitions that need it if none are named."""
    chosen = None if wanted is None else as_partitions(wanted)
    return sender.send(CONTROLLER, partitions.elect_leaders(kind, chosen, sender.timeout_ms))


def describe_producers(
    sender: AdminSender, wanted: Iterable[tuple[str, int]], *, once: bool = False
) -> Plan[dict[TopicPartition, list[partitions.ActiveProducer] | ClientError]]:
    """The producers that the partitions' leaders remember; `once` makes one attempt."""
    return sender.send_to_leaders(as_partitions(wanted), partitions.describe_producers, once=once)


def list_offsets(
    sender: AdminSender, specs: Mapping[K, str | int], *, read_committed: bool = False
) -> Plan[dict[TopicPartition, ListedOffset | ClientError]]:
    """Offsets that the leaders tell, in one attempt; a result or error for each.

    See `Client.list_offsets` for `specs`; that one tries until all are known.
    """
    times = {tp: offset_spec(spec) for tp, spec in by_partition(specs).items()}

    def call_for(
        part: list[TopicPartition],
    ) -> AdminCall[dict[TopicPartition, ListedOffset | ClientError]]:
        wanted = {tp: times[tp] for tp in part}
        return offsets.list_offsets(wanted, sender.timeout_ms, read_committed=read_committed)

    return sender.send_to_leaders(times, call_for, once=True)


def list_replica_offsets(
    sender: AdminSender, specs: Mapping[int, Mapping[K, str | int]]
) -> Plan[dict[int, dict[TopicPartition, ListedOffset | ClientError] | ClientError]]:
    """Offsets that replicas tell of their own logs, by node, in one attempt.

    "latest" is the log end offset, "earliest" the log start offset, of leaders and followers.
    """
    yield from sender.refresh()
    calls = {
        node: offsets.list_offsets(
            {tp: offset_spec(spec) for tp, spec in by_partition(wanted).items()},
            sender.timeout_ms,
            replica_id=offsets.DEBUGGING_CONSUMER,
        )
        for node, wanted in specs.items()
    }
    return (yield from sender.send_each(calls, once=True))


def alter_reassignments(
    sender: AdminSender, targets: Mapping[K, Sequence[int] | None]
) -> Plan[dict[TopicPartition, BrokerError | None]]:
    """Begin reassignments to the given replicas, cancel those for None."""
    call = reassignments.alter_reassignments(by_partition(targets), sender.timeout_ms)
    return sender.send(CONTROLLER, call)


def list_reassignments(
    sender: AdminSender, wanted: Iterable[tuple[str, int]] | None = None, *, once: bool = False
) -> Plan[dict[TopicPartition, reassignments.Reassignment]]:
    """The reassignments under way; `once` makes one attempt."""
    chosen = None if wanted is None else as_partitions(wanted)
    call = reassignments.list_reassignments(chosen, sender.timeout_ms)
    return sender.send(CONTROLLER, call, once=once)
