"""StreamsGroupHeartbeat: joining, leaving, the topology and the assignment (KIP-1071).

A heartbeat creates or changes the member. It configures the topology if the topics have changed.
Both may raise the group epoch. Then it computes the target assignment, unless that is delayed, and
moves the member one step towards its target.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from barnabas.coordinator.group.group_base import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    RefusalError,
    check_instance,
    unknown_member,
    unreleased_instance,
)
from barnabas.coordinator.group.group_kind import MemberTimers
from barnabas.coordinator.group.streams.configuring import StreamsStatus
from barnabas.coordinator.group.streams.group_epochs import GroupEpochs
from barnabas.coordinator.group.streams.streams_heartbeat import (
    Assignment,
    StreamsHeartbeat,
    StreamsHeartbeatResult,
    UnpreparedTopologyError,
    check_epoch,
    check_owned_tasks,
    endpoint_partitions,
    failed_streams_heartbeat,
    new_response,
    quiet_heartbeat,
    reported_tasks,
)
from barnabas.coordinator.group.streams.streams_records import (
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    target_epoch_record,
    target_record,
)
from barnabas.coordinator.group.streams.task_assignors import TaskAssignorError, task_lists
from barnabas.coordinator.group.streams.task_reconciliation import (
    MemberOffsets,
    StreamsMember,
    TaskReconciliation,
    UserEndpoint,
    reconcile_tasks,
)
from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.streams_groups import TaskIdsResponse

if TYPE_CHECKING:
    from barnabas.coordinator.group.streams.configuring import ConfiguredTopology
    from barnabas.coordinator.group.streams.streams_group import StreamsGroup, StreamsShard
    from barnabas.coordinator.group.streams.streams_heartbeat import (
        GivenTopology,
        Prepared,
        StreamsClient,
    )
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.protocol.messages.streams_groups import (
        StreamsGroupHeartbeatRequest,
        StreamsGroupHeartbeatResponse,
    )

T = TypeVar("T")

# The first version of the request whose clients know the status MISSING_CLIENT_TAGS.
_CLIENT_TAGS_SINCE = 1
_MISSING_CLIENT_TAGS = 6


class StreamsMembership:
    """The heartbeats of one shard."""

    __slots__ = ("_shard", "epochs", "timers")

    def __init__(self, shard: StreamsShard) -> None:
        self._shard = shard
        self.timers = MemberTimers(
            shard.groups, shard.timers, lambda group, member: self.remove(group, member, None)
        )
        self.epochs = GroupEpochs(shard)

    def start_timers(self) -> None:
        """Start the timeouts of all members after the shard is loaded."""
        self.timers.start_all(lambda group, _: self._shard.configs_of(group).session_timeout_ms)

    def heartbeat(
        self,
        request: StreamsGroupHeartbeatRequest,
        client: StreamsClient,
        given: GivenTopology,
    ) -> CoordinatorResult[StreamsHeartbeatResult | None]:
        """Return the response and the records of a heartbeat whose fields are valid.

        Args:
            request: the request.
            client: its client.
            given: the topology of the request.

        Returns:
            The result. Its response is None if a large topology must be prepared before.
        """
        # 1. A heartbeat that changes nothing needs no further step.
        response = quiet_heartbeat(self._shard, self.timers, request, client)
        if response is not None:
            return CoordinatorResult(StreamsHeartbeatResult(response))
        try:
            if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                return self._leave(request)
            records: list[CoordinatorRecord] = []
            is_joining = request.member_epoch == JOIN_EPOCH
            # 2. Find or create the group.
            group = self._shard.find_or_create(request.group_id, records, is_joining=is_joining)
            configs, reported = self._shard.configs_of(group), reported_tasks(request)
            return self._continue(
                StreamsHeartbeat(request, client, group, configs, reported, given, records),
                is_joining=is_joining,
            )
        except RefusalError as error:
            failed = failed_streams_heartbeat(error.error, error.message)
        except TaskAssignorError as error:
            failed = failed_streams_heartbeat(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
        except UnpreparedTopologyError:
            return CoordinatorResult(None)
        return CoordinatorResult(StreamsHeartbeatResult(failed))

    # Joining and continuing.

    def _continue(
        self, heartbeat: StreamsHeartbeat, *, is_joining: bool
    ) -> CoordinatorResult[StreamsHeartbeatResult | None]:
        request, group = heartbeat.request, heartbeat.group
        if is_joining:
            self._shard.check_size(group, request.member_id, request.instance_id)
        # 3. Find or create the member, and give it the fields of the request.
        member = _find_member(heartbeat, is_joining=is_joining)
        updated = _updated(member, heartbeat, is_joining=is_joining)
        has_new_fields = updated is not member and updated != member
        if has_new_fields:
            heartbeat.records.append(member_record(group.group_id, updated))
        prepared = self.epochs.prepare(heartbeat, updated)
        if heartbeat.reported is not None and prepared.configured.problem is None:
            check_owned_tasks(heartbeat.reported, prepared.configured.subtopologies or {})
        if request.task_offsets is not None or request.task_end_offsets is not None:
            known = group.task_offsets.get(request.member_id, MemberOffsets())
            group.task_offsets[request.member_id] = known.updated(
                request.task_offsets, request.task_end_offsets
            )
        is_changed = has_new_fields and (
            request.instance_id is None or _matters_to_others(member, updated)
        )
        # 4. Raise the group epoch if the change concerns other members.
        # 5. Compute the target assignment if it is older than the group epoch.
        assignment = self.epochs.advance(heartbeat, prepared, updated, is_changed=is_changed)
        # 6. Move the member a step towards its target.
        updated = self._reconcile(heartbeat, updated, assignment)
        # 7. Restart the session, and respond.
        self.timers.restart_session(
            group.group_id, updated.member_id, heartbeat.configs.session_timeout_ms
        )
        if request.shutdown_application and group.shutdown_member_id is None:
            group.shutdown_member_id = request.member_id
        response = self._response(heartbeat, member, updated, prepared.configured)
        problem = prepared.configured.problem
        to_create = {} if problem is None else prepared.configured.to_create
        replaced = heartbeat.replaced
        on_appended = None
        if replaced is not None:
            on_appended = partial(self.timers.end_removed, group.group_id, [replaced.member_id])
        elif not self._shard.groups.has(group.group_id):
            on_appended = partial(self._on_created, group.group_id, prepared)
        return CoordinatorResult(
            StreamsHeartbeatResult(response, to_create), heartbeat.records, on_appended=on_appended
        )

    def _on_created(self, group_id: str, prepared: Prepared, error: ErrorCode) -> None:
        """Keep the configured topology for the group that the records have created."""
        group = self._shard.groups.find(group_id)
        if error is not ErrorCode.NONE or group is None or group.topology is None:
            return
        if group.topology.value is prepared.topology.value:
            group.first_configured = prepared.configured

    def _reconcile(
        self, heartbeat: StreamsHeartbeat, member: StreamsMember, assignment: Assignment
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
            self.timers.update_rebalance(group_id, after)
        return after

    def _response(
        self,
        heartbeat: StreamsHeartbeat,
        before: StreamsMember,
        after: StreamsMember,
        configured: ConfiguredTopology,
    ) -> StreamsGroupHeartbeatResponse:
        request, group, configs = heartbeat.request, heartbeat.group, heartbeat.configs
        response = new_response(after, configs, heartbeat.statuses)
        has_new_tasks = after is not before and after.assigned != before.assigned
        if request.member_epoch == JOIN_EPOCH or has_new_tasks:
            response.active_tasks = task_lists(TaskIdsResponse, after.assigned.active)
            response.standby_tasks = task_lists(TaskIdsResponse, after.assigned.standby)
            response.warmup_tasks = task_lists(TaskIdsResponse, after.assigned.warmup)
        if after is not before or request.member_epoch == JOIN_EPOCH:
            _change_endpoints(heartbeat, before, after, has_new_tasks=has_new_tasks)
        if group.endpoint_epoch != request.endpoint_information_epoch:
            replaced_id = None if heartbeat.replaced is None else heartbeat.replaced.member_id
            response.partitions_by_user_endpoint = endpoint_partitions(
                group, configured, self._shard.topics, after, replaced_id
            )
        if self._shard.groups.has(group.group_id):
            response.endpoint_information_epoch = group.endpoint_epoch
        if configured.problem is not None:
            heartbeat.note(configured.problem.status, configured.problem.detail)
        if group.shutdown_member_id is not None:
            heartbeat.note(
                StreamsStatus.SHUTDOWN_APPLICATION,
                f"Member {group.shutdown_member_id} requests the shutdown of all members after a "
                "fatal error.",
            )
        if configs.rack_tags:
            _note_missing_tags(heartbeat, after)
        return response

    # Leaving.

    def _leave(
        self, request: StreamsGroupHeartbeatRequest
    ) -> CoordinatorResult[StreamsHeartbeatResult | None]:
        group = self._shard.groups.require(request.group_id)
        if request.shutdown_application and group.shutdown_member_id is None:
            group.shutdown_member_id = request.member_id
        response = failed_streams_heartbeat(ErrorCode.NONE, None)
        response.member_id = request.member_id
        response.member_epoch = request.member_epoch
        if request.instance_id is None:
            member = group.members.get(request.member_id)
            if member is None:
                raise unknown_member(group, request.member_id)
        else:
            static = group.static_member(request.instance_id)
            member = check_instance(static, request.member_id, request.instance_id)
            if request.member_epoch == STATIC_LEAVE_EPOCH:
                after = replace(
                    member,
                    member_epoch=STATIC_LEAVE_EPOCH,
                    assigned=member.assigned.with_epoch(0),
                    pending_revocation=StreamsMember("").pending_revocation,
                )
                record = current_record(group.group_id, after)
                return CoordinatorResult(StreamsHeartbeatResult(response), [record])
        return self.remove(group, member, StreamsHeartbeatResult(response))

    def remove(
        self, group: StreamsGroup, member: StreamsMember, response: T
    ) -> CoordinatorResult[T]:
        """Remove a member."""
        return CoordinatorResult(
            response,
            self._fence(group, member),
            on_appended=partial(self.timers.end_removed, group.group_id, [member.member_id]),
        )

    def _fence(self, group: StreamsGroup, member: StreamsMember) -> list[CoordinatorRecord]:
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


def _find_member(heartbeat: StreamsHeartbeat, *, is_joining: bool) -> StreamsMember:
    """Return the known or new member of a request. Raises RefusalError."""
    request, group = heartbeat.request, heartbeat.group
    if request.instance_id is not None:
        return _find_static(heartbeat, request.instance_id, is_joining=is_joining)
    member = group.members.get(request.member_id)
    if member is None:
        if not is_joining:
            raise unknown_member(group, request.member_id)
        return StreamsMember(request.member_id)
    check_epoch(member, request.member_epoch, heartbeat.reported)
    return member


def _find_static(
    heartbeat: StreamsHeartbeat, instance_id: str, *, is_joining: bool
) -> StreamsMember:
    """Return the static member, after the records that replace a former one."""
    request, group = heartbeat.request, heartbeat.group
    known = group.static_member(instance_id)
    if not is_joining:
        member = check_instance(known, request.member_id, instance_id)
        check_epoch(member, request.member_epoch, heartbeat.reported)
        return member
    if known is None:
        return group.members.get(request.member_id) or StreamsMember(request.member_id)
    if known.member_epoch != STATIC_LEAVE_EPOCH:
        raise unreleased_instance(known, request.member_id)
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


def _change_endpoints(
    heartbeat: StreamsHeartbeat, before: StreamsMember, after: StreamsMember, *, has_new_tasks: bool
) -> None:
    """Forget the partitions by endpoint that the heartbeat changes, and raise their epoch."""
    group, replaced = heartbeat.group, heartbeat.replaced
    is_joining = heartbeat.request.member_epoch == JOIN_EPOCH
    has_new_endpoint = after.user_endpoint != before.user_endpoint
    if is_joining or has_new_tasks or has_new_endpoint:
        group.endpoints.pop(after.member_id, None)
        if replaced is not None:
            group.endpoints.pop(replaced.member_id, None)
    if has_new_endpoint or (has_new_tasks and after.user_endpoint is not None):
        group.endpoint_epoch += 1


def _note_missing_tags(heartbeat: StreamsHeartbeat, member: StreamsMember) -> None:
    """Add a status if the member lacks client tags, and its client knows the status."""
    missing = [each for each in heartbeat.configs.rack_tags if each not in member.client_tags]
    if missing and heartbeat.client.version >= _CLIENT_TAGS_SINCE:
        heartbeat.note_code(
            _MISSING_CLIENT_TAGS,
            f"The member lacks the client tags {', '.join(missing)}, which "
            "streams.rack.aware.assignment.tags requires. Set client.tag.TAG for each.",
        )


def _updated(
    member: StreamsMember, heartbeat: StreamsHeartbeat, *, is_joining: bool
) -> StreamsMember:
    """Return the member with the fields that the request has."""
    request, client = heartbeat.request, heartbeat.client.identity
    changes: dict[str, object] = {}
    if client.client_id != member.client_id or client.host != member.client_host:
        changes = {"client_id": client.client_id, "client_host": client.host}
    if request.instance_id is not None:
        changes["instance_id"] = request.instance_id
    if request.rack_id is not None:
        changes["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms != -1:
        changes["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.topology is not None:
        changes["topology_epoch"] = request.topology.epoch
    if request.process_id is not None:
        changes["process_id"] = request.process_id
    if request.client_tags is not None:
        changes["client_tags"] = {each.key: each.value for each in request.client_tags}
    endpoint = request.user_endpoint
    if endpoint is not None:
        changes["user_endpoint"] = UserEndpoint(endpoint.host, endpoint.port)
    elif is_joining:
        changes["user_endpoint"] = None
    return replace(member, **changes) if changes else member


def _matters_to_others(before: StreamsMember, after: StreamsMember) -> bool:
    """Whether a change of a static member requires a new target assignment."""
    return (
        before.topology_epoch != after.topology_epoch
        or before.rack_id != after.rack_id
        or before.client_tags != after.client_tags
        or before.process_id != after.process_id
    )
