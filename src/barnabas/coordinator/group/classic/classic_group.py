"""The states of a classic group, its members, generation, leader and protocol (ClassicGroup).

The group has queries and maintains its invariants. `rebalance` drives the state changes:

      REBALANCE_STARTED               JOIN_COMPLETED
EMPTY -----------------> PREPARING  -----------------> COMPLETING
  ^                      REBALANCE  <----------------- REBALANCE
  |     ALL_MEMBERS_LEFT   |   ^    REBALANCE_STARTED      |
  +------------------------+   |                           | ASSIGNMENT_WRITTEN
                               |     REBALANCE_STARTED     v
                               +------------------------ STABLE
"""

from __future__ import annotations

import logging
from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from barnabas.coordinator.group.classic.classic_member import subscribed_topics
from barnabas.coordinator.group.group_base import PENDING_IDS_MAX, Group, pending_id_bytes
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.messages.groups import (
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupResponse,
)
from barnabas.waiting.state_machine import state_after

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.coordinator.group.classic.classic_member import ClassicMember, PendingResponse
    from barnabas.coordinator.group.group_base import GroupMemory


class GroupState(Enum):
    """The state of a classic group. Values are the names in the protocol."""

    # The group has no members. It may have committed offsets.
    EMPTY = "Empty"
    # Members rejoin, until all have joined or the rebalance timeout expires.
    PREPARING_REBALANCE = "PreparingRebalance"
    # A generation has started, and the coordinator waits for the leader's assignment.
    COMPLETING_REBALANCE = "CompletingRebalance"
    # The assignment of the generation is written.
    STABLE = "Stable"
    # Deleted, or coordinated by another broker. This state is final.
    DEAD = "Dead"


class GroupEvent(Enum):
    """An event that changes the state of a group. Values tell what triggers it."""

    REBALANCE_STARTED = (
        "a member joins, leaves, changes its subscription or misses a timeout; or the assignment "
        "cannot be written"
    )
    JOIN_COMPLETED = "all members have joined, or the rebalance timeout has expired"
    ALL_MEMBERS_LEFT = "no member is left when the rebalance ends"
    ASSIGNMENT_WRITTEN = "the leader's assignment is committed"
    REMOVED = "the group is deleted or expires, or this broker no longer coordinates it"


# Next state by event. An event that a state lacks cannot happen in it.
GROUP_STATES: dict[GroupState, dict[GroupEvent, GroupState]] = {
    GroupState.EMPTY: {
        GroupEvent.REBALANCE_STARTED: GroupState.PREPARING_REBALANCE,
        GroupEvent.REMOVED: GroupState.DEAD,
    },
    GroupState.PREPARING_REBALANCE: {
        GroupEvent.JOIN_COMPLETED: GroupState.COMPLETING_REBALANCE,
        GroupEvent.ALL_MEMBERS_LEFT: GroupState.EMPTY,
        GroupEvent.REMOVED: GroupState.DEAD,
    },
    GroupState.COMPLETING_REBALANCE: {
        GroupEvent.ASSIGNMENT_WRITTEN: GroupState.STABLE,
        GroupEvent.REBALANCE_STARTED: GroupState.PREPARING_REBALANCE,
        GroupEvent.REMOVED: GroupState.DEAD,
    },
    GroupState.STABLE: {
        GroupEvent.REBALANCE_STARTED: GroupState.PREPARING_REBALANCE,
        GroupEvent.REMOVED: GroupState.DEAD,
    },
    GroupState.DEAD: {},
}

_log = logging.getLogger(__name__)

CONSUMER_PROTOCOL_TYPE = "consumer"
NO_MEMBER_ID = ""
NO_GENERATION = -1
INT32_MAX = 0x7FFF_FFFF


class ClassicGroup(Group):
    """A classic group."""

    kind: ClassVar[str] = "classic"

    __slots__ = (
        "awaiting_join_count",
        "generation_id",
        "leader_id",
        "members",
        "new_member_added",
        "pending_join_members",
        "pending_sync_members",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp",
        "static_members",
        "subscribed_topics",
        "supporters",
    )

    def __init__(
        self, group_id: str, state: GroupState, state_timestamp: int, memory: GroupMemory
    ) -> None:
        super().__init__(group_id, memory)
        # The state and the state before it. Changed by `on_event` only.
        self.state = state
        self.previous_state = state
        # Time at which the state was entered (wall clock, ms); -1 if an old record lacks it.
        self.state_timestamp = state_timestamp
        # The current generation; 0 before the first. `next_generation` increments it, and wraps it
        # around to 0 after INT32_MAX.
        self.generation_id = 0
        # Protocol type of the first member since the group was empty. None in a group that never
        # had members.
        self.protocol_type: str | None = None
        # The assignment protocol of this generation. Selected by `next_generation`; None without a
        # generation. Invariant: all members of the generation support it.
        self.protocol_name: str | None = None
        # The member that assigns the partitions. Invariant: None exactly if there are no members,
        # else one of them.
        self.leader_id: str | None = None
        # Members by id, in the order in which they joined.
        self.members: dict[str, ClassicMember] = {}
        # Member id by instance id. Invariant: has exactly the static members.
        self.static_members: dict[str, str] = {}
        # Member ids that the coordinator issued and no member has used yet (KIP-394), oldest first.
        # Invariant: none of them is in `members`, and there are at most PENDING_IDS_MAX.
        self.pending_join_members: dict[str, None] = {}
        # Members that have not sent a SyncGroup in this generation. The rebalance adds them when
        # the generation starts. Invariant: a part of `members`.
        self.pending_sync_members: dict[str, None] = {}
        # Number of members with a pending JoinGroup. Changes together with their `awaiting_join`.
        self.awaiting_join_count = 0
        # Whether a member joined during the initial delay, which is then extended. The rebalance
        # resets it.
        self.new_member_added = False
        # Number of members that support each protocol, without zeros. Changes with the members.
        self.supporters: Counter[str] = Counter()
        # Topics that this generation subscribes to. Decoded by `compute_subscribed_topics`; None if
        # the subscriptions are unreadable or of another protocol type.
        self.subscribed_topics: frozenset[str] | None = None

    # State.

    def on_event(self, event: GroupEvent, now_ms: int) -> None:
        """Enter the state after an event. The transition table must allow the event."""
        after = state_after(f"group {self.group_id}", GROUP_STATES, self.state, event)
        self.previous_state = self.state
        self.state = after
        self.state_timestamp = now_ms
        self._check_state()

    def _check_state(self) -> None:
        """Assert what must hold when a state is entered."""
        members, protocol = self.members, self.protocol_name
        match self.state:
            case GroupState.EMPTY:
                is_valid = not (members or self.static_members or self.leader_id or protocol)
            case GroupState.PREPARING_REBALANCE:
                is_valid = not self.pending_sync_members
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                is_valid = (
                    self.leader_id in members
                    and protocol is not None
                    and self.supporters[protocol] == len(members)
                )
            case GroupState.DEAD:
                is_valid = True
        assert is_valid, (
            f"GroupStateMatchesMembers: group={self.group_id} state={self.state} "
            f"members={list(members)} static_members={self.static_members} "
            f"leader={self.leader_id} protocol={protocol} supporters={self.supporters} "
            f"pending_sync_members={list(self.pending_sync_members)}"
        )

    def is_in(self, *states: GroupState) -> bool:
        """Whether the group is in one of these states."""
        return self.state in states

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may start."""
        return GroupEvent.REBALANCE_STARTED in GROUP_STATES[self.state]

    @property
    def has_members(self) -> bool:
        """Whether the group is neither empty nor dead."""
        return not self.is_in(GroupState.EMPTY, GroupState.DEAD)

    @property
    def has_only_offsets(self) -> bool:
        """Whether the group never had members, and has no record of its own."""
        return self.is_in(GroupState.EMPTY) and self.protocol_type is None

    @property
    def is_of_consumers(self) -> bool:
        """Whether the members use the consumer protocol, whose subscriptions are readable."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def next_generation(self, now_ms: int) -> None:
        """Start a generation after all members have joined, and select its protocol."""
        self.generation_id = self.generation_id + 1 if self.generation_id < INT32_MAX else 0
        self.pending_sync_members.clear()
        self.protocol_name = self.select_protocol() if self.members else None
        self.compute_subscribed_topics()
        has_members = bool(self.members)
        event = GroupEvent.JOIN_COMPLETED if has_members else GroupEvent.ALL_MEMBERS_LEFT
        self.on_event(event, now_ms)

    # Members.

    def add(
        self,
        member: ClassicMember,
        awaiting_join: PendingResponse[JoinGroupResponse] | None = None,
    ) -> None:
        """Add a member whose protocols match the group. The first member becomes the leader."""
        identity = member.identity
        assert identity.member_id not in self.members, f"group={self.group_id} member={identity}"
        if identity.group_instance_id is not None:
            assert identity.group_instance_id not in self.static_members, (
                f"group={self.group_id} member={identity} static_members={self.static_members}"
            )
            self.static_members[identity.group_instance_id] = identity.member_id
        if not self.members:
            self.protocol_type = identity.protocol_type
        if self.leader_id is None:
            self.leader_id = identity.member_id
        self.members[identity.member_id] = member
        self._resize(member.held_bytes)
        self._support(member)
        self.remove_issued_id(identity.member_id)
        self._set_awaiting_join(member, awaiting_join)

    def remove(self, member_id: str) -> ClassicMember | None:
        """Remove a member or an issued id. Elect another leader if the member was the leader.

        A pending SyncGroup of the member gets its response. Its JoinGroup has no pending response.
        """
        member = self.members.pop(member_id, None)
        if member is not None:
            self._resize(-member.held_bytes)
            self._withdraw(member)
            self._set_awaiting_join(member, None)
            if member.identity.group_instance_id is not None:
                self.static_members.pop(member.identity.group_instance_id, None)
            self.complete_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.remove_issued_id(member_id)
        self.pending_sync_members.pop(member_id, None)
        return member

    def update(
        self,
        member: ClassicMember,
        wanted: ClassicMember,
        awaiting_join: PendingResponse[JoinGroupResponse] | None,
    ) -> None:
        """Update a member's protocols and timeouts from `wanted`.

        `awaiting_join` becomes the response of its pending JoinGroup, or None.
        """
        self._withdraw(member)
        self._resize(wanted.held_bytes - member.held_bytes)
        member.held_bytes = wanted.held_bytes
        member.protocols = wanted.protocols
        member.times = wanted.times
        self._support(member)
        self._set_awaiting_join(member, awaiting_join)

    def replace_static(self, old: ClassicMember, new: ClassicMember) -> None:
        """Replace a static member that rejoined under a new id.

        Pending requests of the old id get FENCED_INSTANCE_ID.
        """
        instance_id = old.identity.group_instance_id
        assert instance_id is not None, f"group={self.group_id} member={old.identity}"
        assert new.identity.group_instance_id == instance_id, (
            f"group={self.group_id} old={old.identity} new={new.identity}"
        )
        self.complete_join(
            old,
            JoinGroupResponse(
                error_code=ErrorCode.FENCED_INSTANCE_ID,
                protocol_name=None,
                leader=NO_MEMBER_ID,
                member_id=old.id,
                members=[],
            ),
        )
        self.complete_sync(old, ErrorCode.FENCED_INSTANCE_ID)
        self._withdraw(old)
        del self.members[old.id]
        self.members[new.id] = new
        self._resize(new.held_bytes - old.held_bytes)
        self._support(new)
        self.static_members[instance_id] = new.id
        if self.leader_id == old.id:
            self.leader_id = new.id
        if old.id in self.pending_sync_members:
            del self.pending_sync_members[old.id]
            self.pending_sync_members[new.id] = None

    def issue_member_id(self, member_id: str) -> None:
        """Issue a member id for a later JoinGroup."""
        self.pending_join_members[member_id] = None
        assert len(self.pending_join_members) <= PENDING_IDS_MAX, (
            f"Bounded: group={self.group_id} pending_join_members={len(self.pending_join_members)}"
        )
        self._resize(pending_id_bytes(member_id))

    def remove_issued_id(self, member_id: str) -> None:
        """Remove an issued id after a member has joined with it, or after its timeout."""
        if member_id in self.pending_join_members:
            del self.pending_join_members[member_id]
            self._resize(-pending_id_bytes(member_id))

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Return whether a request may act for this member.

        Returns:
            NONE, UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member now has the instance
            id.
        """
        if group_instance_id is not None:
            known = self.static_members.get(group_instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def has_static_member(self, group_instance_id: str) -> bool:
        """Whether a member has this instance id."""
        return group_instance_id in self.static_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """The largest rebalance timeout of all members."""
        return max((each.times.rebalance_timeout_ms for each in self.members.values()), default=0)

    @property
    def has_all_members_joined(self) -> bool:
        """Whether all members have joined and all issued ids are used."""
        return len(self.members) == self.awaiting_join_count and not self.pending_join_members

    def elect_joined_leader(self) -> bool:
        """Elect another leader if the current one has not joined.

        Returns:
            False if no member has joined.
        """
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].is_awaiting_join:
            return True
        for member in self.members.values():
            if member.is_awaiting_join:
                self.leader_id = member.id
                return True
        return False

    # Protocols.

    def supports_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols can join."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        return self.protocol_type == protocol_type and any(
            self.supporters[name] == len(self.members) for name in names
        )

    def select_protocol(self) -> str:
        """Return the protocol with the most votes among those that all members support."""
        count = len(self.members)
        # Protocols that all members support are also in the list of any one member.
        member = next(iter(self.members.values()))
        candidates = {name for name in member.protocols if self.supporters[name] == count}
        assert candidates, f"group={self.group_id} members={count} supporters={self.supporters}"
        if len(candidates) == 1:
            return candidates.pop()
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def compute_subscribed_topics(self) -> None:
        """Decode the subscriptions of this generation."""
        self.subscribed_topics = None
        if not self.is_of_consumers or (self.members and self.protocol_name is None):
            return
        topics: set[str] = set()
        try:
            for member in self.members.values():
                data = member.protocols[self.protocol_name or ""]
                topics.update(subscribed_topics(data))
        except ProtocolError as error:
            _log.warning(
                "A member's subscription is unreadable: group=%s error=%s", self.group_id, error
            )
            return
        self.subscribed_topics = frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members subscribe to the topic. True for consumers with unknown subscriptions."""
        if self.subscribed_topics is None:
            return self.is_of_consumers
        return topic in self.subscribed_topics

    def _support(self, member: ClassicMember) -> None:
        for name in member.protocols:
            self.supporters[name] += 1

    def _withdraw(self, member: ClassicMember) -> None:
        for name in member.protocols:
            self.supporters[name] -= 1
            if not self.supporters[name]:
                del self.supporters[name]

    # Responses.

    def join_response(self, member_id: str, *, with_members: bool) -> JoinGroupResponse:
        """Return the JoinGroup response of a member for this generation."""
        assert self.leader_id is not None, f"group={self.group_id} state={self.state}"
        return JoinGroupResponse(
            error_code=ErrorCode.NONE,
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader_id,
            member_id=member_id,
            members=self.described_members() if with_members else [],
        )

    def described_members(self) -> list[JoinGroupResponseMember]:
        """Return the member list that the leader needs for the assignment."""
        assert self.protocol_name is not None, f"group={self.group_id} state={self.state}"
        return [
            JoinGroupResponseMember(
                member_id=member.id,
                group_instance_id=member.identity.group_instance_id,
                metadata=member.protocols[self.protocol_name],
            )
            for member in self.members.values()
        ]

    def complete_join(self, member: ClassicMember, response: JoinGroupResponse) -> None:
        """Respond to the member's pending JoinGroup, if any."""
        pending = member.awaiting_join
        if pending is not None:
            member.awaiting_join = None
            self.awaiting_join_count -= 1
            assert self.awaiting_join_count >= 0, (
                f"group={self.group_id} awaiting_join_count={self.awaiting_join_count}"
            )
            pending.complete(response)

    def complete_sync(self, member: ClassicMember, error: ErrorCode) -> bool:
        """Respond to the member's pending SyncGroup, if any, with its assignment or the error."""
        pending = member.awaiting_sync
        if pending is None:
            return False
        member.awaiting_sync = None
        is_failed = error is not ErrorCode.NONE
        pending.complete(failed_sync(error) if is_failed else self.sync_response(member))
        return True

    def sync_response(self, member: ClassicMember) -> SyncGroupResponse:
        """Return the SyncGroup response with a member's assignment."""
        return SyncGroupResponse(
            error_code=ErrorCode.NONE,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    def end(self, now_ms: int, error: ErrorCode) -> None:
        self.on_event(GroupEvent.REMOVED, now_ms)
        for member in self.members.values():
            self.complete_join(member, failed_join(NO_MEMBER_ID, error))
            self.complete_sync(member, error)

    def _set_awaiting_join(
        self, member: ClassicMember, pending: PendingResponse[JoinGroupResponse] | None
    ) -> None:
        """Set the response of the pending JoinGroup.

        A previous pending JoinGroup gets its response first.
        """
        if member.awaiting_join is not None:
            error = ErrorCode.REBALANCE_IN_PROGRESS
            self.complete_join(member, failed_join(member.id, error))
        member.awaiting_join = pending
        if pending is not None:
            self.awaiting_join_count += 1


def failed_join(member_id: str, error: ErrorCode) -> JoinGroupResponse:
    """Return a failed JoinGroup response."""
    return JoinGroupResponse(
        error_code=error,
        generation_id=NO_GENERATION,
        protocol_name=None,
        leader=NO_MEMBER_ID,
        member_id=member_id,
        members=[],
    )


def failed_sync(error: ErrorCode) -> SyncGroupResponse:
    """Return a failed SyncGroup response."""
    return SyncGroupResponse(error_code=error, assignment=b"")
