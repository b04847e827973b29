"""All versions of JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Checks that do not need the group are here. The shard does the rest: `ClassicMembership` for classic
groups, `ClassicMembers` for members of consumer groups.

Each response is sent in one way. JoinGroup and SyncGroup have a `PendingResponse`, which is
completed by a check here, by the group, or by the failure of the write. The response of Heartbeat
and LeaveGroup is the result of their write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.classic.classic_group import failed_join, failed_sync
from barnabas.coordinator.group.classic.classic_membership import Joining
from barnabas.coordinator.group.group_memory import PROTOCOLS_MAX
from barnabas.coordinator.runtime.responses.append_errors import client_error
from barnabas.coordinator.runtime.responses.pending_response import PendingResponse
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import (
    HeartbeatResponse,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.group.classic.classic_membership import ClientIdentity
    from barnabas.coordinator.group.configs.config import GroupCoordinatorConfig
    from barnabas.coordinator.group.group_shard import GroupShard
    from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
    from barnabas.protocol.messages.groups import (
        HeartbeatRequest,
        JoinGroupRequest,
        JoinGroupResponse,
        LeaveGroupRequest,
        SyncGroupRequest,
        SyncGroupResponse,
    )

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
        """Handle JoinGroup, versions 0 to 9. It is answered when the generation starts."""
        response: PendingResponse[JoinGroupResponse] = PendingResponse(
            lambda answer: on_done(in_version(answer, version))
        )
        joining = Joining(request, version, client, response)
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

        It is answered when the leader's assignment is written.
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
