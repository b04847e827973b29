"""State of a member of a classic group: two state machines, and the fields that change with them.

`MEMBER_STATES` is the state of the member as the coordinator sees it, with Kafka's names.
`JOIN_STEPS` is the next step of `poll` towards a join: match the pattern, give partitions up, send
JoinGroup, apply the assignment. Both machines receive the same events. A lost generation interrupts
every step: the partitions may belong to other members, so they are given up again before the next
JoinGroup.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from barnabas.waiting.state_machine import StateMachine

if TYPE_CHECKING:
    from collections.abc import Mapping


__all__ = [
    "JOIN_STEPS",
    "MEMBER_STATES",
    "ClassicMemberState",
    "ClassicMemberStatus",
    "JoinEvent",
    "JoinStep",
]

_NO_GENERATION = -1
_NO_MEMBER = ""


class ClassicMemberState(enum.Enum):
    """The member as the coordinator sees it. Heartbeats are sent in the last two states."""

    # The member has no generation.
    UNJOINED = "unjoined"
    # JoinGroup was sent and has not succeeded.
    PREPARING_REBALANCE = "preparing rebalance"
    # JoinGroup succeeded; SyncGroup has not.
    COMPLETING_REBALANCE = "completing rebalance"
    # The member has an assignment of its generation.
    STABLE = "stable"


class JoinStep(enum.Enum):
    """The next step of `poll` when the member must join."""

    MATCH_PATTERN = "match the pattern against fresh metadata"
    GIVE_UP_PARTITIONS = "give up partitions"
    SEND_JOIN = "send JoinGroup"
    # JoinGroup was sent; the assignment, or an error, is pending or not applied yet.
    APPLY_ASSIGNMENT = "apply the assignment"
    # The same, but the generation was lost meanwhile.
    APPLY_AFTER_LOSS = "apply the assignment of a lost generation"
    # The member is leaving or was stopped; this step is final.
    STOPPED = "stopped"


class JoinEvent(enum.Enum):
    """Events that change the state or the step of a member."""

    PATTERN_MATCHED = enum.auto()
    # The step that gives partitions up has started; an exception in it does not repeat it.
    GIVE_UP_STARTED = enum.auto()
    JOIN_SENT = enum.auto()
    # The coordinator requires JoinGroup to contain the member id that it assigned (KIP-394).
    MEMBER_ID_ASSIGNED = enum.auto()
    JOINED = enum.auto()
    SYNCED = enum.auto()
    ASSIGNMENT_APPLIED = enum.auto()
    # JoinGroup or SyncGroup failed, or the assignment cannot be read.
    JOIN_FAILED = enum.auto()
    # The assignment has topics that are not subscribed to.
    ASSIGNMENT_REJECTED = enum.auto()
    # The group removed the member, or the member left because the user did not poll.
    GENERATION_LOST = enum.auto()
    STOPPED = enum.auto()


_S, _J, _E = ClassicMemberState, JoinStep, JoinEvent
MEMBER_STATES: Mapping[ClassicMemberState, Mapping[JoinEvent, ClassicMemberState]] = {
    _S.UNJOINED: {
        _E.JOIN_SENT: _S.PREPARING_REBALANCE,
        _E.MEMBER_ID_ASSIGNED: _S.UNJOINED,
        _E.GENERATION_LOST: _S.UNJOINED,
    },
    _S.PREPARING_REBALANCE: {
        _E.JOIN_SENT: _S.PREPARING_REBALANCE,
        _E.MEMBER_ID_ASSIGNED: _S.PREPARING_REBALANCE,
        _E.JOINED: _S.COMPLETING_REBALANCE,
        _E.GENERATION_LOST: _S.UNJOINED,
    },
    _S.COMPLETING_REBALANCE: {
        _E.JOIN_SENT: _S.PREPARING_REBALANCE,
        _E.SYNCED: _S.STABLE,
        _E.GENERATION_LOST: _S.UNJOINED,
    },
    _S.STABLE: {
        _E.JOIN_SENT: _S.PREPARING_REBALANCE,
        _E.GENERATION_LOST: _S.UNJOINED,
    },
}
JOIN_STEPS: Mapping[JoinStep, Mapping[JoinEvent, JoinStep]] = {
    _J.MATCH_PATTERN: {
        _E.PATTERN_MATCHED: _J.GIVE_UP_PARTITIONS,
        _E.GENERATION_LOST: _J.MATCH_PATTERN,
        _E.STOPPED: _J.STOPPED,
    },
    _J.GIVE_UP_PARTITIONS: {
        _E.GIVE_UP_STARTED: _J.SEND_JOIN,
        _E.GENERATION_LOST: _J.GIVE_UP_PARTITIONS,
        _E.STOPPED: _J.STOPPED,
    },
    _J.SEND_JOIN: {
        _E.JOIN_SENT: _J.APPLY_ASSIGNMENT,
        _E.GENERATION_LOST: _J.GIVE_UP_PARTITIONS,
        _E.STOPPED: _J.STOPPED,
    },
    _J.APPLY_ASSIGNMENT: {
        _E.ASSIGNMENT_APPLIED: _J.MATCH_PATTERN,
        _E.JOIN_FAILED: _J.SEND_JOIN,
        _E.ASSIGNMENT_REJECTED: _J.GIVE_UP_PARTITIONS,
        _E.GENERATION_LOST: _J.APPLY_AFTER_LOSS,
        _E.STOPPED: _J.STOPPED,
    },
    _J.APPLY_AFTER_LOSS: {
        _E.ASSIGNMENT_APPLIED: _J.MATCH_PATTERN,
        _E.JOIN_FAILED: _J.GIVE_UP_PARTITIONS,
        _E.ASSIGNMENT_REJECTED: _J.GIVE_UP_PARTITIONS,
        _E.GENERATION_LOST: _J.APPLY_AFTER_LOSS,
        _E.STOPPED: _J.STOPPED,
    },
    _J.STOPPED: {_E.GENERATION_LOST: _J.STOPPED, _E.STOPPED: _J.STOPPED},
}


class ClassicMemberStatus:
    """The two states of a member and the fields that change with them; a method per transition."""

    __slots__ = (
        "_generation_id",
        "_member_id",
        "_protocol_name",
        "_rejoin_reason",
        "_states",
        "_steps",
    )

    def __init__(self) -> None:
        self._states = StateMachine("member", ClassicMemberState.UNJOINED, MEMBER_STATES)
        self._steps = StateMachine("join", JoinStep.MATCH_PATTERN, JOIN_STEPS)
        # The generation, from the JoinGroup response; -1 without one. Invariant: -1 in state
        # UNJOINED.
        self._generation_id = _NO_GENERATION
        # The id that the coordinator assigned; empty before the first join and after the group
        # removed the member. It outlives the generation if the coordinator may still know it.
        self._member_id = _NO_MEMBER
        # The assignor that the group chose, from the JoinGroup response; None without a generation.
        self._protocol_name: str | None = None
        # Why the next poll rejoins, for the coordinator's log (KIP-800); None if it does not.
        self._rejoin_reason: str | None = ""

    @property
    def state(self) -> ClassicMemberState:
        """The member as the coordinator sees it."""
        return self._states.state

    @property
    def step(self) -> JoinStep:
        """The next step of `poll` when the member must join."""
        return self._steps.state

    @property
    def generation_id(self) -> int:
        """The generation; -1 without one."""
        return self._generation_id

    @property
    def member_id(self) -> str:
        """The id that the coordinator assigned; empty if it does not know the member."""
        return self._member_id

    @property
    def protocol_name(self) -> str | None:
        """The assignor that the group chose; None without a generation."""
        return self._protocol_name

    @property
    def rejoin_reason(self) -> str | None:
        """Why the next poll rejoins; None if it does not."""
        return self._rejoin_reason

    @property
    def is_reset(self) -> bool:
        """Whether the member has no generation; then other members may own its partitions."""
        return self._generation_id == _NO_GENERATION or self._member_id == _NO_MEMBER

    @property
    def is_rebalancing(self) -> bool:
        """Whether a JoinGroup or SyncGroup request is in flight."""
        return self.state in (
            ClassicMemberState.PREPARING_REBALANCE,
            ClassicMemberState.COMPLETING_REBALANCE,
        )

    @property
    def is_stopped(self) -> bool:
        """Whether the member is leaving or was stopped."""
        return self.step is JoinStep.STOPPED

    def on_pattern_matched(self) -> None:
        """Continue with giving up partitions: the pattern was matched against fresh metadata."""
        self._steps.on(JoinEvent.PATTERN_MATCHED)

    def on_give_up_started(self) -> None:
        """Continue with JoinGroup after the step that gives partitions up, which starts now."""
        self._steps.on(JoinEvent.GIVE_UP_STARTED)

    def on_join_sent(self) -> None:
        """Enter PREPARING_REBALANCE: JoinGroup is being sent."""
        self._steps.on(JoinEvent.JOIN_SENT)
        self._states.on(JoinEvent.JOIN_SENT)

    def on_joined(self, generation_id: int, member_id: str, protocol_name: str | None) -> None:
        """Enter COMPLETING_REBALANCE: JoinGroup succeeded."""
        assert generation_id >= 0, f"generation {generation_id} of {member_id!r}"
        assert member_id, f"no member id in generation {generation_id}"
        self._states.on(JoinEvent.JOINED)
        self._generation_id = generation_id
        self._member_id = member_id
        self._protocol_name = protocol_name

    def on_synced(self) -> None:
        """Enter STABLE: SyncGroup succeeded."""
        self._states.on(JoinEvent.SYNCED)
        self._rejoin_reason = None

    def on_member_id(self, member_id: str) -> None:
        """Store the member id that the coordinator requires in the next JoinGroup (KIP-394)."""
        self._states.on(JoinEvent.MEMBER_ID_ASSIGNED)
        self._generation_id = _NO_GENERATION
        self._member_id = member_id
        self._protocol_name = None
        self.request_rejoin(f"need to re-join with the given member-id: {member_id}")

    def on_join_failed(self) -> None:
        """Repeat JoinGroup in a later poll."""
        self._steps.on(JoinEvent.JOIN_FAILED)

    def on_assignment_rejected(self, reason: str) -> None:
        """Give up partitions and rejoin, because the assignment has other topics."""
        self._steps.on(JoinEvent.ASSIGNMENT_REJECTED)
        self.request_rejoin(reason)

    def on_assignment_applied(self) -> None:
        """End the join; the next one begins with the pattern."""
        self._steps.on(JoinEvent.ASSIGNMENT_APPLIED)

    def request_rejoin(self, reason: str) -> None:
        """Rejoin with the next poll; a later reason replaces an earlier one."""
        self._rejoin_reason = reason

    def reset(self, reason: str, *, keep_member_id: bool = False) -> None:
        """Enter UNJOINED: the generation and the partitions are lost, and the member rejoins.

        Args:
            reason: The reason, for the coordinator's log.
            keep_member_id: Whether the coordinator may still know the member.
        """
        self._states.on(JoinEvent.GENERATION_LOST)
        self._steps.on(JoinEvent.GENERATION_LOST)
        self._generation_id = _NO_GENERATION
        self._protocol_name = None
        if not keep_member_id:
            self._member_id = _NO_MEMBER
        self.request_rejoin(reason)

    def stop(self) -> None:
        """Start no further step of a join; the state of the member stays for LeaveGroup."""
        self._steps.on(JoinEvent.STOPPED)
