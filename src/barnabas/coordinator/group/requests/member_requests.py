"""Requests of members of classic and consumer groups (JoinGroup to LeaveGroup, and KIP-848).

Checks that do not need the group are here. The shard does the rest: `ClassicMembership` for classic
groups, `ClassicMembers` for members of consumer groups that use the classic protocol.

Each response is sent in one way. JoinGroup and SyncGroup have a `PendingResponse`, which is
completed by a check here, by the group, or by the failure of the write. The other responses are the
results of their writes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinator.group.classic.classic_group import failed_join, failed_sync
from barnabas.coordinator.group.classic.classic_member import PendingResponse
from barnabas.coordinator.group.classic.classic_membership import JoinRequest
from barnabas.coordinator.group.consumer.consumer_membership import failed_heartbeat
from barnabas.coordinator.group.group_base import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    PROTOCOLS_MAX,
    TOPIC_NAMES_MAX,
    RefusalError,
    check_ids,
    check_static_leave,
    check_topic_names,
    invalid_request,
)
from barnabas.coordinator.group.kind_configs import consumer_assignors
from barnabas.coordinator.group.requests.group_requests import describe_groups, failed_description
from barnabas.coordinator.group.topics import NOTHING
from barnabas.coordinator.runtime.responses import client_error
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from barnabas.protocol.messages.groups import (
    HeartbeatResponse,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping

    from barnabas.coordinator.group.classic.classic_membership import ClientIdentity
    from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup, ConsumerMember
    from barnabas.coordinator.group.consumer.heartbeats import ConsumerHeartbeat
    from barnabas.coordinator.group.group_config import GroupCoordinatorConfig, GroupSettings
    from barnabas.coordinator.group.group_shard import GroupShard
    from barnabas.coordinator.group.topics import TopicsView
    from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
    from barnabas.protocol.messages.groups import (
        ConsumerGroupHeartbeatRequest,
        ConsumerGroupHeartbeatResponse,
        HeartbeatRequest,
        JoinGroupRequest,
        JoinGroupResponse,
        LeaveGroupRequest,
        SyncGroupRequest,
        SyncGroupResponse,
    )
    from barnabas.settings.definition import ParsedConfig


# The types of members, by the protocol that they use.
_CLASSIC, _CONSUMER = 0, 1


def describe_consumers(
    group: ConsumerGroup, topics: TopicsView, default_assignor: str
) -> DescribedGroup:
    """Return epochs, state and members of a group."""
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or default_assignor,
        members=[_described(group, member, topics) for member in group.members.values()],
    )


def _described(group: ConsumerGroup, member: ConsumerMember, topics: TopicsView) -> Member:
    owned: dict[bytes, set[int]] = {}
    for partitions in (member.assigned, member.pending_revocation):
        for topic_id, indexes in partitions.items():
            owned.setdefault(topic_id, set()).update(indexes)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_assignment(owned, topics),
        target_assignment=_assignment(group.targets.get(member.member_id, NOTHING), topics),
        member_type=_CLASSIC if member.uses_classic_protocol else _CONSUMER,
    )


def _assignment(partitions: Mapping[bytes, Iterable[int]], topics: TopicsView) -> Assignment:
    """Return the partitions of existing topics."""
    found = []
    for topic_id, indexes in sorted(partitions.items()):
        name = topics.topic_name(topic_id)
        if name is not None:
            found.append(
                TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(indexes))
            )
    return Assignment(topic_partitions=found)


# The first version in which clients choose their member ids (KIP-1082).
_CLIENT_MEMBER_ID_SINCE = 1


def _check_heartbeat(
    request: ConsumerGroupHeartbeatRequest, version: int, config: ParsedConfig
) -> None:
    """Check the fields whose validity does not depend on the group. Raises RefusalError.

    Args:
        request: the request.
        version: its version.
        config: names the assignors that members may choose.
    """
    epoch = request.member_epoch
    has_member_id = version >= _CLIENT_MEMBER_ID_SINCE or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH
    member_id = request.member_id if has_member_id else None
    check_ids(member_id, request.group_id, request.instance_id, request.rack_id)
    check_topic_names(request.subscribed_topic_names)
    if len(request.topic_partitions or ()) > TOPIC_NAMES_MAX:
        raise invalid_request(f"A member may own partitions of at most {TOPIC_NAMES_MAX} topics.")
    if epoch == JOIN_EPOCH:
        _check_first_heartbeat(request)
    elif epoch < LEAVE_EPOCH:
        check_static_leave(epoch, request.instance_id)
    assignor = request.server_assignor
    if assignor is not None and assignor not in (allowed := consumer_assignors(config)):
        raise RefusalError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"The group coordinator has no assignor {assignor}. It has: {', '.join(allowed)}.",
        )


def _check_first_heartbeat(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise invalid_request("The heartbeat that joins needs a rebalance timeout.")
    if request.topic_partitions is None or request.topic_partitions:
        raise invalid_request("The heartbeat that joins must report an empty list of partitions.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise invalid_request("The heartbeat that joins needs topic names or a regular expression.")


class ConsumerRequests:
    """Requests for consumer groups."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[GroupShard],
        topics: TopicsView,
        settings: GroupSettings,
    ) -> None:
        self._runtime = runtime
        self._topics = topics
        self._settings = settings

    def heartbeat(
        self,
        heartbeat: ConsumerHeartbeat,
        version: int,
        on_done: Callable[[ConsumerGroupHeartbeatResponse], None],
    ) -> None:
        """Handle ConsumerGroupHeartbeat, versions 0 and 1.

        Args:
            heartbeat: the request and its client.
            version: the version of the request.
            on_done: gets the response when its records are committed.
        """

        def respond(found: ConsumerGroupHeartbeatResponse | None, error: ErrorCode) -> None:
            if found is None:
                found = failed_heartbeat(client_error(error), None)
            on_done(found)

        try:
            _check_heartbeat(heartbeat.request, version, self._settings.config)
        except RefusalError as error:
            on_done(failed_heartbeat(error.error, error.message))
            return
        self._runtime.write_jointly(
            heartbeat.request.group_id,
            lambda shard: shard.consumers.heartbeat(heartbeat),
            respond,
        )

    def describe(
        self, group_ids: list[str], on_done: Callable[[list[DescribedGroup]], None]
    ) -> Generator[None, None, None]:
        """Describe consumer groups (versions 0 and 1), as `describe_groups`."""
        default_assignor = consumer_assignors(self._settings.config)[0]

        def describe(shard: GroupShard, group_id: str) -> DescribedGroup:
            group = shard.consumer_groups.groups.require(group_id)
            return describe_consumers(group, self._topics, default_assignor)

        return describe_groups(self._runtime, group_ids, describe, failed_group, on_done)


failed_group = partial(failed_description, DescribedGroup, assignor_name="")


_JOIN_NULL_PROTOCOL_SINCE = 7
_JOIN_REBALANCE_TIMEOUT_SINCE = 1
_SYNC_PROTOCOL_SINCE = 5
_LEAVE_MANY_SINCE = 3


class MemberRequests:
    """Validates requests of members, and passes them to the shard of their group."""

    def __init__(
        self, config: GroupCoordinatorConfig, runtime: CoordinatorRuntime[GroupShard]
    ) -> None:
        self._config = config
        self._runtime = runtime

    def join(
        self,
        request: JoinGroupRequest,
        version: int,
        client: ClientIdentity,
        on_done: Callable[[JoinGroupResponse], None],
    ) -> None:
        """Handle JoinGroup, versions 0 to 9. The response follows when the generation starts."""
        response: PendingResponse[JoinGroupResponse] = PendingResponse(
            lambda joined: on_done(in_version(joined, version))
        )
        joining = JoinRequest(request, version, client, response)
        error = self._check_join(request)
        if error is not ErrorCode.NONE:
            joining.refuse(request.member_id, error)
            return
        if version < _JOIN_REBALANCE_TIMEOUT_SINCE:
            request.rebalance_timeout_ms = request.session_timeout_ms
        self._runtime.write_jointly(
            request.group_id,
            lambda shard: shard.join(joining),
            lambda _, error: response.on_written(
                error, lambda error: failed_join(request.member_id, client_error(error))
            ),
        )

    def _check_join(self, request: JoinGroupRequest) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        shortest_ms = self._config.group_min_session_timeout_ms
        longest_ms = self._config.group_max_session_timeout_ms
        if not shortest_ms <= request.session_timeout_ms <= longest_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if len(request.protocols) > PROTOCOLS_MAX:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.NONE

    def sync(
        self,
        request: SyncGroupRequest,
        version: int,
        on_done: Callable[[SyncGroupResponse], None],
    ) -> None:
        """Handle SyncGroup, versions 0 to 5.

        The response follows when the leader's assignment is written.
        """
        response = PendingResponse(on_done)
        names = (request.protocol_type, request.protocol_name)
        if version >= _SYNC_PROTOCOL_SINCE and None in names:
            response.complete(failed_sync(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif not request.group_id:
            response.complete(failed_sync(ErrorCode.INVALID_GROUP_ID))
        else:
            self._runtime.write_jointly(
                request.group_id,
                lambda shard: shard.sync(request, response),
                lambda _, error: response.on_written(
                    error, lambda error: failed_sync(client_error(error))
                ),
            )

    def heartbeat(
        self, request: HeartbeatRequest, on_done: Callable[[HeartbeatResponse], None]
    ) -> None:
        """Handle Heartbeat, versions 0 to 4."""

        def respond(found: ErrorCode | None, error: ErrorCode) -> None:
            # Sessions start when the group is loaded. Until then every heartbeat succeeds.
            if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                error = ErrorCode.NONE
            on_done(HeartbeatResponse(error_code=error if found is None else found))

        if not request.group_id:
            respond(None, ErrorCode.INVALID_GROUP_ID)
        else:
            self._runtime.write_jointly(
                request.group_id, lambda shard: shard.heartbeat(request), respond
            )

    def leave(
        self,
        request: LeaveGroupRequest,
        version: int,
        on_done: Callable[[LeaveGroupResponse], None],
    ) -> None:
        """Handle LeaveGroup, versions 0 to 5.

        Up to version 2 a request has one member, whose error becomes the error of the response.
        """
        if version < _LEAVE_MANY_SINCE:
            request.members = [MemberIdentity(member_id=request.member_id)]

        def respond(members: list[MemberResponse] | None, error: ErrorCode) -> None:
            if members is None:
                on_done(LeaveGroupResponse(error_code=client_error(error)))
            elif version < _LEAVE_MANY_SINCE:
                on_done(LeaveGroupResponse(error_code=members[0].error_code))
            else:
                on_done(LeaveGroupResponse(error_code=ErrorCode.NONE, members=members))

        if not request.group_id:
            respond(None, ErrorCode.INVALID_GROUP_ID)
        else:
            self._runtime.write(request.group_id, lambda shard: shard.leave(request), respond)


def in_version(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    """Return the response in the format of `version`: old versions have no null protocol."""
    if not response.protocol_name:
        response.protocol_name = None if version >= _JOIN_NULL_PROTOCOL_SINCE else ""
    return response
