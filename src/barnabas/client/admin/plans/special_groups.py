"""Plans for share groups and streams groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.admin.groups import share_groups, share_states, streams_groups
from barnabas.client.admin.plan import names_of
from barnabas.client.admin.plans.topics import describe_topic_partitions
from barnabas.client.admin.results import checked
from barnabas.client.admin.sender import CoordinatorOf
from barnabas.client.connections.coordinators import SHARE
from barnabas.client.errors import BrokerError, ClientError, UnknownTopicError
from barnabas.client.topic_partition import K, as_partitions, by_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.admin.groups.groups import GroupDescription
    from barnabas.client.admin.plan import Plan
    from barnabas.client.admin.sender import AdminSender
    from barnabas.client.topic_partition import TopicPartition


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
) -> Plan[dict[TopicPartition, share_states.ShareState | ClientError]]:
    """Describe what share coordinators store about the records of a share group.

    This needs the right CLUSTER_ACTION on the cluster, and changes nothing.
    """
    wanted = as_partitions(partitions)
    keys, found = yield from _share_keys(sender, group, wanted)
    send = sender.send_to_coordinators
    summaries = yield from send(
        keys,
        lambda part: share_states.read_summaries([keys[each] for each in part]),
        key_type=SHARE,
    )
    offsets = {
        key: each for key, each in summaries.items() if isinstance(each, share_states.ShareSummary)
    }
    # A share partition whose start offset is unknown has no records, and perhaps no state.
    started = [key for key, each in offsets.items() if each.start_offset >= 0]
    states = yield from send(
        started,
        lambda part: share_states.read_states([(keys[each], offsets[each]) for each in part]),
        key_type=SHARE,
    )
    for name, key in keys.items():
        first = summaries[name]
        if isinstance(first, ClientError):
            found[key.partition] = first
        else:
            nothing = share_states.ShareState(first.start_offset, -1, ())
            found[key.partition] = states.get(name, nothing)
    return found


def _share_keys(
    sender: AdminSender, group: str, partitions: Sequence[TopicPartition]
) -> Plan[
    tuple[
        dict[str, share_states.ShareKey],
        dict[TopicPartition, share_states.ShareState | ClientError],
    ]
]:
    """Return the share partitions by coordinator key, and errors of topics that do not exist."""
    topics = {}
    if partitions:
        topics = yield from describe_topic_partitions(sender, {tp.topic for tp in partitions})
    keys = {}
    errors: dict[TopicPartition, share_states.ShareState | ClientError] = {}
    for tp in partitions:
        topic = topics.get(tp.topic) or UnknownTopicError(tp.topic)
        if isinstance(topic, ClientError):
            errors[tp] = topic
            continue
        key = share_states.ShareKey(group, tp, topic.topic_id)
        keys[key.coordinator_key] = key
    return keys, errors


def describe_streams_groups(
    sender: AdminSender, names: Iterable[str]
) -> Plan[dict[str, streams_groups.StreamsGroupDescription | ClientError]]:
    """Describe streams groups with their tasks; other groups get GROUP_ID_NOT_FOUND."""
    return sender.send_to_coordinators(names_of(names), streams_groups.describe_streams_groups)
