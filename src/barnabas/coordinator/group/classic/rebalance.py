"""Rebalances and session timers of classic groups.

Kafka: the classic part of GroupMetadataManager. Requests (`membership`) and timers call it. Methods
return the records to write, mostly none. Groups change at once, before their records are committed.
After a failover, the new leader has the state of the committed records, and members with a newer
state rejoin.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinator.group.classic.classic_group import GroupEvent, GroupState, failed_join
from barnabas.coordinator.group.classic.classic_member import NO_ASSIGNMENT
from barnabas.coordinator.group.classic.group_record import group_record
from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.coordinator.runtime.responses import client_error
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.coordinator.group.classic.classic_group import ClassicGroup
    from barnabas.coordinator.group.classic.classic_member import ClassicMember
    from barnabas.coordinator.group.group_base import GroupMetrics
    from barnabas.coordinator.group.group_config import GroupCoordinatorConfig
    from barnabas.coordinator.group.group_map import GroupsOfKind
    from barnabas.coordinator.runtime.shard import ShardTimers
    from barnabas.runtime.clock import Clock

    Written = CoordinatorResult[None]

_log = logging.getLogger(__name__)

# Maximum time that a JoinGroup of a new member is pending (Kafka's constant).
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000

# Minimum delay before the next attempt if no member rejoins, since rebalance timeouts may be 0.
_AGAIN_MS_MIN = 1_000


def nothing() -> Written:
    """Return a result without records."""
    return CoordinatorResult(None)


class Rebalance:
    """Performs the state changes of groups."""

    __slots__ = ("_clock", "_config", "_groups", "_metrics", "_timers")

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        timers: ShardTimers,
        clock: Clock,
        metrics: GroupMetrics,
        groups: GroupsOfKind[ClassicGroup],
    ) -> None:
        self._config = config
        self._timers = timers
        self._clock = clock
        self._metrics = metrics
        # A timer finds its group by id, since the group may have been recreated.
        self._groups = groups

    # Start of a rebalance.

    def prepare_or_complete_join(self, group: ClassicGroup, reason: str) -> Written:
        """Start a rebalance, or complete the current one, after a member has changed."""
        if group.can_rebalance:
            return self.prepare(group, reason)
        return self.maybe_complete_join(group)

    def prepare(self, group: ClassicGroup, reason: str) -> Written:
        """Start a rebalance, in which all members rejoin.

        The first members of an empty group wait for more members.
        """
        if group.is_in(GroupState.COMPLETING_REBALANCE):
            self.propagate_error(group, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync_members.clear()
        self._timers.cancel(_sync_key(group))
        _log.info(
            "A rebalance starts: group=%s generation=%d state=%s reason=%s",
            group.group_id,
            group.generation_id,
            group.state.value,
            reason,
        )
        is_first = group.is_in(GroupState.EMPTY)
        group.on_event(GroupEvent.REBALANCE_STARTED, self._clock.wall_ms())
        if not is_first:
            return self._complete_join_or_wait(group)
        delay_ms = self._config.group_initial_rebalance_delay_ms
        left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        self._wait_initially(group, delay_ms, left_ms)
        return nothing()

    def _wait_initially(self, group: ClassicGroup, delay_ms: int, left_ms: int) -> None:
        self._timers.schedule(
            _join_key(group),
            delay_ms,
            partial(self._on_initial_delay, group.group_id, delay_ms, left_ms),
        )

    def _on_initial_delay(self, group_id: str, delay_ms: int, left_ms: int) -> Written:
        """Extend the initial delay if a member joined, up to the rebalance timeout in total."""
        group = self._groups.find(group_id)
        if group is None or not group.is_in(GroupState.PREPARING_REBALANCE):
            return nothing()
        if not group.new_member_added or left_ms == 0:
            return self.complete_join(group)
        group.new_member_added = False
        again_ms = min(self._config.group_initial_rebalance_delay_ms, left_ms)
        self._wait_initially(group, again_ms, max(left_ms - delay_ms, 0))
        return nothing()

    def _complete_join_or_wait(self, group: ClassicGroup) -> Written:
        if group.has_all_members_joined:
            return self.complete_join(group)
        self._limit_join(group)
        return nothing()

    def _limit_join(self, group: ClassicGroup, at_least_ms: int = 0) -> None:
        self._timers.schedule(
            _join_key(group),
            max(group.rebalance_timeout_ms, at_least_ms),
            partial(self._on_join_timeout, group.group_id),
        )

    # End of the join phase: all members have joined, or the timeout has expired.

    def maybe_complete_join(self, group: ClassicGroup) -> Written:
        """Complete the join phase if all members have joined. The initial delay still applies."""
        if (
            group.is_in(GroupState.PREPARING_REBALANCE)
            and group.has_all_members_joined
            and group.previous_state is not GroupState.EMPTY
        ):
            return self.complete_join(group)
        return nothing()

    def _on_join_timeout(self, group_id: str) -> Written:
        group = self._groups.find(group_id)
        if group is None or not group.is_in(GroupState.PREPARING_REBALANCE):
            return nothing()
        return self.complete_join(group)

    def complete_join(self, group: ClassicGroup) -> Written:
        """Start a generation with the joined members and the absent static members."""
        self._timers.cancel(_join_key(group))
        self._drop_absent(group)
        if not group.elect_joined_leader() and group.members:
            _log.warning(
                "No member rejoins a rebalance: group=%s members=%d",
                group.group_id,
                len(group.members),
            )
            self._limit_join(group, _AGAIN_MS_MIN)
            return nothing()
        group.next_generation(self._clock.wall_ms())
        if group.is_in(GroupState.EMPTY):
            _log.info(
                "A group is empty: group=%s generation=%d", group.group_id, group.generation_id
            )
            return self._written(group)
        _log.info(
            "A generation starts: group=%s generation=%d members=%d",
            group.group_id,
            group.generation_id,
            len(group.members),
        )
        for member in group.members.values():
            is_leader = member.id == group.leader_id
            group.complete_join(member, group.join_response(member.id, with_members=is_leader))
            self.restart_session(group, member)
            member.is_new = False
            group.pending_sync_members[member.id] = None
        self._timers.schedule(
            _sync_key(group),
            group.rebalance_timeout_ms,
            partial(self._on_sync_timeout, group.group_id, group.generation_id),
        )
        return nothing()

    def _drop_absent(self, group: ClassicGroup) -> None:
        absent = [
            member.id
            for member in group.members.values()
            if not member.is_awaiting_join and not member.is_static
        ]
        for member_id in absent:
            group.remove(member_id)
            self.end_session(group, member_id)
        if absent:
            _log.info(
                "Members did not rejoin in time: group=%s members=%s",
                group.group_id,
                ", ".join(absent),
            )

    def _written(self, group: ClassicGroup) -> Written:
        """Return the record of a group that became empty.

        If the record is lost, the sessions expire again on the next coordinator.
        """
        return CoordinatorResult(None, [group_record(group, {})], is_replayed=False)

    # Assignments.

    def write_assignment(self, group: ClassicGroup, assignments: dict[str, bytes]) -> Written:
        """Write the leader's assignment, then send it to the members."""
        complete = {
            member_id: assignments.get(member_id, NO_ASSIGNMENT) for member_id in group.members
        }
        return CoordinatorResult(
            None,
            [group_record(group, complete)],
            is_replayed=False,
            on_appended=partial(self._on_assignment_written, group, group.generation_id, complete),
        )

    def _on_assignment_written(
        self,
        group: ClassicGroup,
        generation_id: int,
        assignments: dict[str, bytes],
        error: ErrorCode,
    ) -> None:
        # Another rebalance may have started during the write.
        if not group.is_in(GroupState.COMPLETING_REBALANCE) or group.generation_id != generation_id:
            return
        if error is not ErrorCode.NONE:
            for_members = client_error(error)
            self.propagate_error(group, for_members)
            # No JoinGroup is pending, so the join phase cannot complete at once.
            reason = f"the assignment cannot be written: {for_members.name}"
            result = self.prepare_or_complete_join(group, reason)
            assert not result.records, f"group={group.group_id} records={result.records}"
            return
        for member in group.members.values():
            member.assignment = assignments[member.id]
        group.on_event(GroupEvent.ASSIGNMENT_WRITTEN, self._clock.wall_ms())
        self._metrics.completed_rebalances += 1
        self._propagate(group, ErrorCode.NONE)

    def propagate_error(self, group: ClassicGroup, error: ErrorCode) -> None:
        """Fail the pending SyncGroup requests: this generation gets no assignment."""
        for member in group.members.values():
            member.assignment = NO_ASSIGNMENT
        self._propagate(group, error)

    def _propagate(self, group: ClassicGroup, error: ErrorCode) -> None:
        for member in list(group.members.values()):
            # The session may have expired while the member waited. That was ignored, so restart it.
            if group.complete_sync(member, error):
                self.restart_session(group, member)

    def note_sync(self, group: ClassicGroup, member_id: str) -> None:
        """Note that a member has sent its SyncGroup."""
        group.pending_sync_members.pop(member_id, None)
        if not group.pending_sync_members:
            self._timers.cancel(_sync_key(group))

    def _on_sync_timeout(self, group_id: str, generation_id: int) -> Written:
        """Remove the members that joined and sent no SyncGroup in time."""
        group = self._groups.find(group_id)
        if (
            group is None
            or group.generation_id != generation_id
            or not group.is_in(GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
            or not group.pending_sync_members
        ):
            return nothing()
        absent = list(group.pending_sync_members)
        for member_id in absent:
            group.remove(member_id)
            self.end_session(group, member_id)
        return self.prepare(group, f"no SyncGroup in time from {', '.join(absent)}")

    # Sessions.

    def restart_session(self, group: ClassicGroup, member: ClassicMember) -> None:
        """Start or restart the session of a member."""
        self.start_session(group, member.id, member.times.session_timeout_ms)

    def start_session(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """Start the session timer of a member, or of a client with an issued member id."""
        self._timers.schedule(
            _session_key(group, member_id),
            timeout_ms,
            partial(self._on_session_timeout, group.group_id, member_id),
        )

    def end_session(self, group: ClassicGroup, member_id: str) -> None:
        """Stop the session timer."""
        self._timers.cancel(_session_key(group, member_id))

    def _on_session_timeout(self, group_id: str, member_id: str) -> Written:
        group = self._groups.find(group_id)
        if group is None:
            return nothing()
        if member_id in group.pending_join_members:
            _log.info("A new member did not join in time: group=%s member=%s", group_id, member_id)
            group.remove(member_id)
            return self.maybe_complete_join(group)
        member = group.members.get(member_id)
        if member is None or member.has_satisfied_heartbeat:
            return nothing()
        _log.info("A member's session expired: group=%s member=%s", group_id, member_id)
        group.complete_join(member, failed_join("", ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member_id)
        return self.after_removal(group, f"session of {member_id} expired")

    def after_removal(self, group: ClassicGroup, reason: str) -> Written:
        """Rebalance, or complete the join phase, after the removal of a member."""
        if group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            return self.prepare_or_complete_join(group, reason)
        return self.maybe_complete_join(group)


def _join_key(group: ClassicGroup) -> tuple[str, str]:
    return "join", group.group_id


def _sync_key(group: ClassicGroup) -> tuple[str, str]:
    return "sync", group.group_id


def _session_key(group: ClassicGroup, member_id: str) -> tuple[str, str, str]:
    return "session", group.group_id, member_id
