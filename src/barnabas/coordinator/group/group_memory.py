"""How much memory the members of classic groups may take.

A member brings its subscription for each protocol that it supports, and chooses their number and
size. Kafka's own limits are the size of a request and `group.max.size`. A group's record has one
protocol's subscriptions and the assignments of all members, and has to fit into `max.message.bytes`
of `__consumer_offsets`, 1 MB: the limits here are far above that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

# Of one group.
GROUP_BYTES_MAX = 64 << 20
# Of all groups that this broker coordinates.
TOTAL_BYTES_MAX = 256 << 20
# Protocols of one member. Kafka has no limit; the assignors of all known clients together are fewer
# than ten. Each is looked at several times in one turn of the event loop.
PROTOCOLS_MAX = 500
# Ids of one group that were given out and with which no member has joined yet.
PENDING_IDS_MAX = 1_000
# What a member takes beside what it brings, and one of its protocols.
_MEMBER_BYTES = 1_000
_PROTOCOL_BYTES = 100


class GroupMemory:
    """What the members of all groups of this broker take."""

    __slots__ = ("held_bytes",)

    def __init__(self) -> None:
        # The sum of `ClassicGroup.held_bytes`, which moves it.
        self.held_bytes = 0

    def check(self, group_bytes: int, growth: int) -> ErrorCode:
        """Whether a group may grow.

        Returns:
            NONE, GROUP_MAX_SIZE_REACHED for the group's own limit, or COORDINATOR_NOT_AVAILABLE,
            which has clients try again, while all groups together take too much.
        """
        if growth <= 0:
            return ErrorCode.NONE
        if group_bytes + growth > GROUP_BYTES_MAX:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if self.held_bytes + growth > TOTAL_BYTES_MAX:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE


def member_bytes(names: int, protocols: Mapping[str, bytes]) -> int:
    """What a member takes.

    Args:
        names: length of its ids and names together.
    """
    brought = sum(len(name) + len(data) + _PROTOCOL_BYTES for name, data in protocols.items())
    return _MEMBER_BYTES + names + brought


def pending_id_bytes(member_id: str) -> int:
    """What an id takes that was given out."""
    return _MEMBER_BYTES + len(member_id)
