"""Names of group members in messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.client.admin.group_descriptions import GroupMember, StreamsMember

__all__ = ["listed", "member_name"]

# Names that a message lists.
_SHOWN = 5


def member_name(member: GroupMember | StreamsMember) -> str:
    """Return the instance id, client id or member id, with the host."""
    name = member.instance_id or member.client_id or member.member_id
    return f"{name} at {member.host}" if member.host else name


def listed(words: Iterable[str]) -> str:
    """Return the first words, separated by commas."""
    found = list(words)
    return ", ".join(found[:_SHOWN]) + (" ..." if len(found) > _SHOWN else "")
