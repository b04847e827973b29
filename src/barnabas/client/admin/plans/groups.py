"""Plans for groups: list, describe and delete them; their members and offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.admin.groups import group_members, groups, share_groups, streams_groups
from barnabas.client.admin.plan import names_of
from barnabas.client.admin.plans.cluster import broker_ids
from barnabas.client.admin.results import checked
from barnabas.client.admin.sender import CoordinatorOf
from barnabas.client.errors import BrokerError, ClientError, UnsupportedVersionError
from barnabas.client.group.group_offsets import CommittedOffset, offsets_of
from barnabas.client.topic_partition import K, as_partitions
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from barnabas.client.admin.plan import Plan
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
    members: Sequence[group_members.MemberToRemove] | None = None,
    *,
    reason: str = "removed by an administrator",
    raise_errors: bool = True,
) -> Plan[dict[group_members.MemberToRemove, BrokerError | None]]:
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
            group_members.MemberToRemove(each.member_id, each.instance_id)
            for each in described.members
        ]
    if not wanted:
        return {}
    call = group_members.remove_members(group, wanted, reason)
    return (yield from checked(sender.send(CoordinatorOf(group), call), raise_errors=raise_errors))
