"""States of a member of a share group, and the events that change them (KIP-932)."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SHARE_MEMBER_STATES", "ShareMemberEvent", "ShareMemberState"]


class ShareMemberState(Enum):
    """The state of a member of a share group."""

    # The next poll joins: no request was sent, the coordinator does not know the member, or the
    # member left because the user did not poll in time.
    UNJOINED = auto()
    # The request to join (epoch 0) is being sent.
    JOINING = auto()
    # The coordinator knows the member.
    STABLE = auto()
    # An error occurred that is not retriable; a changed subscription starts again.
    FATAL = auto()
    # The member is leaving or has left; this state is final.
    LEFT = auto()

    @property
    def is_member(self) -> bool:
        """Whether the coordinator may count the consumer as a member; then it sends heartbeats."""
        return self in (ShareMemberState.JOINING, ShareMemberState.STABLE)


class ShareMemberEvent(Enum):
    """Events that change the state of a member."""

    JOIN_STARTED = auto()
    # A heartbeat succeeded.
    ACCEPTED = auto()
    # A heartbeat was refused with UNKNOWN_MEMBER_ID or FENCED_MEMBER_EPOCH.
    FENCED = auto()
    # The user did not poll for max.poll.interval.ms.
    POLL_MISSED = auto()
    # A heartbeat failed with an error that is not retriable.
    FAILED = auto()
    SUBSCRIPTION_CHANGED = auto()
    LEFT = auto()


_S, _E = ShareMemberState, ShareMemberEvent
# The events that end a membership.
_ENDS = {
    _E.FENCED: _S.UNJOINED,
    _E.POLL_MISSED: _S.UNJOINED,
    _E.FAILED: _S.FATAL,
    _E.LEFT: _S.LEFT,
}
SHARE_MEMBER_STATES: Mapping[ShareMemberState, Mapping[ShareMemberEvent, ShareMemberState]] = {
    _S.UNJOINED: {_E.JOIN_STARTED: _S.JOINING, _E.LEFT: _S.LEFT},
    _S.JOINING: {_E.ACCEPTED: _S.STABLE, **_ENDS},
    _S.STABLE: {_E.ACCEPTED: _S.STABLE, **_ENDS},
    _S.FATAL: {_E.SUBSCRIPTION_CHANGED: _S.UNJOINED, _E.LEFT: _S.LEFT},
    _S.LEFT: {_E.LEFT: _S.LEFT},
}
