"""Topics and their partitions: created, deleted, described, moved; their records and offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.admin import offsets, partitions, reassignments, topic_partitions, topics
from barnabas.client.admin.plan import names_of
from barnabas.client.admin.results import checked, raise_failed
from barnabas.client.cluster import ANY_NODE, CONTROLLER
from barnabas.client.errors import BrokerError, ClientError, UnsupportedVersionError
from barnabas.client.list_offsets import offset_spec
from barnabas.client.topic_partition import K, as_partitions, by_partition
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.admin.call import AdminCall
    from barnabas.client.admin.plan import Plan
    from barnabas.client.admin.sender import AdminSender
    from barnabas.client.list_offsets import ListedOffset
    from barnabas.client.topic_partition import TopicPartition


def create_topics(
    sender: AdminSender,
    new: Sequence[topics.NewTopic],
    *,
    validate_only: bool = False,
    raise_errors: bool = True,
) -> Plan[dict[str, BrokerError | None]]:
    """Create topics; an error or None for each. They may not have leaders yet."""
    call = topics.create_topics(new, sender.timeout_ms, validate_only=validate_only)
    return checked(sender.send(CONTROLLER, call), raise_errors=raise_errors)


def delete_topics(
    sender: AdminSender, names: Iterable[str], *, raise_errors: bool = True
) -> Plan[dict[str, BrokerError | None]]:
    """Delete topics; an error or None for each."""
    return checked(
        sender.send(CONTROLLER, topics.delete_topics(names_of(names), sender.timeout_ms)),
        raise_errors=raise_errors,
    )


def delete_topics_by_id(
    sender: AdminSender, ids: Sequence[bytes], *, raise_errors: bool = True
) -> Plan[dict[bytes, BrokerError | None]]:
    """Delete topics by their ids of 16 bytes (KIP-516): not another of the same name."""
    return checked(
        sender.send(CONTROLLER, topics.delete_topics_by_id(ids, sender.timeout_ms)),
        raise_errors=raise_errors,
    )


def create_partitions(
    sender: AdminSender,
    counts: Mapping[str, int | topics.NewPartitions],
    *,
    validate_only: bool = False,
    raise_errors: bool = True,
) -> Plan[dict[str, BrokerError | None]]:
    """Raise the number of partitions of topics to `counts`; an error or None for each."""
    call = topics.create_partitions(counts, sender.timeout_ms, validate_only=validate_only)
    return checked(sender.send(CONTROLLER, call), raise_errors=raise_errors)


def describe_topic_partitions(
    sender: AdminSender, names: Iterable[str] = ()
) -> Plan[dict[str, topic_partitions.TopicState | ClientError]]:
    """Topics with their partitions as the controller has them, all topics if none is named."""
    names = names_of(names)
    found: dict[str, topic_partitions.TopicState | ClientError] = {}
    cursor: topic_partitions.Cursor | None = None
    clock = sender.cluster.runtime.clock
    deadline_ms = clock.monotonic_ms() + sender.cluster.config.default_api_timeout_ms
    while True:
        call = topic_partitions.describe_topic_partitions(names, cursor)
        try:
            page = yield from sender.send(ANY_NODE, call)
        except UnsupportedVersionError:
            call = topic_partitions.describe_topics_by_metadata(names)
            return (yield from sender.send(ANY_NODE, call)).topics
        for name, topic in page.topics.items():
            known = found.get(name)
            if known is None or isinstance(known, ClientError) or isinstance(topic, ClientError):
                found[name] = topic
            else:
                # A topic that goes on from the page before.
                known.partitions.update(topic.partitions)
        if page.next_cursor is None:
            return found
        if page.next_cursor == cursor or clock.monotonic_ms() >= deadline_ms:
            # Else a broker decides for how long it is asked.
            raise BrokerError(
                ErrorCode.UNKNOWN_SERVER_ERROR, "describe topics", "the pages come to no end"
            )
        cursor = page.next_cursor


def list_topics(
    sender: AdminSender, *, internal: bool = False
) -> Plan[dict[str, topic_partitions.TopicListing]]:
    """All topics that this user may see, by name; with `internal` the cluster's own ones too."""
    found = yield from sender.send(ANY_NODE, topic_partitions.list_topics())
    return {name: found[name] for name in sorted(found) if internal or not found[name].is_internal}


def describe_topics(
    sender: AdminSender, names: Iterable[str] | None = None
) -> Plan[dict[str, topic_partitions.TopicState]]:
    """Topics with their partitions, leaders and replicas; all topics if none are named.

    See `describe_topic_partitions` for topics of which some may not exist.

    Raises:
        AdminResultsError: one of them does not exist; its `results` have the others.
    """
    wanted = None if names is None else names_of(names)
    if wanted == []:
        return {}
    found = yield from describe_topic_partitions(sender, wanted or ())
    for name in wanted or ():
        if name not in found:
            found[name] = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, name, "no answer")
    raise_failed(found)
    return {
        name: state
        for name, state in found.items()
        if isinstance(state, topic_partitions.TopicState)
    }


def delete_records(
    sender: AdminSender, before: Mapping[K, int], *, raise_errors: bool = True
) -> Plan[dict[TopicPartition, int | ClientError]]:
    """Delete the records before an offset, all for -1.

    Returns:
        The offset that each partition now starts at.
    """

    offsets_wanted = by_partition(before)

    def call_for(part: list[TopicPartition]) -> AdminCall[dict[TopicPartition, int | ClientError]]:
        return partitions.delete_records({tp: offsets_wanted[tp] for tp in part}, sender.timeout_ms)

    return checked(sender.send_to_leaders(offsets_wanted, call_for), raise_errors=raise_errors)


def elect_leaders(
    sender: AdminSender,
    kind: partitions.ElectionType = partitions.ElectionType.PREFERRED,
    wanted: Sequence[tuple[str, int]] | None = None,
    *,
    raise_errors: bool = True,
) -> Plan[dict[TopicPartition, BrokerError | None]]:
    """Have leaders elected, of all partitions that need it if none are named."""
    chosen = None if wanted is None else as_partitions(wanted)
    return checked(
        sender.send(CONTROLLER, partitions.elect_leaders(kind, chosen, sender.timeout_ms)),
        raise_errors=raise_errors,
    )


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
    sender: AdminSender, targets: Mapping[K, Sequence[int] | None], *, raise_errors: bool = True
) -> Plan[dict[TopicPartition, BrokerError | None]]:
    """Begin reassignments to the given replicas, cancel those for None."""
    call = reassignments.alter_reassignments(by_partition(targets), sender.timeout_ms)
    return checked(sender.send(CONTROLLER, call), raise_errors=raise_errors)


def list_reassignments(
    sender: AdminSender, wanted: Iterable[tuple[str, int]] | None = None, *, once: bool = False
) -> Plan[dict[TopicPartition, reassignments.Reassignment]]:
    """The reassignments under way; `once` makes one attempt."""
    chosen = None if wanted is None else as_partitions(wanted)
    call = reassignments.list_reassignments(chosen, sender.timeout_ms)
    return sender.send(CONTROLLER, call, once=once)
