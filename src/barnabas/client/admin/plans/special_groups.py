"""Plans for share groups and streams groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.admin.groups import share_groups, streams_groups
from barnabas.client.admin.plan import names_of
from barnabas.client.admin.results import checked
from barnabas.client.admin.sender import CoordinatorOf
from barnabas.client.topic_partition import K, by_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.client.admin.groups.groups import GroupDescription
    from barnabas.client.admin.plan import Plan
    from barnabas.client.admin.sender import AdminSender
    from barnabas.client.errors import BrokerError, ClientError
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


def describe_streams_groups(
    sender: AdminSender, names: Iterable[str]
) -> Plan[dict[str, streams_groups.StreamsGroupDescription | ClientError]]:
    """Describe streams groups with their tasks; other groups get GROUP_ID_NOT_FOUND."""
    return sender.send_to_coordinators(names_of(names), streams_groups.describe_streams_groups)
