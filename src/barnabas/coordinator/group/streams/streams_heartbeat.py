"""The parts of a StreamsGroupHeartbeat: request, checks, response, and heartbeats without changes.

Nearly all heartbeats of a stable group change nothing. They write no records, and their responses
have no news. `StreamsMembership` gives the same response, but looks for each possible change. A
test compares both for random groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.group_base import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    check_ids,
    check_static_leave,
    fenced_epoch,
    invalid_request,
)
from barnabas.coordinator.group.streams.task_assignors import MemberTasks
from barnabas.coordinator.group.streams.topology import check_topology
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.streams_groups import (
    EndpointResponse,
    EndpointToPartitions,
    Status,
    StreamsGroupHeartbeatResponse,
    TopicPartition,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from barnabas.coordinator.group.classic.classic_membership import ClientIdentity
    from barnabas.coordinator.group.group_kind import MemberTimers
    from barnabas.coordinator.group.streams.configuring import (
        ConfiguredInternalTopic,
        ConfiguredSubtopology,
        ConfiguredTopology,
        StreamsStatus,
    )
    from barnabas.coordinator.group.streams.streams_group import (
        StreamsConfigs,
        StreamsGroup,
        StreamsShard,
    )
    from barnabas.coordinator.group.streams.task_assignors import Tasks
    from barnabas.coordinator.group.streams.task_reconciliation import OwnedTasks, StreamsMember
    from barnabas.coordinator.group.streams.topology import StreamsTopology
    from barnabas.coordinator.group.topics import TopicsView
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.protocol.messages.streams_groups import (
        KeyValue,
        StreamsGroupHeartbeatRequest,
        TaskIdsRequest,
    )
    from barnabas.protocol.records.streams_groups import StreamsGroupTopologyValue


def endpoint_partitions(
    group: StreamsGroup,
    configured: ConfiguredTopology,
    topics: TopicsView,
    changed: StreamsMember,
    replaced_id: str | None,
) -> list[EndpointToPartitions]:
    """Return one entry for each member that has an endpoint.

    Args:
        group: the group before the heartbeat.
        configured: its topology with the current topics.
        topics: the topics of the cluster.
        changed: the member of the heartbeat after it. It comes last.
        replaced_id: the static member that `changed` replaces, or None.
    """
    others = (
        member
        for member_id, member in group.members.items()
        if member_id not in (changed.member_id, replaced_id)
    )
    found: list[EndpointToPartitions] = []
    for member in (*others, changed):
        if member.user_endpoint is None:
            continue
        known = group.endpoints.get(member.member_id)
        if known is None:
            known = group.endpoints[member.member_id] = _entry(member, configured, topics)
        found.append(known)
    return found


def _entry(
    member: StreamsMember, configured: ConfiguredTopology, topics: TopicsView
) -> EndpointToPartitions:
    endpoint = member.user_endpoint
    assert endpoint is not None, f"member={member.member_id}"
    tasks = member.assigned
    replicas = {
        each: tasks.standby.get(each, frozenset()) | tasks.warmup.get(each, frozenset())
        for each in (*tasks.standby, *(name for name in tasks.warmup if name not in tasks.standby))
    }
    return EndpointToPartitions(
        user_endpoint=EndpointResponse(host=endpoint.host, port=endpoint.port),
        active_partitions=list(_partitions(tasks.active, configured, topics)),
        standby_partitions=list(_partitions(replicas, configured, topics)),
    )


def _partitions(
    tasks: Mapping[str, Iterable[int]], configured: ConfiguredTopology, topics: TopicsView
) -> Iterator[TopicPartition]:
    """Yield the partitions of source topics that the tasks read."""
    for subtopology_id, indexes in tasks.items():
        subtopology = (configured.subtopologies or {}).get(subtopology_id)
        if subtopology is None:
            continue
        names = {*subtopology.source_topics, *subtopology.repartition_source_topics}
        for name in sorted(names):
            count = topics.partition_count(name)
            partitions = sorted(index for index in indexes if index < count)
            if partitions:
                yield TopicPartition(topic=name, partitions=partitions)


class StreamsHeartbeatResult(msgspec.Struct):
    """The response to a heartbeat, and the topics that the broker creates after it."""

    response: StreamsGroupHeartbeatResponse
    to_create: Mapping[str, ConfiguredInternalTopic] = msgspec.field(default_factory=dict)


class StreamsClient(msgspec.Struct, frozen=True):
    """The client of a heartbeat, and the version of its request."""

    identity: ClientIdentity
    version: int


class GivenTopology(msgspec.Struct, frozen=True):
    """The topologies that are known before the heartbeat."""

    # The topology of the request, as its record has it. None if the request has none.
    value: StreamsGroupTopologyValue | None = None
    # Whether a large topology was configured in slices before, if that was necessary.
    is_prepared: bool = False
    # The topology of the group with the current topics, if it was configured in slices.
    configured: ConfiguredTopology | None = None


NO_TOPOLOGY = GivenTopology()


class UnpreparedTopologyError(Exception):
    """The topology must be configured first, in slices, since it is large."""


class StreamsHeartbeat(msgspec.Struct):
    """One heartbeat in progress."""

    request: StreamsGroupHeartbeatRequest
    client: StreamsClient
    group: StreamsGroup
    configs: StreamsConfigs
    reported: MemberTasks | None
    given: GivenTopology
    records: list[CoordinatorRecord]
    statuses: list[Status] = msgspec.field(default_factory=list)
    # The static member that the member of the heartbeat replaces.
    replaced: StreamsMember | None = None

    def note(self, status: StreamsStatus, detail: str) -> None:
        """Add a status to the response."""
        self.note_code(int(status), detail)

    def note_code(self, code: int, detail: str) -> None:
        """Add a status, given by its number, to the response."""
        self.statuses.append(Status(status_code=code, status_detail=detail))


class Assignment(msgspec.Struct, frozen=True):
    """The epochs and the target of a member after a heartbeat."""

    group_epoch: int
    target_epoch: int
    target: MemberTasks


class Prepared(msgspec.Struct, frozen=True):
    """The topology of a group, configured for the current topics."""

    topology: StreamsTopology
    configured: ConfiguredTopology
    metadata_hash: int
    # Whether the hash differs from the stored one.
    has_new_hash: bool


def new_response(
    member: StreamsMember, configs: StreamsConfigs, statuses: list[Status]
) -> StreamsGroupHeartbeatResponse:
    """Return a response with the epoch of the member, and without tasks and endpoints."""
    return StreamsGroupHeartbeatResponse(
        error_code=ErrorCode.NONE,
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        heartbeat_interval_ms=configs.heartbeat_interval_ms,
        task_offset_interval_ms=configs.task_offset_interval_ms,
        acceptable_recovery_lag=configs.acceptable_recovery_lag,
        status=statuses,
        endpoint_information_epoch=0,
    )


def failed_streams_heartbeat(
    error: ErrorCode, message: str | None
) -> StreamsGroupHeartbeatResponse:
    """Return the response with an error."""
    return StreamsGroupHeartbeatResponse(
        error_code=error,
        error_message=message,
        member_id="",
        member_epoch=0,
        heartbeat_interval_ms=0,
        task_offset_interval_ms=0,
        status=[],
        endpoint_information_epoch=0,
    )


# Limit of the tasks in one request. Kafka has none.
_TASKS_MAX = 100_000
# Limit of the client tags of a member. Kafka has none, but its clients send 5 at most.
_TAGS_MAX = 100


def check_streams_heartbeat(request: StreamsGroupHeartbeatRequest) -> None:
    """Check the fields whose validity does not depend on the group. Raises RefusalError."""
    for subtopology in () if request.topology is None else request.topology.subtopologies:
        if subtopology.source_topic_regex:
            raise invalid_request(
                "Source topics must be given by name, not by a regular expression."
            )
    check_ids(request.member_id, request.group_id, request.instance_id, request.rack_id)
    if request.member_epoch == JOIN_EPOCH:
        _check_joining(request)
    elif request.member_epoch < LEAVE_EPOCH:
        check_static_leave(request.member_epoch, request.instance_id)
    _check_owned_lists((request.active_tasks, request.standby_tasks, request.warmup_tasks))
    if request.client_tags:
        _check_tags(request.client_tags)
    if request.member_epoch != JOIN_EPOCH and request.topology is not None:
        raise invalid_request("Only the heartbeat that joins may have a topology.")


def _check_owned_lists(owned: tuple[list[TaskIdsRequest] | None, ...]) -> None:
    missing = owned.count(None)
    if missing == len(owned):
        return
    if missing:
        raise invalid_request("Report active, standby and warm-up tasks together, or none of them.")
    if sum(len(each.partitions) for tasks in owned for each in tasks or ()) > _TASKS_MAX:
        raise invalid_request(f"A member may own at most {_TASKS_MAX} tasks.")


def _check_tags(tags: list[KeyValue]) -> None:
    if len(tags) > _TAGS_MAX:
        raise invalid_request(f"A member may have at most {_TAGS_MAX} client tags.")
    if len({each.key for each in tags}) != len(tags):
        raise invalid_request("A client tag occurs twice.")


def _check_joining(request: StreamsGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise invalid_request("The heartbeat that joins needs a rebalance timeout.")
    for name, tasks in (
        ("active", request.active_tasks),
        ("standby", request.standby_tasks),
        ("warm-up", request.warmup_tasks),
    ):
        if tasks is None or tasks:
            raise invalid_request(
                f"The heartbeat that joins must report an empty list of {name} tasks."
            )
    if request.topology is None:
        raise invalid_request("The heartbeat that joins needs a topology.")
    check_topology(request.topology)


def reported_tasks(request: StreamsGroupHeartbeatRequest) -> MemberTasks | None:
    """Return the tasks that a client reports as owned, or None if its request has none."""
    active, standby, warmup = request.active_tasks, request.standby_tasks, request.warmup_tasks
    if active is None or standby is None or warmup is None:
        return None
    return MemberTasks(active=_tasks(active), standby=_tasks(standby), warmup=_tasks(warmup))


def _tasks(tasks: list[TaskIdsRequest]) -> Tasks:
    found: dict[str, frozenset[int]] = {}
    for each in tasks:
        known = found.get(each.subtopology_id, frozenset())
        found[each.subtopology_id] = known.union(each.partitions)
    return {subtopology: indexes for subtopology, indexes in found.items() if indexes}


def check_owned_tasks(
    reported: MemberTasks | None, subtopologies: Mapping[str, ConfiguredSubtopology]
) -> None:
    """Check that the reported tasks exist in the topology. Raises RefusalError."""
    if reported is None:
        return
    for tasks in (reported.active, reported.standby, reported.warmup):
        for name, indexes in tasks.items():
            subtopology = subtopologies.get(name)
            if subtopology is None:
                raise invalid_request(f"The topology has no subtopology {name}.")
            lowest, highest = min(indexes), max(indexes)
            if lowest < 0 or highest >= subtopology.tasks:
                raise invalid_request(
                    f"Subtopology {name} has the tasks 0 to {subtopology.tasks - 1}, but the "
                    f"request has task {lowest if lowest < 0 else highest}."
                )


def check_epoch(member: StreamsMember, epoch: int, reported: MemberTasks | None) -> None:
    """Check the epoch of a heartbeat. Raises RefusalError.

    The previous epoch is accepted if the client owns only tasks that the member has. Then it has
    missed the last response.
    """
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return
    if (
        epoch < member.member_epoch
        and epoch == member.previous_member_epoch
        and reported is not None
        and _contains(member.assigned, reported)
    ):
        return
    raise fenced_epoch(member.member_id, epoch, member.member_epoch)


def _contains(assigned: OwnedTasks, reported: MemberTasks) -> bool:
    """Whether all reported tasks are assigned in the same role."""
    roles: Iterable[tuple[Mapping[str, Iterable[int]], Tasks]] = (
        (assigned.active, reported.active),
        (assigned.standby, reported.standby),
        (assigned.warmup, reported.warmup),
    )
    return all(
        indexes <= frozenset(own.get(subtopology, ()))
        for own, tasks in roles
        for subtopology, indexes in tasks.items()
    )


def quiet_heartbeat(
    shard: StreamsShard,
    timers: MemberTimers[StreamsGroup],
    request: StreamsGroupHeartbeatRequest,
    client: StreamsClient,
) -> StreamsGroupHeartbeatResponse | None:
    """Return the response to a heartbeat that changes nothing; None for other heartbeats."""
    group = shard.groups.find(request.group_id)
    if group is None:
        return None
    member = group.members.get(request.member_id)
    if member is None or not _is_known(request, client, group, member):
        return None
    configs = shard.configs_of(group)
    if (
        configs.rack_tags
        or configs.assignment != group.assignment_configs
        or group.endpoint_epoch != request.endpoint_information_epoch
        or group.shutdown_member_id is not None
        or not group.is_settled(member)
    ):
        return None
    timers.restart_session(group.group_id, member.member_id, configs.session_timeout_ms)
    response = new_response(member, configs, [])
    response.endpoint_information_epoch = group.endpoint_epoch
    return response


def _is_known(
    request: StreamsGroupHeartbeatRequest,
    client: StreamsClient,
    group: StreamsGroup,
    member: StreamsMember,
) -> bool:
    """Whether the request has the epoch of the member, and nothing else that is new.

    `check_streams_heartbeat` has accepted the request: only a join has a topology, and a request
    without active tasks has no other tasks.
    """
    return (
        request.member_epoch == member.member_epoch
        and request.member_epoch > JOIN_EPOCH
        and request.active_tasks is None
        and request.rack_id is None
        and request.rebalance_timeout_ms == -1
        and request.process_id is None
        and request.user_endpoint is None
        and request.client_tags is None
        and request.task_offsets is None
        and request.task_end_offsets is None
        and not request.shutdown_application
        and client.identity.client_id == member.client_id
        and client.identity.host == member.client_host
        and (request.instance_id is None or group.static_member(request.instance_id) is member)
    )
