"""JoinGroup, SyncGroup and Heartbeat of members of consumer groups (KIP-848).

A consumer group has members of the classic protocol while its clients are changed one by one. The
broker assigns the partitions of all members. The generation of a member is its member epoch, and
each member is the only one that JoinGroup shows. Revoked partitions are confirmed by the owned
partitions of the next JoinGroup.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.coordinator.group.classic.classic_group import (
    CONSUMER_PROTOCOL_TYPE,
    NO_MEMBER_ID,
    failed_join,
    failed_sync,
)
from barnabas.coordinator.group.classic.classic_member import (
    decode_subscription,
    encode_assignment,
    read_version,
)
from barnabas.coordinator.group.consumer.consumer_group import (
    ClassicMetadata,
    ConsumerMember,
    MemberState,
)
from barnabas.coordinator.group.consumer.conversion import LeavingMembers, fits
from barnabas.coordinator.group.consumer.heartbeats import (
    ConsumerHeartbeat,
    find_member,
    replace_static,
)
from barnabas.coordinator.group.group_base import JOIN_EPOCH, RefusalError, check_instance
from barnabas.coordinator.group.group_config import MigrationPolicy
from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    SyncGroupResponse,
    TopicPartitionsRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.group.classic.classic_member import PendingResponse
    from barnabas.coordinator.group.classic.classic_membership import JoinRequest
    from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup
    from barnabas.coordinator.group.consumer.consumer_membership import ConsumerMembership
    from barnabas.coordinator.group.consumer.consumer_shard import ConsumerShard
    from barnabas.protocol.messages.groups import (
        HeartbeatRequest,
        JoinGroupResponse,
        SyncGroupRequest,
    )


_MEMBER_ID_REQUIRED_SINCE = 4


class ClassicMembers:
    """The requests of the classic protocol for the consumer groups of one shard."""

    __slots__ = ("_membership", "_policy", "_shard")

    def __init__(
        self, policy: MigrationPolicy, shard: ConsumerShard, membership: ConsumerMembership
    ) -> None:
        self._policy = policy
        self._shard = shard
        self._membership = membership

    # JoinGroup.

    def join(self, group: ConsumerGroup, joining: JoinRequest) -> CoordinatorResult[None]:
        """Add or update a member of a group with members.

        The response follows when the records are committed. It does not wait for other members.
        """
        try:
            return self._join(group, joining)
        except RefusalError as error:
            joining.refuse(NO_MEMBER_ID, error.error)
            return CoordinatorResult(None)

    def _join(self, group: ConsumerGroup, joining: JoinRequest) -> CoordinatorResult[None]:
        request = joining.request
        if self._policy is MigrationPolicy.DISABLED:
            raise RefusalError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The migration of groups is disabled."
            )
        member_id = request.member_id or self._shard.new_member_id()
        self._shard.check_size(group, member_id, request.group_instance_id)
        protocols = joining.protocols()
        if not group.supports_classic_protocols(request.protocol_type, protocols):
            raise RefusalError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"The protocols of {member_id} do not match."
            )
        is_dynamic = request.group_instance_id is None
        if is_dynamic and not request.member_id and joining.version >= _MEMBER_ID_REQUIRED_SINCE:
            # The group does not store the id, since every new id can join.
            joining.refuse(member_id, ErrorCode.MEMBER_ID_REQUIRED)
            return CoordinatorResult(None)
        classic = ClassicMetadata(request.session_timeout_ms, tuple(protocols.items()))
        if not fits(group.group_id, [(member_id, classic.subscription_bytes)]):
            # The error that follows if the log rejects a batch for its size.
            raise RefusalError(ErrorCode.UNKNOWN_SERVER_ERROR, "The subscriptions are too large.")
        heartbeat = self._heartbeating(joining, classic.protocols[0][1])
        member = self._find_or_create(group, heartbeat, member_id)
        updated = replace(heartbeat.updated(member), classic=classic)
        epoch, has_new_subscription = self._membership.update(group, heartbeat, (member, updated))
        departure = LeavingMembers(joining=updated, is_stale=group.assignment_epoch < epoch)
        if not is_dynamic and self._membership.downgrade.is_due(group, departure):
            return self._join_last(group, heartbeat, departure, has_new_subscription, joining)
        target_epoch, target = self._membership.update_target(
            group, heartbeat, epoch, (member, updated)
        )
        updated = self._membership.reconcile(
            group, heartbeat, updated, target_epoch, target, has_new_subscription
        )
        return CoordinatorResult(
            None, heartbeat.records, on_appended=self._on_joined(group.group_id, updated, joining)
        )

    def _join_last(
        self,
        group: ConsumerGroup,
        heartbeat: ConsumerHeartbeat,
        departure: LeavingMembers,
        has_new_subscription: bool,
        joining: JoinRequest,
    ) -> CoordinatorResult[None]:
        """Convert the group: the client replaces the last member of the consumer protocol."""
        updated = departure.joining
        assert updated is not None, f"group={group.group_id} has no joining member"
        if not departure.is_stale:
            target = group.target_of(updated.member_id, updated.instance_id)
            updated = self._membership.reconcile(
                group, heartbeat, updated, group.assignment_epoch, target, has_new_subscription
            )
        departure = LeavingMembers(joining=updated, is_stale=departure.is_stale)
        on_converted = self._membership.convert_to_classic(group, heartbeat.records, departure)

        def on_appended(error: ErrorCode) -> None:
            on_converted(error)
            if error is ErrorCode.NONE:
                joining.response.complete(_joined(updated))

        return CoordinatorResult(
            None, heartbeat.records, is_replayed=False, on_appended=on_appended
        )

    def _heartbeating(self, joining: JoinRequest, metadata: bytes) -> ConsumerHeartbeat:
        """Return the heartbeat with the fields of a JoinGroup. Raises RefusalError.

        Args:
            joining: the request.
            metadata: the subscription of the member's first protocol.
        """
        request, topics = joining.request, self._shard.topics
        try:
            subscription = decode_subscription(metadata)
        except ProtocolError as error:
            raise RefusalError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from None
        named = ((topics.topic_id(each.topic), each) for each in subscription.owned_partitions)
        fields = ConsumerGroupHeartbeatRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            member_epoch=JOIN_EPOCH,
            instance_id=request.group_instance_id,
            rack_id=subscription.rack_id or None,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            subscribed_topic_names=subscription.topics,
            subscribed_topic_regex="",
            topic_partitions=[
                TopicPartitionsRequest(topic_id=topic_id, partitions=each.partitions)
                for topic_id, each in named
                if topic_id is not None
            ],
        )
        return ConsumerHeartbeat(fields, joining.client, None)

    @staticmethod
    def _find_or_create(
        group: ConsumerGroup, heartbeat: ConsumerHeartbeat, member_id: str
    ) -> ConsumerMember:
        """Return the known or new member. Raises RefusalError."""
        request = heartbeat.request
        known = group.static_member(request.instance_id)
        if request.instance_id is None or (known is None and not request.member_id):
            return group.members.get(member_id) or ConsumerMember(member_id)
        if known is not None and not request.member_id:
            return replace_static(group, heartbeat, known, member_id)
        return check_instance(known, member_id, request.instance_id)

    def _on_joined(
        self, group_id: str, member: ConsumerMember, joining: JoinRequest
    ) -> Callable[[ErrorCode], None]:
        timers, request = self._membership.timers, joining.request

        def on_appended(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                return
            timers.end_join(group_id, member.member_id)
            timers.restart_session(group_id, member.member_id, request.session_timeout_ms)
            timers.start_sync(group_id, member.member_id, request.rebalance_timeout_ms)
            joining.response.complete(_joined(member))

        return on_appended

    # SyncGroup.

    def sync(
        self,
        group: ConsumerGroup,
        request: SyncGroupRequest,
        response: PendingResponse[SyncGroupResponse],
    ) -> CoordinatorResult[None]:
        """Respond with the partitions that the broker has assigned to the member."""
        try:
            member, metadata = self._find(group, request)
            assignment = self._check_sync(group, request, member, metadata)
        except RefusalError as error:
            response.complete(failed_sync(error.error))
            return CoordinatorResult(None)
        timers = self._membership.timers

        def on_appended(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                return
            timers.end_sync(group.group_id, member.member_id)
            timeout_ms = metadata.session_timeout_ms
            timers.restart_session(group.group_id, member.member_id, timeout_ms)
            response.complete(
                SyncGroupResponse(
                    error_code=ErrorCode.NONE,
                    protocol_type=request.protocol_type,
                    protocol_name=request.protocol_name,
                    assignment=assignment,
                )
            )

        return CoordinatorResult(None, on_appended=on_appended)

    def _check_sync(
        self,
        group: ConsumerGroup,
        request: SyncGroupRequest,
        member: ConsumerMember,
        metadata: ClassicMetadata,
    ) -> bytes:
        """Return the assignment of a member that may send SyncGroup now. Raises RefusalError."""
        names = (request.protocol_type, request.protocol_name)
        for name, expected in zip(
            names, (CONSUMER_PROTOCOL_TYPE, metadata.protocol_name), strict=True
        ):
            if name is not None and name != expected:
                raise RefusalError(
                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{name} is not {expected}."
                )
        is_behind = group.assignment_epoch > member.member_epoch
        if is_behind and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._membership.timers.start_join(group.group_id, member)
            raise RefusalError(ErrorCode.REBALANCE_IN_PROGRESS, "A rebalance is in progress.")
        try:
            version = read_version(metadata.protocols[0][1])
        except ProtocolError as error:
            raise RefusalError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None
        topics = self._shard.topics
        named = {topics.topic_name(topic_id): owned for topic_id, owned in member.assigned.items()}
        assigned = {name: owned for name, owned in named.items() if name is not None}
        return encode_assignment(assigned, version)

    # Heartbeat.

    def heartbeat(
        self, group: ConsumerGroup, request: HeartbeatRequest
    ) -> CoordinatorResult[ErrorCode]:
        """Restart the member's session.

        REBALANCE_IN_PROGRESS tells the member to rejoin: to get a newer assignment, to confirm the
        revocation of partitions, or to get partitions that are free now.
        """
        try:
            member, metadata = self._find(group, request)
        except RefusalError as error:
            return CoordinatorResult(error.error)
        timers = self._membership.timers
        timers.restart_session(group.group_id, member.member_id, metadata.session_timeout_ms)
        can_get_more = (
            member.state is MemberState.UNRELEASED_PARTITIONS
            and not group.is_waiting_for_partitions(member)
        )
        must_revoke = member.state is MemberState.UNREVOKED_PARTITIONS
        # Without members of the consumer protocol, only JoinGroup computes the next assignment.
        is_last_resort = group.has_only_classic_members_without(())
        epoch = group.group_epoch if is_last_resort else group.assignment_epoch
        if member.member_epoch >= epoch and not (must_revoke or can_get_more):
            return CoordinatorResult(ErrorCode.NONE)
        timers.start_join(group.group_id, member)
        return CoordinatorResult(ErrorCode.REBALANCE_IN_PROGRESS)

    @staticmethod
    def _find(
        group: ConsumerGroup, request: SyncGroupRequest | HeartbeatRequest
    ) -> tuple[ConsumerMember, ClassicMetadata]:
        """Return the member of the classic protocol in this generation. Raises RefusalError."""
        member = find_member(group, request.member_id, request.group_instance_id)
        if member.classic is None:
            raise RefusalError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member.member_id} does not use the classic protocol.",
            )
        if request.generation_id != member.member_epoch:
            raise RefusalError(
                ErrorCode.ILLEGAL_GENERATION,
                f"The generation {request.generation_id} is not the epoch {member.member_epoch} of "
                f"member {member.member_id}.",
            )
        return member, member.classic


def _joined(member: ConsumerMember) -> JoinGroupResponse:
    """Return the response of a member that has joined."""
    assert member.classic is not None, f"member={member.member_id} uses the consumer protocol"
    response = failed_join(member.member_id, ErrorCode.NONE)
    response.generation_id = member.member_epoch
    response.protocol_type = CONSUMER_PROTOCOL_TYPE
    response.protocol_name = member.classic.protocol_name
    return response
