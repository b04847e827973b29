"""States of a member of a KIP-848 group, and the allowed transitions between them."""

from __future__ import annotations

from enum import Enum, auto

__all__ = ["MemberState"]


class MemberState(Enum):
    """The state of a member; `can_become` checks the transition table."""

    # No request was sent; the first `poll` joins.
    UNJOINED = auto()
    # The request to join (epoch 0) is being sent, or the first assignment is pending.
    JOINING = auto()
    # Coordinator and member agree on the assignment.
    STABLE = auto()
    # The coordinator's target differs from the member's assignment.
    RECONCILING = auto()
    # The member has applied a new assignment; a heartbeat that acknowledges it is sent at once.
    ACKNOWLEDGING = auto()
    # The coordinator does not know the member in this epoch: its partitions are lost, and it
    # rejoins.
    FENCED = auto()
    # The member left because the user did not poll in time: its partitions are lost, and the next
    # poll rejoins.
    STALE = auto()
    # An error occurred that is not retriable; a changed subscription starts again.
    FATAL = auto()
    # The member is leaving or has left; this state is final.
    LEFT = auto()

    def can_become(self, other: MemberState) -> bool:
        """Return whether the transition from this state to `other` is allowed."""
        return other in _NEXT[self]

    @property
    def is_member(self) -> bool:
        """Whether the coordinator may count the consumer as a member; then it sends heartbeats."""
        return self in _MEMBERS


_MEMBERS = frozenset({
    MemberState.JOINING,
    MemberState.STABLE,
    MemberState.RECONCILING,
    MemberState.ACKNOWLEDGING,
})  # fmt: skip
# The states that end a membership.
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
