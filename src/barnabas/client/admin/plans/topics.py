"""Plans for topics and partitions: create, delete, describe, reassign; records and offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.admin import partitions, topics
from barnabas.client.admin.call import checked, errors_of, names_of, raise_failed
from barnabas.client.connections.cluster import ANY_NODE, CONTROLLER
from barnabas.client.errors import BrokerError, ClientError, UnsupportedVersionError
from barnabas.client.fetch.offset_lookups import offset_spec
from barnabas.client.topic_partition import K, as_partitions, by_partition
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.admin.call import AdminCall, Plan
    from barnabas.client.admin.sender import AdminSender
    from barnabas.client.fetch.offset_lookups import ListedOffset
    from barnabas.client.topic_partition import TopicPartition


def create_topics(
    sender: AdminSender,
    new: Sequence[topics.NewTopic],
    *,
    validate_only: bool = False,
    raise_errors: bool = True,
) -> Plan[dict[str, BrokerError | None]]:
    """Create topics; the new partitions may not have leaders yet when this returns.

    Returns:
        An error or None for each topic name.

    Raises:
        AdminResultsError: a topic was not created; not raised with `raise_errors=False`.
    """

    def create() -> Plan[dict[str, BrokerError | None]]:
        return errors_of((yield from create_topic_ids(sender, new, validate_only=validate_only)))

    return checked(create(), raise_errors=raise_errors)


def create_topic_ids(
    sender: AdminSender, new: Sequence[topics.NewTopic], *, validate_only: bool = False
) -> Plan[dict[str, bytes | BrokerError]]:
    """Create topics; return the id or the error for each. Old brokers return ids of zeros."""
    metadata = sender.cluster.metadata
    # Topics that were deleted before, if these can be created. Encoding reports a wrong type.
    known = {
        each.name: metadata.topic_id(each.name) for each in new if isinstance(each, topics.NewTopic)
    }
    call = topics.create_topics(new, sender.timeout_ms, validate_only=validate_only)
    ids = yield from sender.send(CONTROLLER, call)
    if not validate_only:
        metadata.note_deleted(
            each for name, each in known.items() if isinstance(ids.get(name), bytes)
        )
    return ids


def delete_topics(
    sender: AdminSender, names: Iterable[str], *, raise_errors: bool = True
) -> Plan[dict[str, BrokerError | None]]:
    """Delete topics by name.

    Returns:
        An error or None for each topic name.

    Raises:
        AdminResultsError: a topic was not deleted; not raised with `raise_errors=False`.
    """

    def delete() -> Plan[dict[str, BrokerError | None]]:
        call = topics.delete_topics(names_of(names), sender.timeout_ms)
        ids = yield from sender.send(CONTROLLER, call)
        sender.cluster.metadata.note_deleted(i for i in ids.values() if isinstance(i, bytes))
        return errors_of(ids)

    return checked(delete(), raise_errors=raise_errors)


def delete_topics_by_id(
    sender: AdminSender, ids: Sequence[bytes], *, raise_errors: bool = True
) -> Plan[dict[bytes, BrokerError | None]]:
    """Delete topics by id (KIP-516), which never deletes a new topic of the same name.

    The ids are `bytes` of length 16.

    Returns:
        An error or None for each id.

    Raises:
        AdminResultsError: a topic was not deleted; not raised with `raise_errors=False`.
    """

    def delete() -> Plan[dict[bytes, BrokerError | None]]:
        result = yield from sender.send(
            CONTROLLER, topics.delete_topics_by_id(ids, sender.timeout_ms)
        )
        sender.cluster.metadata.note_deleted(i for i, error in result.items() if error is None)
        return result

    return checked(delete(), raise_errors=raise_errors)


def create_partitions(
    sender: AdminSender,
    counts: Mapping[str, int | topics.NewPartitions],
    *,
    validate_only: bool = False,
    raise_errors: bool = True,
) -> Plan[dict[str, BrokerError | None]]:
    """Increase the number of partitions of topics.

    `counts` has the new total for each topic name, or `NewPartitions` with assignments.

    Returns:
        An error or None for each topic name.

    Raises:
        AdminResultsError: a topic was not changed; not raised with `raise_errors=False`.
    """
    call = topics.create_partitions(counts, sender.timeout_ms, validate_only=validate_only)
    return checked(sender.send(CONTROLLER, call), raise_errors=raise_errors)


def describe_topic_partitions(
    sender: AdminSender, names: Iterable[str] = ()
) -> Plan[dict[str, topics.TopicState | ClientError]]:
    """Describe topics with their partitions; no names means all topics.

    Returns:
        The topic's state, or an error, for each name.

    Raises:
        ClientError: the call as a whole failed.
    """
    names = names_of(names)
    found: dict[str, topics.TopicState | ClientError] = {}
    cursor: topics.Cursor | None = None
    clock = sender.cluster.runtime.clock
    deadline_ms = clock.monotonic_ms() + sender.cluster.config.default_api_timeout_ms
    while True:
        call = topics.describe_topic_partitions(names, cursor)
        try:
            page = yield from sender.send(ANY_NODE, call)
        except UnsupportedVersionError:
            call = topics.describe_topics_by_metadata(names)
            return (yield from sender.send(ANY_NODE, call)).topics
        for name, topic in page.topics.items():
            known = found.get(name)
            if known is None or isinstance(known, ClientError) or isinstance(topic, ClientError):
                found[name] = topic
            else:
                # The topic continues from the previous page.
                known.partitions.update(topic.partitions)
        if page.next_cursor is None:
            return found
        if page.next_cursor == cursor or clock.monotonic_ms() >= deadline_ms:
            # Bounds the number of pages: a faulty broker could send pages forever.
            raise BrokerError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "describe topics",
                "the broker returns pages without end",
            )
        cursor = page.next_cursor


def list_topics(
    sender: AdminSender, *, internal: bool = False
) -> Plan[dict[str, topics.TopicListing]]:
    """List the topics that the user may see, by name; `internal` includes internal topics."""
    found = yield from sender.send(ANY_NODE, topics.list_topics())
    return {name: found[name] for name in sorted(found) if internal or not found[name].is_internal}


def describe_topics(
    sender: AdminSender, names: Iterable[str] | None = None
) -> Plan[dict[str, topics.TopicState]]:
    """Describe topics with their partitions, leaders and replicas; None means all topics.

    `describe_topic_partitions` returns an error for a missing topic instead of raising it.

    Raises:
        AdminResultsError: a topic does not exist; the error's `results` has the other topics.
    """
    wanted = None if names is None else names_of(names)
    if wanted == []:
        return {}
    found = yield from describe_topic_partitions(sender, wanted or ())
    for name in wanted or ():
        if name not in found:
            found[name] = BrokerError(
                ErrorCode.UNKNOWN_SERVER_ERROR, name, "missing in the response"
            )
    raise_failed(found)
    return {name: state for name, state in found.items() if isinstance(state, topics.TopicState)}


def delete_records(
    sender: AdminSender, before: Mapping[K, int], *, raise_errors: bool = True
) -> Plan[dict[TopicPartition, int | ClientError]]:
    """Delete the records before an offset; an offset of -1 deletes all records.

    Returns:
        The new log start offset, or an error, for each partition.

    Raises:
        AdminResultsError: a partition failed; not raised with `raise_errors=False`.
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
    """Elect leaders; None means all partitions that need an election.

    Returns:
        An error or None for each partition; a named partition that needs no election gets
        ELECTION_NOT_NEEDED.

    Raises:
        AdminResultsError: an election failed; not raised with `raise_errors=False` or for
            ELECTION_NOT_NEEDED.
    """
    chosen = None if wanted is None else as_partitions(wanted)
    return checked(
        sender.send(CONTROLLER, partitions.elect_leaders(kind, chosen, sender.timeout_ms)),
        raise_errors=raise_errors,
    )


def describe_producers(
    sender: AdminSender, wanted: Iterable[tuple[str, int]], *, once: bool = False
) -> Plan[dict[TopicPartition, list[partitions.ActiveProducer] | ClientError]]:
    """Describe the active producers of partitions; `once` makes one attempt only.

    Returns:
        The producers known to the partition's leader, or an error, for each partition.
    """
    return sender.send_to_leaders(as_partitions(wanted), partitions.describe_producers, once=once)


def list_offsets(
    sender: AdminSender, specs: Mapping[K, str | int], *, read_committed: bool = False
) -> Plan[dict[TopicPartition, ListedOffset | ClientError]]:
    """List offsets of partitions from their leaders, in one attempt.

    See `Client.list_offsets` for `specs`; that method retries until all offsets are known.

    Returns:
        The offset, or an error, for each partition.
    """
    times = {tp: offset_spec(spec) for tp, spec in by_partition(specs).items()}

    def call_for(
        part: list[TopicPartition],
    ) -> AdminCall[dict[TopicPartition, ListedOffset | ClientError]]:
        wanted = {tp: times[tp] for tp in part}
        return partitions.list_offsets(wanted, sender.timeout_ms, read_committed=read_committed)

    return sender.send_to_leaders(times, call_for, once=True)


def list_replica_offsets(
    sender: AdminSender, specs: Mapping[int, Mapping[K, str | int]]
) -> Plan[dict[int, dict[TopicPartition, ListedOffset | ClientError] | ClientError]]:
    """List offsets from individual replicas, by node id, in one attempt.

    "latest" is the log end offset and "earliest" the log start offset of the replica, on leaders
    and on followers.

    Returns:
        For each node an error, or the offset or error for each partition.
    """
    yield from sender.refresh()
    calls = {
        node: partitions.list_offsets(
            {tp: offset_spec(spec) for tp, spec in by_partition(wanted).items()},
            sender.timeout_ms,
            replica_id=partitions.DEBUGGING_CONSUMER,
        )
        for node, wanted in specs.items()
    }
    return (yield from sender.send_each(calls, once=True))


def alter_reassignments(
    sender: AdminSender, targets: Mapping[K, Sequence[int] | None], *, raise_errors: bool = True
) -> Plan[dict[TopicPartition, BrokerError | None]]:
    """Start reassignments to the given replicas (broker ids); None cancels a reassignment.

    Returns:
        An error or None for each partition. A started reassignment continues in the cluster.

    Raises:
        AdminResultsError: a partition failed; not raised with `raise_errors=False`.
    """
    call = partitions.alter_reassignments(by_partition(targets), sender.timeout_ms)
    return checked(sender.send(CONTROLLER, call), raise_errors=raise_errors)


def list_reassignments(
    sender: AdminSender, wanted: Iterable[tuple[str, int]] | None = None, *, once: bool = False
) -> Plan[dict[TopicPartition, partitions.Reassignment]]:
    """List active reassignments; None means all partitions. `once` makes one attempt only."""
    chosen = None if wanted is None else as_partitions(wanted)
    call = partitions.list_reassignments(chosen, sender.timeout_ms)
    return sender.send(CONTROLLER, call, once=once)
