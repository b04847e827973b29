"""Computes the target assignments of streams groups (Kafka: TargetAssignmentBuilder).

The assignment of a small group is computed within the heartbeat that needs it, as in Kafka, and the
one of a large group in slices (`sliced_targets`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from barnabas.coordinator.group.streams.assignors.sticky_task_assignor import assign_sticky
from barnabas.coordinator.group.streams.assignors.task_input import (
    StreamsInput,
    StreamsMemberInput,
)
from barnabas.coordinator.group.streams.streams_records import target_epoch_record, target_record
from barnabas.coordinator.group.streams.tasks import NO_MEMBER_TASKS, MemberTasks
from barnabas.coordinator.group.targets import SlicedTargets, TargetRecords
from barnabas.waiting.steps import run_to_end

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from typing import Any, TypeAlias

    from barnabas.coordinator.group.streams.members.streams_member import StreamsMember
    from barnabas.coordinator.group.streams.streams_group import StreamsGroup
    from barnabas.coordinator.group.streams.streams_shard import StreamsShard
    from barnabas.coordinator.group.streams.topology.configured_topology import ConfiguredTopology
    from barnabas.coordinator.group.targets import GroupCopy
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord

    _Copy: TypeAlias = GroupCopy[StreamsGroup, StreamsMember, MemberTasks]

ASSIGNOR = "sticky"

# A heartbeat computes the assignment of a group at once if its number of tasks, and its number of
# members with this weight, are together below the limit. That takes a few milliseconds.
_MEMBER_WEIGHT = 10
_AT_ONCE_MAX = 500
# Members that are handled in one step.
_STEP = 16


class TargetRequest(msgspec.Struct, frozen=True):
    """The group, epoch, topology and configs of a target assignment."""

    group: StreamsGroup
    # The group epoch of the result.
    epoch: int
    configured: ConfiguredTopology
    configs: Mapping[str, str]


class StreamsTargets:
    """The computations of the groups of one shard; at most one per group runs in slices."""

    __slots__ = ("_shard", "_sliced")

    def __init__(self, shard: StreamsShard) -> None:
        self._shard = shard
        self._sliced: SlicedTargets[StreamsGroup, StreamsMember, MemberTasks] = SlicedTargets(
            "streams-targets",
            shard.groups,
            shard.timers,
            shard.clock,
            TargetRecords(target_record, target_epoch_record, _replacement),
        )

    @staticmethod
    def is_large(group: StreamsGroup, configured: ConfiguredTopology) -> bool:
        """Whether the target assignment must be computed in slices."""
        weight = (1 + len(group.members)) * _MEMBER_WEIGHT
        for subtopology in (configured.subtopologies or {}).values():
            weight += subtopology.tasks
        return weight > _AT_ONCE_MAX

    def compute(
        self,
        request: TargetRequest,
        members: Mapping[str, StreamsMember],
        known: Mapping[str, MemberTasks],
    ) -> tuple[dict[str, MemberTasks], list[CoordinatorRecord]]:
        """Return the targets of all members, and the records of the change.

        Args:
            request: what to compute.
            members: the members after the heartbeat.
            known: the current targets.

        Raises:
            TaskAssignorError: the assignor failed.
        """
        group = request.group
        targets = _targets(run_to_end(_assign(request, members)), members)
        records = [
            target_record(group.group_id, member_id, target)
            for member_id, target in targets.items()
            if known.get(member_id) != target
        ]
        now_ms = self._shard.clock.wall_ms()
        records.append(target_epoch_record(group.group_id, request.epoch, now_ms))
        return targets, records

    # Slices.

    def is_running(self, group_id: str) -> bool:
        """Whether a computation for the group is running."""
        return self._sliced.is_running(group_id)

    def start(self, group_id: str, configured: ConfiguredTopology) -> None:
        """Compute the target assignment after the records of the current heartbeat are replayed."""

        def assign(copy: _Copy) -> Generator[None, None, Mapping[str, MemberTasks]]:
            group = copy.group
            request = TargetRequest(group, copy.epoch, configured, group.assignment_configs)
            yield
            found = yield from _assign(request, copy.members)
            return _targets(found, copy.members)

        self._sliced.start(group_id, assign)


def _replacement(group: Any, member: StreamsMember) -> str | None:
    found: str | None = group.static_members.get(member.instance_id)
    return found


def _assign(
    request: TargetRequest, members: Mapping[str, StreamsMember]
) -> Generator[None, None, dict[str, MemberTasks]]:
    """Return the result of the assignor. Without existing topics, no member gets tasks."""
    if not request.configured.is_ready:
        return {}
    offsets = request.group.task_offsets
    given: dict[str, StreamsMemberInput] = {}
    for position, (member_id, member) in enumerate(members.items()):
        known = offsets.get(member_id)
        made = StreamsMemberInput(process_id=member.process_id, owned=member.assigned.plain())
        if known is not None:
            made = replace(made, offsets=known.offsets)
        given[member_id] = made
        if position % _STEP == _STEP - 1:
            yield
    found = yield from assign_sticky(
        StreamsInput(
            members=given,
            subtopologies=request.configured.subtopology_inputs(),
            standby_replicas=int(request.configs.get("num.standby.replicas", "0")),
        )
    )
    return found


def _targets(
    found: Mapping[str, MemberTasks], members: Mapping[str, StreamsMember]
) -> dict[str, MemberTasks]:
    return {member_id: found.get(member_id, NO_MEMBER_TASKS) for member_id in members}
