"""States of members of streams groups, with their numbers in records (Kafka: MemberState)."""

from __future__ import annotations

from enum import IntEnum


class StreamsMemberState(IntEnum):
    """The progress of a member towards its target assignment."""

    # It has its target.
    STABLE = 1
    # The client must release tasks before it gets a new epoch.
    UNREVOKED_TASKS = 2
    # It waits for tasks that another member or another process still has.
    UNRELEASED_TASKS = 3
    # Written by a newer broker.
    UNKNOWN = 127

    @classmethod
    def of(cls, number: int) -> StreamsMemberState:
        """Return the state of a record; UNKNOWN for unknown numbers."""
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN
