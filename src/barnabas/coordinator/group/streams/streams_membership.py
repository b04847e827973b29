"""StreamsGroupHeartbeat: joining, leaving, the topology and the assignment (KIP-1071).

A heartbeat creates or changes the member. It configures the topology if the topics have changed.
Both may raise the group epoch. Then it computes the target assignment, unless that is delayed, and
moves the member one step towards its target.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.coordinator.group.refusal import RefusalError
from barnabas.coordinator.group.streams.assignors.task_input import TaskAssignorError
from barnabas.coordinator.group.streams.endpoint_partitions import endpoint_partitions
from barnabas.coordinator.group.streams.group_epochs import GroupEpochs
from barnabas.coordinator.group.streams.heartbeat_checks import (
    check_epoch,
    check_owned_tasks,
    check_unreleased,
    reported_tasks,
    require_static,
)
from barnabas.coordinator.group.streams.members.member_offsets import MemberOffsets
from barnabas.coordinator.group.streams.members.streams_member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    StreamsMember,
    UserEndpoint,
)
from barnabas.coordinator.group.streams.members.streams_member_state import StreamsMemberState
from barnabas.coordinator.group.streams.members.task_reconciliation import (
    TaskReconciliation,
    reconcile_tasks,
)
from barnabas.coordinator.group.streams.streams_heartbeat import (
    NO_TOPOLOGY,
    Assignment,
    GivenTopology,
    Heartbeating,
    StreamsHeartbeat,
    failed_streams_heartbeat,
    task_ids,
)
from barnabas.coordinator.group.streams.streams_records import (
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    target_epoch_record,
    target_record,
)
from barnabas.coordinator.group.streams.streams_timers import StreamsTimers
from barnabas.coordinator.group.streams.topology.streams_status import StreamsStatus
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse

if TYPE_CHECKING:
    from barnabas.coordinator.group.streams.streams_group import StreamsGroup
    from barnabas.coordinator.group.streams.streams_heartbeat import StreamsClient
    from barnabas.coordinator.group.streams.streams_shard import StreamsShard
    from barnabas.coordinator.group.streams.topology.configured_topology import ConfiguredTopology
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
    from barnabas.protocol.records.streams_group_topology import StreamsGroupTopologyValue

# The first version of the request whose clients know the status MISSING_CLIENT_TAGS.
_CLIENT_TAGS_SINCE = 1
_MISSING_CLIENT_TAGS = 6


class StreamsMembership:
    """The heartbeats of one shard."""

    __slots__ = ("_epochs", "_shard", "timers")

    def __init__(self, shard: StreamsShard) -> None:
        self._shard = shard
        self.timers = StreamsTimers(shard.groups, shard.timers, self.fence)
        self._epochs = GroupEpochs(shard, self.timers)

    def start_timers(self) -> None:
        """Start the timeouts of all members after the shard is loaded."""
        for group in self._shard.groups.all():
            timeout_ms = self._shard.value_of(group.group_id, "session.timeout.ms")
            for member in group.members.values():
                self.timers.restart_session(group.group_id, member.member_id, timeout_ms)
                if member.state is StreamsMemberState.UNREVOKED_TASKS:
                    self.timers.start_rebalance(group.group_id, member)

    def heartbeat(
        self,
        request: StreamsGroupHeartbeatRequest,
        client: StreamsClient,
        given: GivenTopology = NO_TOPOLOGY,
    ) -> CoordinatorResult[StreamsHeartbeat]:
        """Return the response and the records of a heartbeat whose fields are valid.

        Args:
            request: the request.
            client: its client.
            given: the prepared topology.
        """
        try:
            if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                return self._leave(request)
            records: list[CoordinatorRecord] = []
            is_joining = request.member_epoch == JOIN_EPOCH
            group = self._shard.find_or_create(request.group_id, records, is_joining=is_joining)
            reported = reported_tasks(request)
            return self._continue(
                Heartbeating(request, client, group, reported, given, records),
                is_joining=is_joining,
            )
        except RefusalError as error:
            failed = failed_streams_heartbeat(error.error, error.message)
        except TaskAssignorError as error:
            failed = failed_streams_heartbeat(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        return CoordinatorResult(StreamsHeartbeat(failed))

    def large_topology(
        self, group_id: str, given: StreamsGroupTopologyValue | None
    ) -> tuple[StreamsGroupTopologyValue, int] | None:
        """Return the topology that the heartbeat will configure, if it is large, and its hash."""
        return self._epochs.large_topology(group_id, given)

    # Joining and continuing.

    def _continue(
        self, heartbeat: Heartbeating, *, is_joining: bool
    ) -> CoordinatorResult[StreamsHeartbeat]:
        request, group = heartbeat.request, heartbeat.group
        if is_joining:
            self._check_size(group, request)
        member = _find_member(heartbeat, is_joining=is_joining)
        updated = _updated(member, heartbeat, is_joining=is_joining)
        if updated != member:
            heartbeat.records.append(member_record(group.group_id, updated))
        prepared = self._epochs.prepare(heartbeat, updated)
        if prepared.configured.is_ready:
            check_owned_tasks(heartbeat.reported, prepared.configured.subtopologies or {})
        if request.task_offsets is not None or request.task_end_offsets is not None:
            known = group.task_offsets.get(request.member_id, MemberOffsets())
            group.task_offsets[request.member_id] = known.updated(
                request.task_offsets, request.task_end_offsets
            )
        is_changed = updated != member and (
            request.instance_id is None or _matters_to_others(member, updated)
        )
        assignment = self._epochs.advance(heartbeat, prepared, updated, is_changed=is_changed)
        updated = self._reconcile(heartbeat, updated, assignment)
        timeout_ms = self._shard.value_of(group.group_id, "session.timeout.ms")
        self.timers.restart_session(group.group_id, updated.member_id, timeout_ms)
        if request.shutdown_application and group.shutdown_member_id is None:
            group.shutdown_member_id = request.member_id
        response = self._response(heartbeat, member, updated, prepared.configured)
        problem = prepared.configured.problem
        to_create = {} if problem is None else prepared.configured.to_create
        replaced = heartbeat.replaced
        on_appended = None
        if replaced is not None:
            on_appended = partial(self._on_left, group.group_id, replaced.member_id)
        return CoordinatorResult(
            StreamsHeartbeat(response, to_create), heartbeat.records, on_appended=on_appended
        )

    def _check_size(self, group: StreamsGroup, request: StreamsGroupHeartbeatRequest) -> None:
        size_max = self._shard.config.group_streams_max_size
        is_known = request.instance_id in group.static_members or request.member_id in group.members
        if len(group.members) >= size_max and not is_known:
            raise RefusalError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The group already has {size_max} members, the limit of group.streams.max.size.",
            )

    def _reconcile(
        self, heartbeat: Heartbeating, member: StreamsMember, assignment: Assignment
    ) -> StreamsMember:
        """Return the member after its next step towards the target."""
        if member.is_reconciled_to(assignment.target_epoch):
            return member
        group_id = heartbeat.group.group_id
        after = reconcile_tasks(
            member,
            TaskReconciliation(
                assignment.target_epoch, assignment.target, heartbeat.group, heartbeat.reported
            ),
        )
        if after != member:
            heartbeat.records.append(current_record(group_id, after))
            if after.state is StreamsMemberState.UNREVOKED_TASKS:
                self.timers.start_rebalance(group_id, after)
            else:
                self.timers.end_rebalance(group_id, after.member_id)
        return after

    def _response(
        self,
        heartbeat: Heartbeating,
        before: StreamsMember,
        after: StreamsMember,
        configured: ConfiguredTopology,
    ) -> StreamsGroupHeartbeatResponse:
        request, group = heartbeat.request, heartbeat.group
        value_of = partial(self._shard.value_of, group.group_id)
        response = StreamsGroupHeartbeatResponse(
            error_code=ErrorCode.NONE,
            member_id=after.member_id,
            member_epoch=after.member_epoch,
            heartbeat_interval_ms=value_of("heartbeat.interval.ms"),
            task_offset_interval_ms=value_of("task.offset.interval.ms"),
            acceptable_recovery_lag=value_of("acceptable.recovery.lag"),
            status=heartbeat.statuses,
            endpoint_information_epoch=0,
        )
        has_new_tasks = after.assigned != before.assigned
        if request.member_epoch == JOIN_EPOCH or has_new_tasks:
            response.active_tasks = task_ids(after.assigned.active)
            response.standby_tasks = task_ids(after.assigned.standby)
            response.warmup_tasks = task_ids(after.assigned.warmup)
        self._add_endpoints(heartbeat, response, (before, after), configured)
        if configured.problem is not None:
            heartbeat.note(configured.problem.status, configured.problem.detail)
        if group.shutdown_member_id is not None:
            heartbeat.note(
                StreamsStatus.SHUTDOWN_APPLICATION,
                f"Member {group.shutdown_member_id} requests the shutdown of all members after a "
                "fatal error.",
            )
        tags = self._shard.rack_tags(group.group_id)
        missing = [each for each in tags if each not in after.client_tags]
        if missing and heartbeat.client.version >= _CLIENT_TAGS_SINCE:
            heartbeat.note_code(
                _MISSING_CLIENT_TAGS,
                f"The member lacks the client tags {', '.join(missing)}, which "
                "streams.rack.aware.assignment.tags requires. Set client.tag.TAG for each.",
            )
        return response

    def _add_endpoints(
        self,
        heartbeat: Heartbeating,
        response: StreamsGroupHeartbeatResponse,
        change: tuple[StreamsMember, StreamsMember],
        configured: ConfiguredTopology,
    ) -> None:
        """Add the partitions by endpoint, unless the client has them already."""
        before, after = change
        request, group, replaced = heartbeat.request, heartbeat.group, heartbeat.replaced
        has_new_tasks = after.assigned != before.assigned
        has_new_endpoint = after.user_endpoint != before.user_endpoint
        is_joining = request.member_epoch == JOIN_EPOCH
        replaced_id = None if replaced is None else replaced.member_id
        if is_joining or has_new_tasks or has_new_endpoint or replaced is not None:
            group.endpoints.pop(after.member_id, None)
            if replaced_id is not None:
                group.endpoints.pop(replaced_id, None)
        if has_new_endpoint or (has_new_tasks and after.user_endpoint is not None):
            group.endpoint_epoch += 1
        if group.endpoint_epoch != request.endpoint_information_epoch:
            response.partitions_by_user_endpoint = endpoint_partitions(
                group, configured, self._shard.topics, after, replaced_id
            )
        if self._shard.groups.has(group.group_id):
            response.endpoint_information_epoch = group.endpoint_epoch

    # Leaving.

    def _leave(self, request: StreamsGroupHeartbeatRequest) -> CoordinatorResult[StreamsHeartbeat]:
        group = self._shard.require(request.group_id)
        if request.shutdown_application and group.shutdown_member_id is None:
            group.shutdown_member_id = request.member_id
        response = failed_streams_heartbeat(ErrorCode.NONE, None)
        response.member_id = request.member_id
        response.member_epoch = request.member_epoch
        if request.instance_id is None:
            member = group.members.get(request.member_id)
            if member is None:
                raise _unknown_member(group, request.member_id)
        else:
            static = group.static_member(request.instance_id)
            member = require_static(static, request.instance_id, request.member_id)
            if request.member_epoch == STATIC_LEAVE_EPOCH:
                after = replace(
                    member,
                    member_epoch=STATIC_LEAVE_EPOCH,
                    assigned=member.assigned.with_epoch(0),
                    pending_revocation=StreamsMember("").pending_revocation,
                )
                record = current_record(group.group_id, after)
                return CoordinatorResult(StreamsHeartbeat(response), [record])
        return CoordinatorResult(
            StreamsHeartbeat(response),
            self.fence(group, member),
            on_appended=partial(self._on_left, group.group_id, member.member_id),
        )

    def _on_left(self, group_id: str, member_id: str, error: ErrorCode) -> None:
        group = self._shard.groups.find(group_id)
        if error is ErrorCode.NONE and (group is None or member_id not in group.members):
            self.timers.end(group_id, member_id)

    def fence(self, group: StreamsGroup, member: StreamsMember) -> list[CoordinatorRecord]:
        """Return the records that remove a member, and that raise the group epoch."""
        epoch = group.group_epoch + 1
        records = [
            *member_tombstones(group.group_id, member.member_id),
            epoch_record(
                group,
                epoch,
                group.metadata_hash,
                group.validated_topology_epoch,
                group.assignment_configs,
            ),
        ]
        if len(group.members) == 1:
            # An empty group has nothing to assign.
            records.append(target_epoch_record(group.group_id, epoch, 0))
        return records


def _find_member(heartbeat: Heartbeating, *, is_joining: bool) -> StreamsMember:
    """Return the known or new member of a request. Raises RefusalError."""
    request, group = heartbeat.request, heartbeat.group
    if request.instance_id is not None:
        return _find_static(heartbeat, request.instance_id, is_joining=is_joining)
    member = group.members.get(request.member_id)
    if member is None:
        if not is_joining:
            raise _unknown_member(group, request.member_id)
        return StreamsMember(request.member_id)
    check_epoch(member, request.member_epoch, heartbeat.reported)
    return member


def _find_static(heartbeat: Heartbeating, instance_id: str, *, is_joining: bool) -> StreamsMember:
    """Return the static member, after the records that replace a former one."""
    request, group = heartbeat.request, heartbeat.group
    known = group.static_member(instance_id)
    if not is_joining:
        member = require_static(known, instance_id, request.member_id)
        check_epoch(member, request.member_epoch, heartbeat.reported)
        return member
    if known is None:
        return group.members.get(request.member_id) or StreamsMember(request.member_id)
    check_unreleased(known, request.member_id)
    member = replace(known, member_id=request.member_id, member_epoch=0, previous_member_epoch=0)
    if known.member_id != member.member_id:
        heartbeat.replaced = known
    heartbeat.records += [
        *member_tombstones(group.group_id, known.member_id),
        member_record(group.group_id, member),
        target_record(group.group_id, member.member_id, group.target_of(known.member_id)),
        current_record(group.group_id, member),
    ]
    return member


def _unknown_member(group: StreamsGroup, member_id: str) -> RefusalError:
    return RefusalError(
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"Member {member_id} is not a member of group {group.group_id}.",
    )


def _updated(member: StreamsMember, heartbeat: Heartbeating, *, is_joining: bool) -> StreamsMember:
    """Return the member with the fields that the request has."""
    request, client = heartbeat.request, heartbeat.client.identity
    after = replace(member, client_id=client.client_id, client_host=client.host)
    if request.instance_id is not None:
        after = replace(after, instance_id=request.instance_id)
    if request.rack_id is not None:
        after = replace(after, rack_id=request.rack_id)
    if request.rebalance_timeout_ms != -1:
        after = replace(after, rebalance_timeout_ms=request.rebalance_timeout_ms)
    if request.topology is not None:
        after = replace(after, topology_epoch=request.topology.epoch)
    if request.process_id is not None:
        after = replace(after, process_id=request.process_id)
    if request.client_tags is not None:
        tags = {each.key: each.value for each in request.client_tags}
        after = replace(after, client_tags=tags)
    endpoint = request.user_endpoint
    if endpoint is not None:
        after = replace(after, user_endpoint=UserEndpoint(endpoint.host, endpoint.port))
    elif is_joining:
        after = replace(after, user_endpoint=None)
    return after


def _matters_to_others(before: StreamsMember, after: StreamsMember) -> bool:
    """Whether a change of a static member requires a new target assignment."""
    return (
        before.topology_epoch != after.topology_epoch
        or before.rack_id != after.rack_id
        or before.client_tags != after.client_tags
        or before.process_id != after.process_id
    )
