"""All versions of JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Checks that do not need the group are here. `membership` does the rest.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec.structs import replace

from barnabas.coordinator.group.classic.classic_group import failed_join, failed_sync
from barnabas.coordinator.group.classic.group_memory import PROTOCOLS_MAX
from barnabas.coordinator.group.classic.rebalance import append_error
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.heartbeat import HeartbeatResponse
from barnabas.protocol.messages.leave_group import (
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.group.classic.membership import Joining
    from barnabas.coordinator.group.config import GroupCoordinatorConfig
    from barnabas.coordinator.group.group_shard import GroupShard
    from barnabas.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
    from barnabas.protocol.messages.heartbeat import HeartbeatRequest
    from barnabas.protocol.messages.join_group import JoinGroupResponse
    from barnabas.protocol.messages.leave_group import LeaveGroupRequest
    from barnabas.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

R = TypeVar("R")

_JOIN_NULL_PROTOCOL_SINCE = 7
_JOIN_REBALANCE_TIMEOUT_SINCE = 1
_SYNC_PROTOCOL_SINCE = 5
_LEAVE_MANY_SINCE = 3


class MemberRequests:
    """Finds the group's shard, and answers each request exactly once."""

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        runtime: CoordinatorRuntime[GroupShard],
        partition_for: Callable[[str], int | None],
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._partition_for = partition_for

    def join(self, joining: Joining) -> None:
        """Handle JoinGroup, versions 0 to 9. It is answered when the generation starts."""
        request = joining.request
        respond = _Once(partial(_respond_join, joining))
        joining = replace(joining, respond=respond)
        partition = self._partition_for(request.group_id)
        low, high = (
            self._config.group_min_session_timeout_ms,
            self._config.group_max_session_timeout_ms,
        )
        if not request.group_id:
            joining.refuse(request.member_id, ErrorCode.INVALID_GROUP_ID)
        elif not low <= request.session_timeout_ms <= high:
            joining.refuse(request.member_id, ErrorCode.INVALID_SESSION_TIMEOUT)
        elif partition is None:
            joining.refuse(request.member_id, ErrorCode.NOT_COORDINATOR)
        elif len(request.protocols) > PROTOCOLS_MAX:
            joining.refuse(request.member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        else:
            if joining.version < _JOIN_REBALANCE_TIMEOUT_SINCE:
                request.rebalance_timeout_ms = request.session_timeout_ms
            self._runtime.write(
                partition,
                lambda shard: shard.join(joining),
                lambda _, error: respond.unless_done(
                    error, failed_join(request.member_id, append_error(error))
                ),
            )

    def sync(
        self,
        request: SyncGroupRequest,
        version: int,
        on_done: Callable[[SyncGroupResponse], None],
    ) -> None:
        """Handle SyncGroup, versions 0 to 5.

        It is answered when the leader's assignment is written.
        """
        partition = self._partition_for(request.group_id)
        names = (request.protocol_type, request.protocol_name)
        if version >= _SYNC_PROTOCOL_SINCE and None in names:
            on_done(failed_sync(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif not request.group_id:
            on_done(failed_sync(ErrorCode.INVALID_GROUP_ID))
        elif partition is None:
            on_done(failed_sync(ErrorCode.NOT_COORDINATOR))
        else:
            respond = _Once(on_done)
            self._runtime.write(
                partition,
                lambda shard: shard.sync(request, respond),
                lambda _, error: respond.unless_done(error, failed_sync(append_error(error))),
            )

    def heartbeat(
        self, request: HeartbeatRequest, on_done: Callable[[HeartbeatResponse], None]
    ) -> None:
        """Handle Heartbeat, versions 0 to 4."""
        partition = self._partition_for(request.group_id)
        if not request.group_id:
            on_done(HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        elif partition is None:
            on_done(HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR))
        else:

            def answer(found: ErrorCode | None, error: ErrorCode) -> None:
                # Sessions start when the group is loaded. Until then every heartbeat succeeds.
                if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    error = ErrorCode.NONE
                on_done(HeartbeatResponse(error_code=error if found is None else found))

            self._runtime.write(partition, lambda shard: shard.heartbeat(request), answer)

    def leave(
        self,
        request: LeaveGroupRequest,
        version: int,
        on_done: Callable[[LeaveGroupResponse], None],
    ) -> None:
        """Handle LeaveGroup, versions 0 to 5.

        Up to version 2 a request has one member, whose error becomes the error of the response.
        """
        partition = self._partition_for(request.group_id)
        if version < _LEAVE_MANY_SINCE:
            request.members = [MemberIdentity(member_id=request.member_id)]
        if not request.group_id:
            on_done(LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        elif partition is None:
            on_done(LeaveGroupResponse(error_code=ErrorCode.NOT_COORDINATOR))
        else:

            def answer(members: list[MemberResponse] | None, error: ErrorCode) -> None:
                if members is None:
                    on_done(LeaveGroupResponse(error_code=append_error(error)))
                elif version < _LEAVE_MANY_SINCE:
                    on_done(LeaveGroupResponse(error_code=members[0].error_code))
                else:
                    on_done(LeaveGroupResponse(error_code=ErrorCode.NONE, members=members))

            self._runtime.write(partition, lambda shard: shard.leave(request), answer)


class _Once(Generic[R]):
    """The response of a group, unless the write behind it fails first."""

    __slots__ = ("_has_failed", "_is_done", "_respond")

    def __init__(self, respond: Callable[[R], None]) -> None:
        self._respond = respond
        self._is_done = False
        self._has_failed = False

    def __call__(self, response: R) -> None:
        if self._has_failed:
            # The request has already failed; ignore the group's late response.
            return
        assert not self._is_done, "a request is answered once"
        self._is_done = True
        self._respond(response)

    def unless_done(self, error: ErrorCode, failed: R) -> None:
        """Send `failed` after a failed write, unless the group has already answered."""
        if error is not ErrorCode.NONE and not self._is_done:
            self(failed)
            self._has_failed = True


def _respond_join(joining: Joining, response: JoinGroupResponse) -> None:
    if not response.protocol_name:
        response.protocol_name = None if joining.version >= _JOIN_NULL_PROTOCOL_SINCE else ""
    joining.respond(response)
