"""Computes the target assignments of streams groups (Kafka: TargetAssignmentBuilder).

The assignment of a small group is computed within the heartbeat that needs it, as in Kafka. The one
of a large group is computed in slices, between other requests. Then the heartbeat has the current
target, and later heartbeats distribute the new one.
"""

from __future__ import annotations

from functools import partial
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
from barnabas.coordinator.runtime.coordinator_result import CoordinatorResult
from barnabas.waiting.steps import run_to_end

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from typing import TypeAlias

    from barnabas.coordinator.group.streams.members.streams_member import StreamsMember
    from barnabas.coordinator.group.streams.streams_group import StreamsGroup
    from barnabas.coordinator.group.streams.streams_shard import StreamsShard
    from barnabas.coordinator.group.streams.topology.configured_topology import ConfiguredTopology
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord

    _Computation: TypeAlias = "Generator[None, None, _Computed | None]"

ASSIGNOR = "sticky"

# Duration of a slice, in ms.
_SLICE_MS = 2
# A heartbeat computes the assignment of a group at once if its number of tasks, and its number of
# members with this weight, are together below the limit. That takes a few milliseconds.
_MEMBER_WEIGHT = 10
_AT_ONCE_MAX = 500
# Records that are encoded in one step.
_RECORDS_PER_STEP = 16


class TargetRequest(msgspec.Struct, frozen=True):
    """The group, epoch, topology and configs of a target assignment."""

    group: StreamsGroup
    # The group epoch of the result.
    epoch: int
    configured: ConfiguredTopology
    configs: Mapping[str, str]


class _Computed(msgspec.Struct, frozen=True):
    """A finished computation."""

    request: TargetRequest
    members: Mapping[str, StreamsMember]
    # The targets when the computation began.
    known: Mapping[str, MemberTasks]
    targets: Mapping[str, MemberTasks]
    # The records of the targets that are new or have changed, by member id.
    records: Mapping[str, CoordinatorRecord]


class StreamsTargets:
    """The computations of the groups of one shard; at most one per group runs in slices."""

    __slots__ = ("_running", "_shard")

    def __init__(self, shard: StreamsShard) -> None:
        self._shard = shard
        # Groups whose target assignment is being computed in slices.
        self._running: set[str] = set()

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
        return group_id in self._running

    def start(self, group_id: str, configured: ConfiguredTopology) -> None:
        """Compute the target assignment after the records of the current heartbeat are replayed."""
        self._running.add(group_id)
        self._schedule(group_id, self._compute(group_id, configured))

    def _schedule(self, group_id: str, computation: _Computation) -> None:
        self._shard.timers.schedule(
            ("streams-targets", group_id), 0, lambda: self._slice(group_id, computation)
        )

    def _slice(self, group_id: str, computation: _Computation) -> CoordinatorResult[None]:
        end_ms = self._shard.clock.monotonic_ms() + _SLICE_MS
        try:
            next(computation)
            while self._shard.clock.monotonic_ms() < end_ms:
                next(computation)
        except StopIteration as end:
            self._running.discard(group_id)
            return self._result(group_id, end.value)
        self._schedule(group_id, computation)
        return CoordinatorResult(None)

    def _compute(self, group_id: str, configured: ConfiguredTopology) -> _Computation:
        """Compute the targets, and encode their records. Yields."""
        group = self._shard.groups.find(group_id)
        if group is None:
            # The records of the heartbeat were not written.
            return None
        request = TargetRequest(group, group.group_epoch, configured, group.assignment_configs)
        members, known = dict(group.members), dict(group.targets)
        yield
        found = yield from _assign(request, members)
        targets = _targets(found, members)
        yield
        records: dict[str, CoordinatorRecord] = {}
        for member_id, target in targets.items():
            if known.get(member_id) != target:
                records[member_id] = target_record(group_id, member_id, target)
                if len(records) % _RECORDS_PER_STEP == 0:
                    yield
        return _Computed(request, members, known, targets, records)

    def _result(self, group_id: str, computed: _Computed | None) -> CoordinatorResult[None]:
        """Return the records for the members that the group still has."""
        group = self._shard.groups.find(group_id)
        if computed is None or group is not computed.request.group:
            return CoordinatorResult(None)
        epoch = computed.request.epoch
        if group.assignment_epoch >= epoch:
            # The group became empty meanwhile.
            return CoordinatorResult(None)
        records: list[CoordinatorRecord] = []
        targets: dict[str, MemberTasks] = {}
        for member_id, target in computed.targets.items():
            successor = _successor(group, member_id, computed)
            if successor is None:
                continue
            if successor == member_id and group.targets.get(successor) is computed.known.get(
                member_id
            ):
                record = computed.records.get(member_id)
            else:
                # The member has left and joined again, or another member has replaced it.
                record = target_record(group_id, successor, target)
            if record is not None:
                records.append(record)
                targets[successor] = target
        now_ms = self._shard.clock.wall_ms()
        records.append(target_epoch_record(group_id, epoch, now_ms))
        return CoordinatorResult(
            None, records, apply=partial(group.set_targets, epoch, now_ms, targets)
        )


def _successor(group: StreamsGroup, member_id: str, computed: _Computed) -> str | None:
    """Return the id of the member now; None if it has left.

    Another member may have replaced a static member.
    """
    if member_id in group.members:
        return member_id
    instance_id = computed.members[member_id].instance_id
    return None if instance_id is None else group.static_members.get(instance_id)


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
        if position % _RECORDS_PER_STEP == _RECORDS_PER_STEP - 1:
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
