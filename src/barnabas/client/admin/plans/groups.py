"""Plans for groups of all types: list, describe and delete them; their members and offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.admin import groups, share_groups, streams_groups
from barnabas.client.admin.call import checked, names_of
from barnabas.client.admin.plans.cluster import broker_ids
from barnabas.client.admin.plans.topics import describe_topic_partitions
from barnabas.client.admin.sender import CoordinatorOf
from barnabas.client.connections.coordinators import SHARE
from barnabas.client.errors import (
    BrokerError,
    ClientError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from barnabas.client.group.group_offsets import CommittedOffset, offsets_of
from barnabas.client.topic_partition import K, as_partitions, by_partition
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from barnabas.client.admin.call import Plan
    from barnabas.client.admin.groups import GroupDescription
    from barnabas.client.admin.sender import AdminSender
    from barnabas.client.retries import OnDone
    from barnabas.client.topic_partition import TopicPartition

# Errors of a request for a type that the group does not have, or the cluster does not support.
_NO_SUCH_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


def list_groups(
    sender: AdminSender, states: Sequence[str] = (), types: Sequence[str] = ()
) -> Plan[list[groups.GroupListing]]:
    """List all groups of the cluster, ordered by name.

    A group must be in one of `states` and have one of `types`; an empty filter accepts all.
    """
    call = groups.list_groups(states, types)
    found: dict[str, groups.GroupListing] = {}
    results = yield from sender.send_to_brokers(lambda: broker_ids(sender), call)
    for result in results.values():
        found.update((group.group_id, group) for group in result)
    return [found[name] for name in sorted(found)]


def describe_groups(
    sender: AdminSender, names: Iterable[str], *, once: bool = False
) -> Plan[dict[str, groups.GroupDescription | ClientError]]:
    """Describe groups of all types with their members; the state of a missing group is "Dead".

    The members of streams groups have the partitions of their active tasks.
    With `once` the plan makes one attempt, and retriable errors are results.
    """
    wanted = names_of(names)
    send = sender.send_to_coordinators
    found = yield from send(wanted, groups.describe_consumer_groups, once=once)
    classic = [name for name in wanted if _is_of_other_type(found[name])]
    found.update((yield from send(classic, groups.describe_classic_groups, once=once)))
    missing = [name for name in classic if _is_missing(found[name])]
    streams = yield from send(missing, streams_groups.describe_streams_groups, once=once)
    for name, each in streams.items():
        if isinstance(each, streams_groups.StreamsGroupDescription):
            found[name] = streams_groups.as_group(each)
        elif not _is_of_other_type(each):
            found[name] = each
    missing = [name for name in missing if _is_missing(found[name])]
    shares = yield from send(missing, share_groups.describe_share_groups, once=once)
    for name, described in shares.items():
        if not _is_of_other_type(described):
            found[name] = described
    return found


def _is_missing(found: groups.GroupDescription | ClientError) -> bool:
    """Whether there is no such classic group. Another kind of group may have the name."""
    return isinstance(found, groups.GroupDescription) and found.state == "Dead"


def _is_of_other_type(found: object) -> bool:
    """Whether the result says that there is no group of this type.

    Other errors, such as those of rights, are results: the group may exist.
    """
    if isinstance(found, UnsupportedVersionError):
        return True
    return isinstance(found, BrokerError) and found.error_code in _NO_SUCH_GROUP


def coordinators(sender: AdminSender, names: Iterable[str]) -> Plan[dict[str, int | ClientError]]:
    """Return the node id of the coordinator, or an error, for each group."""
    return sender.coordinators(names_of(names))


def delete_groups(
    sender: AdminSender, names: Iterable[str], *, raise_errors: bool = True
) -> Plan[dict[str, bool | ClientError]]:
    """Delete groups without members.

    Returns:
        True or an error for each group.

    Raises:
        AdminResultsError: a group was not deleted; not raised with `raise_errors=False`.
    """
    return checked(
        sender.send_to_coordinators(names_of(names), groups.delete_groups),
        raise_errors=raise_errors,
    )


def list_group_offsets(
    sender: AdminSender, names: Iterable[str]
) -> Plan[dict[str, dict[TopicPartition, CommittedOffset] | ClientError]]:
    """List the committed offsets of groups; partitions without one are omitted.

    With `isolation.level=read_committed` the call waits for open transactions that commit offsets.

    Returns:
        The offsets by partition, or an error, for each group.
    """

    def reading(group: str) -> Callable[[OnDone[dict[TopicPartition, CommittedOffset]]], None]:
        timeout_ms = sender.cluster.config.default_api_timeout_ms
        return lambda done: sender.group_offsets.committed(group, None, timeout_ms, done)

    found: dict[str, dict[TopicPartition, CommittedOffset] | ClientError]
    found = yield {name: reading(name) for name in names_of(names)}
    return found


def alter_group_offsets(
    sender: AdminSender,
    group: str,
    offsets: Mapping[K, int | CommittedOffset],
    *,
    raise_errors: bool = True,
) -> Plan[dict[TopicPartition, BrokerError | None]]:
    """Set the committed offsets of a group without members.

    A group with members refuses the change: each partition gets UNKNOWN_MEMBER_ID.

    Returns:
        An error or None for each partition.

    Raises:
        AdminResultsError: a partition failed; not raised with `raise_errors=False`.
    """
    return checked(
        sender.send(CoordinatorOf(group), groups.alter_offsets(group, offsets_of(offsets))),
        raise_errors=raise_errors,
    )


def delete_offsets(
    sender: AdminSender, group: str, wanted: Sequence[tuple[str, int]], *, raise_errors: bool = True
) -> Plan[dict[TopicPartition, BrokerError | None]]:
    """Delete committed offsets of a group; its members must not be subscribed to the topics.

    Returns:
        An error or None for each partition.

    Raises:
        AdminResultsError: a partition failed; not raised with `raise_errors=False`.
    """
    return checked(
        sender.send(CoordinatorOf(group), groups.delete_offsets(group, as_partitions(wanted))),
        raise_errors=raise_errors,
    )


def remove_members(
    sender: AdminSender,
    group: str,
    members: Sequence[groups.MemberToRemove] | None = None,
    *,
    reason: str = "removed by an administrator",
    raise_errors: bool = True,
) -> Plan[dict[groups.MemberToRemove, BrokerError | None]]:
    """Remove members from a classic group; None means all members (KIP-345, KIP-571).

    Returns:
        An error or None for each member.

    Raises:
        AdminResultsError: a member was not removed; not raised with `raise_errors=False`.
    """
    wanted = members
    if wanted is None:
        described = (yield from describe_groups(sender, [group]))[group]
        if isinstance(described, ClientError):
            raise described
        wanted = [
            groups.MemberToRemove(each.member_id, each.instance_id) for each in described.members
        ]
    if not wanted:
        return {}
    call = groups.remove_members(group, wanted, reason)
    return (yield from checked(sender.send(CoordinatorOf(group), call), raise_errors=raise_errors))


def describe_share_groups(
    sender: AdminSender, names: Iterable[str]
) -> Plan[dict[str, GroupDescription | ClientError]]:
    """Describe share groups with their members; other groups get GROUP_ID_NOT_FOUND."""
    return sender.send_to_coordinators(names_of(names), share_groups.describe_share_groups)


def describe_share_group_offsets(
    sender: AdminSender, names: Iterable[str]
) -> Plan[dict[str, share_groups.Offsets | ClientError]]:
    """Describe the offsets of share groups, by group and partition."""
    return sender.send_to_coordinators(names_of(names), share_groups.describe_share_offsets)


def alter_share_group_offsets(
    sender: AdminSender, group: str, offsets: Mapping[K, int], *, raise_errors: bool = True
) -> Plan[dict[TopicPartition, BrokerError | None]]:
    """Set the start offsets of a share group without members.

    Returns:
        An error or None for each partition.

    Raises:
        AdminResultsError: a partition failed; not raised with `raise_errors=False`.
    """
    call = share_groups.alter_share_offsets(group, by_partition(offsets))
    return checked(sender.send(CoordinatorOf(group), call), raise_errors=raise_errors)


def delete_share_group_offsets(
    sender: AdminSender, group: str, topics: Sequence[str], *, raise_errors: bool = True
) -> Plan[dict[str, BrokerError | None]]:
    """Delete the offsets of topics in a share group without members.

    Returns:
        An error or None for each topic.

    Raises:
        AdminResultsError: a topic failed; not raised with `raise_errors=False`.
    """
    return checked(
        sender.send(
            CoordinatorOf(group), share_groups.delete_share_offsets(group, names_of(topics))
        ),
        raise_errors=raise_errors,
    )


def describe_share_group_states(
    sender: AdminSender, group: str, partitions: Iterable[tuple[str, int]]
) -> Plan[dict[TopicPartition, share_groups.ShareState | ClientError]]:
    """Describe what share coordinators store about the records of a share group.

    This needs the right CLUSTER_ACTION on the cluster, and changes nothing.
    """
    wanted = as_partitions(partitions)
    keys, found = yield from _share_keys(sender, group, wanted)
    send = sender.send_to_coordinators
    summaries = yield from send(
        keys,
        lambda part: share_groups.read_summaries([keys[each] for each in part]),
        key_type=SHARE,
    )
    offsets = {
        key: each for key, each in summaries.items() if isinstance(each, share_groups.ShareSummary)
    }
    # A share partition whose start offset is unknown has no records, and perhaps no state.
    started = [key for key, each in offsets.items() if each.start_offset >= 0]
    states = yield from send(
        started,
        lambda part: share_groups.read_states([(keys[each], offsets[each]) for each in part]),
        key_type=SHARE,
    )
    for name, key in keys.items():
        first = summaries[name]
        if isinstance(first, ClientError):
            found[key.partition] = first
        else:
            nothing = share_groups.ShareState(first.start_offset, -1, ())
            found[key.partition] = states.get(name, nothing)
    return found


def _share_keys(
    sender: AdminSender, group: str, partitions: Sequence[TopicPartition]
) -> Plan[
    tuple[
        dict[str, share_groups.ShareKey],
        dict[TopicPartition, share_groups.ShareState | ClientError],
    ]
]:
    """Return the share partitions by coordinator key, and errors of topics that do not exist."""
    topics = {}
    if partitions:
        topics = yield from describe_topic_partitions(sender, {tp.topic for tp in partitions})
    keys = {}
    errors: dict[TopicPartition, share_groups.ShareState | ClientError] = {}
    for tp in partitions:
        topic = topics.get(tp.topic) or UnknownTopicError(tp.topic)
        if isinstance(topic, ClientError):
            errors[tp] = topic
            continue
        key = share_groups.ShareKey(group, tp, topic.topic_id)
        keys[key.coordinator_key] = key
    return keys, errors


def describe_streams_groups(
    sender: AdminSender, names: Iterable[str]
) -> Plan[dict[str, streams_groups.StreamsGroupDescription | ClientError]]:
    """Describe streams groups with their tasks; other groups get GROUP_ID_NOT_FOUND."""
    return sender.send_to_coordinators(names_of(names), streams_groups.describe_streams_groups)
