"""The progress of a member of a consumer group towards its target assignment (KIP-848)."""

from __future__ import annotations

from enum import IntEnum


class MemberState(IntEnum):
    """The state of a member. Values are those of its record."""

    # The member has received all partitions of the epoch that it has reached.
    STABLE = 0
    # The member must revoke partitions before it can advance to the next epoch.
    UNREVOKED_PARTITIONS = 1
    # The member waits for partitions that other members have not revoked yet.
    UNRELEASED_PARTITIONS = 2
    # A later version has written a state that this version does not know.
    UNKNOWN = 127

    @classmethod
    def of(cls, value: int) -> MemberState:
        """Return the state of a record. Unknown values become UNKNOWN."""
        return cls(value) if value in _VALUES else cls.UNKNOWN


_VALUES = frozenset(MemberState)
