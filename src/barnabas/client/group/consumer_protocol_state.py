"""Where a member of a KIP-848 group stands, and which steps lead from one state to another."""

from __future__ import annotations

from enum import Enum, auto

__all__ = ["MemberState"]


class MemberState(Enum):
    """One state at a time; `can_become` is the table of the transitions."""

    # Nothing was sent yet: the first `poll` joins.
    UNJOINED = auto()
    # Epoch 0 is being sent, or was; the first assignment is waited for.
    JOINING = auto()
    # Coordinator and member agree.
    STABLE = auto()
    # The coordinator wants another assignment than the one that the member has.
    RECONCILING = auto()
    # The member has a new assignment; the next heartbeat says so, and leaves at once.
    ACKNOWLEDGING = auto()
    # The coordinator does not know the member in this epoch: its partitions are lost, it rejoins.
    FENCED = auto()
    # It left by itself because the user did not poll in time: lost, and rejoins with the next poll.
    STALE = auto()
    # An error that no retry mends; another subscription starts anew.
    FATAL = auto()
    # Leaving, or gone: nothing more is done.
    LEFT = auto()

    def can_become(self, other: MemberState) -> bool:
        """Whether `other` may follow this state."""
        return other in _NEXT[self]

    @property
    def is_member(self) -> bool:
        """Whether the coordinator may count this one as a member, so that heartbeats are due."""
        return self in _MEMBERS


_MEMBERS = frozenset({
    MemberState.JOINING,
    MemberState.STABLE,
    MemberState.RECONCILING,
    MemberState.ACKNOWLEDGING,
})  # fmt: skip
# How a member stops being one.
_ENDS = frozenset({MemberState.FENCED, MemberState.STALE, MemberState.FATAL, MemberState.LEFT})
_NEXT: dict[MemberState, frozenset[MemberState]] = {
    MemberState.UNJOINED: frozenset({MemberState.JOINING, MemberState.LEFT}),
    MemberState.JOINING: frozenset({MemberState.STABLE, MemberState.RECONCILING}) | _ENDS,
    MemberState.STABLE: frozenset({MemberState.RECONCILING}) | _ENDS,
    MemberState.RECONCILING: frozenset({MemberState.ACKNOWLEDGING, MemberState.STABLE}) | _ENDS,
    MemberState.ACKNOWLEDGING: frozenset({MemberState.STABLE, MemberState.RECONCILING}) | _ENDS,
    MemberState.FENCED: frozenset({MemberState.JOINING, MemberState.LEFT}),
    MemberState.STALE: frozenset({MemberState.JOINING, MemberState.LEFT}),
    MemberState.FATAL: frozenset({MemberState.UNJOINED, MemberState.LEFT}),
    MemberState.LEFT: frozenset(),
}
