"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic groups, by Kafka's rules.

Dynamic members get an id before they join (KIP-394). Members may be static (KIP-345). Clients may
give a reason for joining or leaving (KIP-800). A returning static leader keeps the assignment
(KIP-814). Protocol type and name are checked (KIP-559).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from barnabas.coordinator.group.classic.classic_group import (
    NO_MEMBER_ID,
    ClassicGroup,
    GroupState,
    failed_join,
    failed_sync,
)
from barnabas.coordinator.group.classic.classic_member import (
    ClassicMember,
    MemberIdentity,
    MemberTimes,
)
from barnabas.coordinator.group.classic.group_record import (
    empty_group,
    group_record,
    new_group_record,
)
from barnabas.coordinator.group.classic.rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS, nothing
from barnabas.coordinator.group.group_base import PENDING_IDS_MAX, member_bytes
from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.coordinator.runtime.responses import client_error
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import MemberResponse
from barnabas.protocol.primitives import STRING_BYTES_MAX

if TYPE_CHECKING:
    from barnabas.coordinator.group.classic.classic_member import PendingResponse
    from barnabas.coordinator.group.classic.rebalance import Rebalance, Written
    from barnabas.coordinator.group.group_map import GroupMap
    from barnabas.protocol.messages.groups import (
        HeartbeatRequest,
        JoinGroupRequest,
        JoinGroupResponse,
        LeaveGroupRequest,
        MemberIdentity as LeavingMember,
        SyncGroupRequest,
        SyncGroupResponse,
    )
    from barnabas.runtime.rng import Rng


class ClientIdentity(msgspec.Struct, frozen=True):
    """The client that sent a request."""

    client_id: str
    # Starts with a slash, as Java prints addresses.
    host: str


class JoinRequest(msgspec.Struct, frozen=True):
    """One JoinGroup request, its client and its response."""

    request: JoinGroupRequest
    version: int
    client: ClientIdentity
    response: PendingResponse[JoinGroupResponse]

    def refuse(self, member_id: str, error: ErrorCode) -> None:
        """Respond with an error."""
        self.response.complete(failed_join(member_id, error))

    def protocols(self) -> dict[str, bytes]:
        """Return the subscriptions by protocol. For a repeated name, the first one counts."""
        found: dict[str, bytes] = {}
        for each in self.request.protocols:
            found.setdefault(each.name, each.metadata)
        return found

    def held_bytes(self, member_id: str) -> int:
        """Return the memory accounting of the member that the request describes."""
        return member_bytes(self._identity(member_id).length, self.protocols())

    def member(self, member_id: str) -> ClassicMember:
        """Return the member that the request describes."""
        request = self.request
        times = MemberTimes(request.session_timeout_ms, request.rebalance_timeout_ms)
        return ClassicMember(self._identity(member_id), times, self.protocols())

    def _identity(self, member_id: str) -> MemberIdentity:
        request, client = self.request, self.client
        return MemberIdentity(
            member_id,
            request.group_instance_id,
            client.client_id,
            client.host,
            request.protocol_type,
        )


_log = logging.getLogger(__name__)

_MEMBER_ID_REQUIRED_SINCE = 4
_SKIP_ASSIGNMENT_SINCE = 9
_REASON_LENGTH_MAX = 255
# Length limit of a prefix: a member id adds a hyphen and a UUID, and must fit a protocol string.
_ID_PREFIX_BYTES_MAX = STRING_BYTES_MAX - 37


class ClassicMembership:
    """The requests of members. Each method returns the records to write.

    JoinGroup and SyncGroup complete their `PendingResponse`, now or in a later event. Heartbeat and
    LeaveGroup return their response.
    """

    __slots__ = ("_classic", "_group_size_max", "_groups", "_rebalance", "_rng")

    def __init__(
        self, groups: GroupMap, rebalance: Rebalance, rng: Rng, group_size_max: int
    ) -> None:
        self._groups = groups
        self._classic = groups.of(ClassicGroup)
        self._rebalance = rebalance
        self._rng = rng
        # group.max.size.
        self._group_size_max = group_size_max

    # JoinGroup.

    def join(self, joining: JoinRequest) -> Written:
        """Add or update a member. The response follows when the next generation starts.

        A request without a member id may create the group.
        """
        request = joining.request
        group = self._classic.find(request.group_id)
        if group is not None:
            return self._join_group(group, joining)
        if request.member_id != NO_MEMBER_ID:
            joining.refuse(request.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
            return nothing()
        group = empty_group(request.group_id, self._groups)
        self._groups.add(group)
        result = self._join_group(group, joining)
        # The initial delay has started: no generation follows at once.
        assert not result.records, f"group={group.group_id} records={result.records}"
        return CoordinatorResult(
            None,
            [new_group_record(group)],
            is_replayed=False,
            on_appended=partial(self._on_new_group_written, group),
        )

    def _on_new_group_written(self, group: ClassicGroup, error: ErrorCode) -> None:
        """Remove a new group whose record could not be written."""
        if error is not ErrorCode.NONE and self._groups.find(group.group_id) is group:
            self._groups.remove(group, client_error(error))

    def _join_group(self, group: ClassicGroup, joining: JoinRequest) -> Written:
        member_id = joining.request.member_id
        error = self._check_room(group, joining)
        if error is ErrorCode.GROUP_MAX_SIZE_REACHED:
            group.remove(member_id)
            joining.refuse(NO_MEMBER_ID, error)
            return self._rebalance.maybe_complete_join(group)
        if error is not ErrorCode.NONE:
            joining.refuse(member_id, error)
            return nothing()
        names = [each.name for each in joining.request.protocols]
        if not group.supports_protocols(joining.request.protocol_type, names):
            joining.refuse(member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return nothing()
        if member_id == NO_MEMBER_ID:
            return self._join_new(group, joining)
        return self._join_known(group, joining)

    def _check_room(self, group: ClassicGroup, joining: JoinRequest) -> ErrorCode:
        member_id, instance_id = joining.request.member_id, joining.request.group_instance_id
        if not self._has_room(group, member_id):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if instance_id is not None:
            member_id = group.static_members.get(instance_id, member_id)
        known = group.members.get(member_id)
        growth = joining.held_bytes(member_id) - (0 if known is None else known.held_bytes)
        return group.memory.check(group.held_bytes, growth)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether the group has room for one more member within group.max.size.

        The limit may have decreased. Then the first members that rejoin keep their places.
        """
        size_max = self._group_size_max
        match group.state:
            case GroupState.EMPTY | GroupState.DEAD:
                return True
            case GroupState.PREPARING_REBALANCE:
                member = group.members.get(member_id)
                if member is not None and member.is_awaiting_join:
                    return True
                return group.awaiting_join_count < size_max
            case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
                return member_id in group.members or len(group.members) < size_max

    def _join_new(self, group: ClassicGroup, joining: JoinRequest) -> Written:
        instance_id = joining.request.group_instance_id
        prefix = joining.client.client_id if instance_id is None else instance_id
        if len(prefix.encode()) > _ID_PREFIX_BYTES_MAX:
            # Kafka returns this error, since its response cannot carry such an id.
            joining.refuse(NO_MEMBER_ID, ErrorCode.UNKNOWN_SERVER_ERROR)
            return nothing()
        new_id = f"{prefix}-{_uuid_text(self._rng.uuid())}"
        if instance_id is not None:
            old_id = group.static_members.get(instance_id)
            if old_id is None:
                return self._add(group, joining, new_id)
            _log.info(
                "A static member rejoins with a new id: group=%s instance=%s old_id=%s new_id=%s",
                group.group_id,
                instance_id,
                old_id,
                new_id,
            )
            return self._replace_static(group, joining, group.members[old_id], new_id)
        if joining.version < _MEMBER_ID_REQUIRED_SINCE:
            return self._add(group, joining, new_id)
        if len(group.pending_join_members) >= PENDING_IDS_MAX:
            oldest = next(iter(group.pending_join_members))
            group.remove_issued_id(oldest)
            self._rebalance.end_session(group, oldest)
        group.issue_member_id(new_id)
        timeout_ms = joining.request.session_timeout_ms
        self._rebalance.start_session(group, new_id, timeout_ms)
        joining.refuse(new_id, ErrorCode.MEMBER_ID_REQUIRED)
        return nothing()

    def _join_known(self, group: ClassicGroup, joining: JoinRequest) -> Written:
        request = joining.request
        member_id = request.member_id
        if member_id in group.pending_join_members:
            if request.group_instance_id is not None:
                # Static members get no issued id, so the id belongs to another client.
                joining.refuse(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
                return nothing()
            return self._add(group, joining, member_id)
        error = group.check_member(member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            joining.refuse(member_id, error)
            return nothing()
        member = group.members[member_id]
        is_leader = group.leader_id == member_id
        is_same = member.matches(joining.protocols())
        match group.state:
            case GroupState.COMPLETING_REBALANCE if is_same:
                # The member has missed the response.
                joining.response.complete(group.join_response(member_id, with_members=is_leader))
                return nothing()
            case GroupState.STABLE if is_same and not is_leader:
                joining.response.complete(group.join_response(member_id, with_members=False))
                return nothing()
            case GroupState.EMPTY | GroupState.DEAD:
                joining.refuse(member_id, ErrorCode.UNKNOWN_MEMBER_ID)
                return nothing()
            case _:
                # A leader rejoins to request a rebalance, for reasons that only the leader knows.
                group.update(member, joining.member(member_id), joining.response)
                subject = "leader" if is_leader and is_same else "member"
                return self._rebalance.prepare_or_complete_join(
                    group, f"{subject} {member_id} rejoins; {_reason(request.reason)}"
                )

    def _add(self, group: ClassicGroup, joining: JoinRequest, member_id: str) -> Written:
        member = joining.member(member_id)
        member.is_new = True
        if group.is_in(GroupState.PREPARING_REBALANCE) and group.previous_state is GroupState.EMPTY:
            group.new_member_added = True
        group.add(member, joining.response)
        # A new member has no id for heartbeats, and a client that retries leaves this member
        # behind. So its waiting time is limited.
        self._rebalance.start_session(group, member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        return self._rebalance.prepare_or_complete_join(
            group, f"new member {member_id} joins; {_reason(joining.request.reason)}"
        )

    def _replace_static(
        self, group: ClassicGroup, joining: JoinRequest, old: ClassicMember, new_id: str
    ) -> Written:
        """Replace a returning static member. In a stable group it keeps its assignment."""
        old_leader_id = group.leader_id
        # As in Kafka, the member keeps the client id and host of its first JoinGroup.
        identity = replace(old.identity, member_id=new_id)
        wanted = joining.member(new_id)
        new = ClassicMember(identity, wanted.times, wanted.protocols, old.assignment)
        group.replace_static(old, new)
        self._rebalance.end_session(group, old.id)
        self._rebalance.restart_session(group, new)
        group.update(new, new, joining.response)
        reason = f"static member {new_id} rejoins; {_reason(joining.request.reason)}"
        match group.state:
            case GroupState.STABLE if group.protocol_name == group.select_protocol():
                assignments = {each.id: each.assignment for each in group.members.values()}
                return CoordinatorResult(
                    None,
                    [group_record(group, assignments)],
                    is_replayed=False,
                    on_appended=partial(
                        self._on_replacement_written, group, joining, (old, new), old_leader_id
                    ),
                )
            case GroupState.STABLE:
                return self._rebalance.prepare_or_complete_join(group, reason)
            case GroupState.COMPLETING_REBALANCE:
                # The leader may have received the old id, and would assign partitions to it.
                return self._rebalance.prepare(group, reason)
            case _:
                return self._rebalance.maybe_complete_join(group)

    def _on_replacement_written(
        self,
        group: ClassicGroup,
        joining: JoinRequest,
        members: tuple[ClassicMember, ClassicMember],
        old_leader_id: str | None,
        error: ErrorCode,
    ) -> None:
        old, new = members
        if group.members.get(new.id) is not new or not new.is_awaiting_join:
            # The member was removed or replaced again during the write.
            return
        if not group.is_in(GroupState.STABLE):
            # A rebalance has started. Its completion sends the response.
            return
        if error is not ErrorCode.NONE:
            group.complete_join(new, failed_join(NO_MEMBER_ID, client_error(error)))
            group.replace_static(new, old)
            self._rebalance.end_session(group, new.id)
            self._rebalance.restart_session(group, old)
            return
        is_leader = group.leader_id == new.id
        if joining.version >= _SKIP_ASSIGNMENT_SINCE:
            response = group.join_response(new.id, with_members=is_leader)
            response.skip_assignment = is_leader
        else:
            # A member that sees itself as leader would assign again: send the leader's former id.
            response = group.join_response(new.id, with_members=False)
            response.leader = old_leader_id or NO_MEMBER_ID
        group.complete_join(new, response)

    # SyncGroup.

    def sync(
        self, request: SyncGroupRequest, response: PendingResponse[SyncGroupResponse]
    ) -> Written:
        """Respond with the assignment after the leader's assignment is written."""
        group = self._classic.find(request.group_id)
        if group is None:
            response.complete(failed_sync(ErrorCode.UNKNOWN_MEMBER_ID))
            return nothing()
        member_id = request.member_id
        error = _check_sync(group, request)
        if error is not ErrorCode.NONE:
            response.complete(failed_sync(error))
            return nothing()
        member = group.members[member_id]
        self._rebalance.note_sync(group, member_id)
        if group.is_in(GroupState.STABLE):
            response.complete(group.sync_response(member))
            return nothing()
        # If the member already has a pending SyncGroup, that request gets its response first.
        group.complete_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.awaiting_sync = response
        if group.leader_id != member_id:
            return nothing()
        assignments = {each.member_id: each.assignment for each in request.assignments}
        return self._rebalance.write_assignment(group, assignments)

    # Heartbeat.

    def heartbeat(self, group: ClassicGroup, request: HeartbeatRequest) -> ErrorCode:
        """Restart the member's session. REBALANCE_IN_PROGRESS tells the member to rejoin."""
        error = group.check_member(request.member_id, request.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        if request.generation_id != group.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        assert group.has_members, f"group={group.group_id} state={group.state}"
        self._rebalance.restart_session(group, group.members[request.member_id])
        if group.is_in(GroupState.PREPARING_REBALANCE):
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # LeaveGroup.

    def leave(self, request: LeaveGroupRequest) -> CoordinatorResult[list[MemberResponse]]:
        """Remove members by member id, or (for administrators) by instance id."""
        group = self._classic.find(request.group_id)
        if group is None:
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            return CoordinatorResult([_left(each, unknown) for each in request.members])
        responses: list[MemberResponse] = []
        removed: list[str] = []
        for each in request.members:
            error = self._leave_one(group, each)
            responses.append(_left(each, error))
            if error is ErrorCode.NONE:
                removed.append(f"{each.member_id or each.group_instance_id} {_reason(each.reason)}")
        if not removed:
            return CoordinatorResult(responses)
        written = self._rebalance.after_removal(group, f"members left: {', '.join(removed)}")
        return CoordinatorResult(
            responses, written.records, is_replayed=False, on_appended=written.on_appended
        )

    def _leave_one(self, group: ClassicGroup, leaving: LeavingMember) -> ErrorCode:
        member_id, instance_id = leaving.member_id, leaving.group_instance_id
        if member_id == NO_MEMBER_ID:
            if instance_id is None or not group.has_static_member(instance_id):
                return ErrorCode.UNKNOWN_MEMBER_ID
            member_id = group.static_members[instance_id]
        elif member_id not in group.pending_join_members:
            error = group.check_member(member_id, instance_id)
            if error is not ErrorCode.NONE:
                return error
        self._rebalance.end_session(group, member_id)
        member = group.members.get(member_id)
        if member is not None:
            group.complete_join(member, failed_join(NO_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member_id)
        return ErrorCode.NONE


def _left(leaving: LeavingMember, error: ErrorCode) -> MemberResponse:
    return MemberResponse(
        member_id=leaving.member_id,
        group_instance_id=leaving.group_instance_id,
        error_code=error,
    )


def _check_sync(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if _differ(request.protocol_type, group.protocol_type) or _differ(
        request.protocol_name, group.protocol_name
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.is_in(GroupState.PREPARING_REBALANCE):
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE if group.has_members else ErrorCode.UNKNOWN_MEMBER_ID


def _differ(requested: str | None, known: str | None) -> bool:
    """Whether both values are given and differ."""
    return requested is not None and known is not None and requested != known


def _reason(text: str | None) -> str:
    """Return the client's reason (KIP-800), formatted for the log."""
    if not text:
        return "no reason given"
    return f"reason {text[:_REASON_LENGTH_MAX]!r}"


def _uuid_text(value: bytes) -> str:
    digits = value.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
