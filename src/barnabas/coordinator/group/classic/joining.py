"""One JoinGroup request in progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.classic.classic_group import failed_join
from barnabas.coordinator.group.classic.classic_member import (
    ClassicMember,
    MemberIdentity,
    MemberTimes,
)
from barnabas.coordinator.group.group_memory import member_bytes

if TYPE_CHECKING:
    from barnabas.coordinator.runtime.responses.pending_response import PendingResponse
    from barnabas.protocol.errors import ErrorCode
    from barnabas.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse


class ClientIdentity(msgspec.Struct, frozen=True):
    """The client that sent a request."""

    client_id: str
    # Starts with a slash, as Java prints addresses.
    host: str


class Joining(msgspec.Struct, frozen=True):
    """One JoinGroup request, its client and its response."""

    request: JoinGroupRequest
    version: int
    client: ClientIdentity
    response: PendingResponse[JoinGroupResponse]

    def refuse(self, member_id: str, error: ErrorCode) -> None:
        """Answer with an error."""
        self.response.complete(failed_join(member_id, error))

    def protocols(self) -> dict[str, bytes]:
        """Return the subscriptions by protocol. For a repeated name, the first one counts."""
        found: dict[str, bytes] = {}
        for each in self.request.protocols:
            found.setdefault(each.name, each.metadata)
        return found

    def held_bytes(self, member_id: str) -> int:
        """Return the memory accounting of the member that the request describes."""
        return member_bytes(self._identity(member_id).length, self.protocols())

    def member(self, member_id: str) -> ClassicMember:
        """Return the member that the request describes."""
        request = self.request
        times = MemberTimes(request.session_timeout_ms, request.rebalance_timeout_ms)
        return ClassicMember(self._identity(member_id), times, self.protocols())

    def _identity(self, member_id: str) -> MemberIdentity:
        request, client = self.request, self.client
        return MemberIdentity(
            member_id,
            request.group_instance_id,
            client.client_id,
            client.host,
            request.protocol_type,
        )
