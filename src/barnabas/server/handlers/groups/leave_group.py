"""LeaveGroup (key 13, v0-5): remove members (v3 batches, KIP-345; v5 reasons, KIP-800)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import LeaveGroupRequest, LeaveGroupResponse
from barnabas.waiting.steps import in_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.coordinator.group.requests.member_requests import MemberRequests
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies

# Number of members that are removed in one turn of the loop and with one record of the group.
MEMBERS_AT_ONCE = 500


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that removes members from groups."""
    return LeaveGroupHandler(dependencies).handle_leave_group


class LeaveGroupHandler:
    """Passes the request to the group coordinator."""

    __slots__ = ("_members",)

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._members = dependencies.groups.members

    def handle_leave_group(
        self, context: RequestContext, request: LeaveGroupRequest
    ) -> LeaveGroupResponse | None:
        """Remove the members. The response follows when the new state of the group is written."""
        if len(request.members) <= MEMBERS_AT_ONCE:
            self._members.leave(request, context.version, context.respond)
            return None
        return context.in_slices(_leave_in_parts(self._members, context, request))


def _leave_in_parts(
    members: MemberRequests, context: RequestContext, request: LeaveGroupRequest
) -> Generator[None, None, None]:
    """Split a request with many members into several requests, and merge their responses.

    In Kafka such a request is one operation. Here, other requests can run in between.
    """
    parts = list(in_parts(request.members, MEMBERS_AT_ONCE))
    responses: dict[int, LeaveGroupResponse] = {}

    def collect(index: int) -> Callable[[LeaveGroupResponse], None]:
        def on_done(response: LeaveGroupResponse) -> None:
            responses[index] = response
            if len(responses) == len(parts):
                context.respond(_merge_responses([responses[each] for each in range(len(parts))]))

        return on_done

    for index, some in enumerate(parts):
        part = LeaveGroupRequest(group_id=request.group_id, members=some)
        members.leave(part, context.version, collect(index))
        yield


def _merge_responses(responses: list[LeaveGroupResponse]) -> LeaveGroupResponse:
    """Merge the responses of all parts. The first top-level error is the error of the result."""
    for each in responses:
        if each.error_code != ErrorCode.NONE:
            return LeaveGroupResponse(error_code=each.error_code)
    members = [member for each in responses for member in each.members]
    return LeaveGroupResponse(error_code=ErrorCode.NONE, members=members)
