"""The request of a ConsumerGroupHeartbeat, and the search for its member."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from barnabas.coordinator.group.consumer.consumer_group import ConsumerMember
from barnabas.coordinator.group.consumer.consumer_records import (
    current_record,
    member_record,
    member_tombstones,
    target_record,
)
from barnabas.coordinator.group.group_base import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    check_instance,
    fenced_epoch,
    unknown_member,
    unreleased_instance,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.coordinator.group.classic.classic_membership import ClientIdentity
    from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.protocol.messages.groups import ConsumerGroupHeartbeatRequest


class ConsumerHeartbeat(msgspec.Struct):
    """One request, its client, and the records that it causes.

    A JoinGroup of a member of a consumer group is handled like a heartbeat with the same fields.
    """

    request: ConsumerGroupHeartbeatRequest
    client: ClientIdentity
    # Whether the client may describe a topic. Other topics do not match its regular expression.
    # None for JoinGroup, which does not look for topics.
    is_allowed: Callable[[str], bool] | None
    records: list[CoordinatorRecord] = msgspec.field(default_factory=list)

    def reported(self) -> Mapping[bytes, set[int]] | None:
        """Return the partitions that the client owns, or None if the request has none."""
        if self.request.topic_partitions is None:
            return None
        found: dict[bytes, set[int]] = {}
        for each in self.request.topic_partitions:
            if each.partitions:
                found.setdefault(each.topic_id, set()).update(each.partitions)
        return found

    def is_full(self) -> bool:
        """Whether the request has all fields: after joining and after errors."""
        request = self.request
        has_subscription = (
            request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        )
        return (
            request.rebalance_timeout_ms != -1
            and has_subscription
            and request.topic_partitions is not None
        )

    def updated(self, member: ConsumerMember) -> ConsumerMember:
        """Return the member with the fields that the request has."""
        request, client = self.request, self.client
        changes: dict[str, object] = {}
        if client.client_id != member.client_id or client.host != member.client_host:
            changes = {"client_id": client.client_id, "client_host": client.host}
        if member.classic is not None:
            # JoinGroup sets it again.
            changes["classic"] = None
        if request.instance_id is not None:
            changes["instance_id"] = request.instance_id
        if request.rack_id is not None:
            changes["rack_id"] = request.rack_id
        if request.rebalance_timeout_ms != -1:
            changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
        if request.server_assignor is not None:
            changes["server_assignor"] = request.server_assignor
        if request.subscribed_topic_names is not None:
            changes["subscribed_topic_names"] = frozenset(request.subscribed_topic_names)
        if request.subscribed_topic_regex is not None:
            changes["subscribed_topic_regex"] = request.subscribed_topic_regex
        return msgspec.structs.replace(member, **changes) if changes else member


def find_dynamic(
    group: ConsumerGroup, heartbeat: ConsumerHeartbeat, member_id: str
) -> ConsumerMember:
    """Return the known or new member of a request without instance id. Raises RefusalError."""
    epoch = heartbeat.request.member_epoch
    member = group.members.get(member_id)
    if member is None:
        if epoch != JOIN_EPOCH:
            raise unknown_member(group, member_id)
        member = ConsumerMember(member_id)
    _check_epoch(member, heartbeat)
    return member


def find_static(
    group: ConsumerGroup, heartbeat: ConsumerHeartbeat, member_id: str
) -> ConsumerMember:
    """Return the known or new member of a request with an instance id. Raises RefusalError.

    A joining member replaces the member that has left for a while with epoch -2, or that uses the
    classic protocol.
    """
    request = heartbeat.request
    instance_id = request.instance_id or ""
    known = group.static_member(instance_id)
    if request.member_epoch != JOIN_EPOCH:
        owner = check_instance(known, member_id, instance_id)
        _check_epoch(owner, heartbeat)
        return owner
    if known is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    if known.member_epoch != STATIC_LEAVE_EPOCH and not known.uses_classic_protocol:
        raise unreleased_instance(known, member_id)
    return replace_static(group, heartbeat, known, member_id)


def replace_static(
    group: ConsumerGroup, heartbeat: ConsumerHeartbeat, known: ConsumerMember, member_id: str
) -> ConsumerMember:
    """Return a static member with a new member id, and append the records of the replacement."""
    member = replace(known, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    target = group.targets.get(known.member_id, {})
    heartbeat.records += [
        *member_tombstones(group.group_id, known.member_id),
        member_record(group.group_id, member),
        target_record(group.group_id, member_id, target),
        current_record(group.group_id, member),
    ]
    return member


def find_leaving(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    """Return the member that a LeaveGroup request names. Raises RefusalError."""
    if instance_id is None:
        return find_member(group, member_id)
    known = group.static_member(instance_id)
    # Administrators name no member id.
    return check_instance(
        known, member_id or ("" if known is None else known.member_id), instance_id
    )


def find_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None = None
) -> ConsumerMember:
    """Return a member of the group. Raises RefusalError."""
    if instance_id is not None:
        return check_instance(group.static_member(instance_id), member_id, instance_id)
    member = group.members.get(member_id)
    if member is None:
        raise unknown_member(group, member_id)
    return member


def _check_epoch(member: ConsumerMember, heartbeat: ConsumerHeartbeat) -> None:
    """Fence a member whose epoch is not the current one.

    The previous epoch is accepted if the client owns nothing but assigned partitions: it has missed
    the last response.
    """
    received = heartbeat.request.member_epoch
    if received == JOIN_EPOCH or received == member.member_epoch:
        return
    if (
        received > member.member_epoch
        or received != member.previous_member_epoch
        or not _owns_only_assigned(member, heartbeat.reported())
    ):
        raise fenced_epoch(member.member_id, received, member.member_epoch)


def _owns_only_assigned(member: ConsumerMember, reported: Mapping[bytes, set[int]] | None) -> bool:
    return reported is not None and all(
        indexes <= member.assigned.get(topic_id, {}).keys()
        for topic_id, indexes in reported.items()
    )
