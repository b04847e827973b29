"""One ConsumerGroupHeartbeat request in progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.coordinator.group.classic.joining import ClientIdentity
    from barnabas.coordinator.group.consumer.members.consumer_member import ConsumerMember
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


class Heartbeating(msgspec.Struct):
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

    def has_changes(self, member: ConsumerMember) -> bool:
        """Whether the request has fields of the member. They may be equal to the known ones."""
        request, client = self.request, self.client
        return (
            request.subscribed_topic_names is not None
            or request.rebalance_timeout_ms != -1
            or request.instance_id is not None
            or request.rack_id is not None
            or request.server_assignor is not None
            or request.subscribed_topic_regex is not None
            or member.classic is not None
            or client.client_id != member.client_id
            or client.host != member.client_host
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
