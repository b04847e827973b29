"""States of a member of a KIP-848 group, and the events that change them."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CONSUMER_MEMBER_STATES", "ConsumerMemberEvent", "ConsumerMemberState"]


class ConsumerMemberState(Enum):
    """The state of a member under the consumer group protocol."""

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

    @property
    def is_member(self) -> bool:
        """Whether the coordinator may count the consumer as a member; then it sends heartbeats."""
        return self in _MEMBERS


class ConsumerMemberEvent(Enum):
    """Events that change the state of a member."""

    JOIN_STARTED = auto()
    # The coordinator sent a target that differs from the assignment.
    TARGET_CHANGED = auto()
    # The assignment is the target, or the part of it whose topics are known.
    ASSIGNMENT_APPLIED = auto()
    # A heartbeat that lists the whole target, or only a part of it, is being sent.
    ACKNOWLEDGED = auto()
    ACKNOWLEDGED_IN_PART = auto()
    # A heartbeat was refused with FENCED_MEMBER_EPOCH or UNKNOWN_MEMBER_ID.
    FENCED = auto()
    # The user did not poll for max.poll.interval.ms.
    POLL_MISSED = auto()
    # A heartbeat failed with an error that is not retriable.
    FAILED = auto()
    SUBSCRIPTION_CHANGED = auto()
    LEFT = auto()


_S, _E = ConsumerMemberState, ConsumerMemberEvent
_MEMBERS = frozenset({_S.JOINING, _S.STABLE, _S.RECONCILING, _S.ACKNOWLEDGING})
# The events that end a membership.
_ENDS = {
    _E.FENCED: _S.FENCED,
    _E.POLL_MISSED: _S.STALE,
    _E.FAILED: _S.FATAL,
    _E.LEFT: _S.LEFT,
}
CONSUMER_MEMBER_STATES: Mapping[
    ConsumerMemberState, Mapping[ConsumerMemberEvent, ConsumerMemberState]
] = {
    _S.UNJOINED: {_E.JOIN_STARTED: _S.JOINING, _E.LEFT: _S.LEFT},
    _S.JOINING: {_E.TARGET_CHANGED: _S.RECONCILING, **_ENDS},
    _S.STABLE: {_E.TARGET_CHANGED: _S.RECONCILING, **_ENDS},
    _S.RECONCILING: {
        _E.TARGET_CHANGED: _S.RECONCILING,
        _E.ASSIGNMENT_APPLIED: _S.ACKNOWLEDGING,
        **_ENDS,
    },
    _S.ACKNOWLEDGING: {
        _E.TARGET_CHANGED: _S.RECONCILING,
        _E.ACKNOWLEDGED: _S.STABLE,
        _E.ACKNOWLEDGED_IN_PART: _S.RECONCILING,
        **_ENDS,
    },
    _S.FENCED: {_E.JOIN_STARTED: _S.JOINING, _E.LEFT: _S.LEFT},
    _S.STALE: {_E.JOIN_STARTED: _S.JOINING, _E.LEFT: _S.LEFT},
    _S.FATAL: {_E.SUBSCRIPTION_CHANGED: _S.UNJOINED, _E.LEFT: _S.LEFT},
    _S.LEFT: {_E.LEFT: _S.LEFT},
}
