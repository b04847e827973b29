"""Removes members from a classic group (KIP-345, KIP-571)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.admin.call import AdminCall, raise_error
from barnabas.client.errors import BrokerError, broker_error
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from barnabas.protocol.protocol_error import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.protocol.schema import Message

__all__ = ["MemberToRemove", "remove_members"]

# Earlier versions let a member only remove itself.
_MANY_FROM = 3


class MemberToRemove(NamedTuple):
    """Names a member by its member id, or a static member by its instance id."""

    member_id: str = ""
    instance_id: str | None = None


def remove_members(
    group: str, members: Sequence[MemberToRemove], reason: str
) -> AdminCall[dict[MemberToRemove, BrokerError | None]]:
    """Remove members; return an error or None for each."""

    def build(version: int) -> Message:
        if version < _MANY_FROM:
            raise ProtocolError("requests before version 3 cannot remove other members")
        return LeaveGroupRequest(
            group_id=group,
            members=[
                # A static member is identified by its instance id only.
                MemberIdentity(
                    member_id="" if each.instance_id is not None else each.member_id,
                    group_instance_id=each.instance_id,
                    reason=reason,
                )
                for each in members
            ],
        )

    def read(response: Message) -> dict[MemberToRemove, BrokerError | None]:
        assert isinstance(response, LeaveGroupResponse)
        raise_error(response.error_code, f"members of group {group}")
        found: dict[MemberToRemove, BrokerError | None] = {}
        for member, result in zip(members, response.members, strict=True):
            subject = f"member {member.instance_id or member.member_id} of group {group}"
            code = result.error_code
            found[member] = broker_error(code, subject) if code else None
        return found

    return AdminCall(ApiKey.LEAVE_GROUP, build, read)
