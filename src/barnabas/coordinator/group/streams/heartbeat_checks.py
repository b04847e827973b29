"""Checks of StreamsGroupHeartbeat requests, of epochs and of owned tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.refusal import RefusalError, fenced_epoch
from barnabas.coordinator.group.streams.members.streams_member import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    StreamsMember,
)
from barnabas.coordinator.group.streams.tasks import MemberTasks
from barnabas.coordinator.group.streams.topology.topology_check import check_topology
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.coordinator.group.streams.members.owned_tasks import OwnedTasks
    from barnabas.coordinator.group.streams.tasks import Tasks
    from barnabas.coordinator.group.streams.topology.configured_topology import (
        ConfiguredSubtopology,
    )
    from barnabas.protocol.messages.streams_group_heartbeat import (
        KeyValue,
        StreamsGroupHeartbeatRequest,
        TaskIdsRequest,
    )

# Limit of the tasks in one request. Kafka has none.
_TASKS_MAX = 100_000
# Limit of the client tags of a member. Kafka has none, but its clients send 5 at most.
_TAGS_MAX = 100


def _invalid(message: str) -> RefusalError:
    return RefusalError(ErrorCode.INVALID_REQUEST, message)


def check_streams_heartbeat(request: StreamsGroupHeartbeatRequest) -> None:
    """Check the fields whose validity does not depend on the group. Raises RefusalError."""
    for subtopology in () if request.topology is None else request.topology.subtopologies:
        if subtopology.source_topic_regex:
            raise _invalid("Source topics must be given by name, not by a regular expression.")
    _check_blank("member id", request.member_id)
    _check_blank("group id", request.group_id)
    if request.instance_id is not None:
        _check_blank("instance id", request.instance_id)
    if request.rack_id is not None:
        _check_blank("rack id", request.rack_id)
    if request.member_epoch == JOIN_EPOCH:
        _check_joining(request)
    elif request.member_epoch == STATIC_LEAVE_EPOCH:
        if request.instance_id is None:
            raise _invalid(
                "Epoch -2 is only for static members, but the request has no instance id."
            )
    elif request.member_epoch < STATIC_LEAVE_EPOCH:
        raise _invalid(f"The member epoch {request.member_epoch} is below -2.")
    _check_owned_lists((request.active_tasks, request.standby_tasks, request.warmup_tasks))
    if request.client_tags:
        _check_tags(request.client_tags)
    if request.member_epoch != JOIN_EPOCH and request.topology is not None:
        raise _invalid("Only the heartbeat that joins may have a topology.")


def _check_blank(name: str, text: str) -> None:
    if not text.strip():
        raise _invalid(f"The {name} is blank.")


def _check_owned_lists(owned: tuple[list[TaskIdsRequest] | None, ...]) -> None:
    missing = owned.count(None)
    if missing == len(owned):
        return
    if missing:
        raise _invalid("Report active, standby and warm-up tasks together, or none of them.")
    if sum(len(each.partitions) for tasks in owned for each in tasks or ()) > _TASKS_MAX:
        raise _invalid(f"A member may own at most {_TASKS_MAX} tasks.")


def _check_tags(tags: list[KeyValue]) -> None:
    if len(tags) > _TAGS_MAX:
        raise _invalid(f"A member may have at most {_TAGS_MAX} client tags.")
    if len({each.key for each in tags}) != len(tags):
        raise _invalid("A client tag occurs twice.")


def _check_joining(request: StreamsGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("The heartbeat that joins needs a rebalance timeout.")
    for name, tasks in (
        ("active", request.active_tasks),
        ("standby", request.standby_tasks),
        ("warm-up", request.warmup_tasks),
    ):
        if tasks is None or tasks:
            raise _invalid(f"The heartbeat that joins must report an empty list of {name} tasks.")
    if request.topology is None:
        raise _invalid("The heartbeat that joins needs a topology.")
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
                raise _invalid(f"The topology has no subtopology {name}.")
            lowest, highest = min(indexes), max(indexes)
            if lowest < 0 or highest >= subtopology.tasks:
                raise _invalid(
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


def check_unreleased(member: StreamsMember, member_id: str) -> None:
    """Check that a static member has left, so that another client may replace it."""
    if member.member_epoch != STATIC_LEAVE_EPOCH:
        raise RefusalError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Instance id {member.instance_id} still belongs to member {member.member_id}. Member "
            f"{member_id} can join when that member has left or its session has expired.",
        )


def require_static(member: StreamsMember | None, instance_id: str, member_id: str) -> StreamsMember:
    """Return the static member of a request. Raises RefusalError."""
    if member is None:
        raise RefusalError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise RefusalError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Instance id {instance_id} now belongs to member {member.member_id}, which replaced "
            f"member {member_id}.",
        )
    return member
