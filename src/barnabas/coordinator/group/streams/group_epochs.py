"""The epochs of streams groups in heartbeats: topology, group epoch and target assignment.

The assignment of a small group is computed within the heartbeat that needs it, as in Kafka, and the
one of a large group in slices (`targets`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from barnabas.coordinator.group.group_base import RefusalError
from barnabas.coordinator.group.replayed_group import NO_EPOCH
from barnabas.coordinator.group.streams.configuring import (
    StreamsStatus,
    configure_topology,
    is_large,
)
from barnabas.coordinator.group.streams.streams_group import StreamsGroup, StreamsGroupState
from barnabas.coordinator.group.streams.streams_heartbeat import (
    Assignment,
    Prepared,
    UnpreparedTopologyError,
)
from barnabas.coordinator.group.streams.streams_records import (
    epoch_record,
    target_epoch_record,
    target_record,
    topology_record,
)
from barnabas.coordinator.group.streams.task_assignors import (
    NO_MEMBER_TASKS,
    MemberTasks,
    StreamsInput,
    StreamsMemberInput,
    assign_sticky,
)
from barnabas.coordinator.group.streams.task_reconciliation import StreamsMember
from barnabas.coordinator.group.streams.topology import StreamsTopology
from barnabas.coordinator.group.targets import SlicedTargets, differing
from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.protocol.errors import ErrorCode
from barnabas.waiting.steps import run_to_end

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from typing import TypeAlias

    from barnabas.coordinator.group.streams.configuring import ConfiguredTopology
    from barnabas.coordinator.group.streams.streams_group import StreamsShard
    from barnabas.coordinator.group.streams.streams_heartbeat import StreamsHeartbeat
    from barnabas.coordinator.group.targets import GroupCopy
    from barnabas.coordinator.group.topics import TopicsView
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.protocol.records.streams_groups import StreamsGroupTopologyValue

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


class StreamsTargets(SlicedTargets[StreamsGroup, StreamsMember, MemberTasks]):
    """The computations of the groups of one shard; at most one per group runs in slices."""

    __slots__ = ()

    def __init__(self, shard: StreamsShard) -> None:
        super().__init__(
            shard.groups, shard.timers, shard.clock, target_record, target_epoch_record
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
        changed = differing(targets, known)
        return targets, self.records_of(group.group_id, request.epoch, changed)

    def start_if_idle(self, group_id: str, configured: ConfiguredTopology) -> None:
        """Start a computation in slices, as `start`, unless one is running for the group."""
        if self.is_running(group_id):
            return

        def assign(copy: _Copy) -> Generator[None, None, Mapping[str, MemberTasks]]:
            group = copy.group
            request = TargetRequest(group, copy.epoch, configured, group.assignment_configs)
            yield
            found = yield from _assign(request, copy.members)
            return _targets(found, copy.members)

        self.start(group_id, assign)


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


class GroupEpochs:
    """Raises the epochs of the groups of one shard."""

    __slots__ = ("_shard", "_targets")

    def __init__(self, shard: StreamsShard) -> None:
        self._shard = shard
        self._targets = StreamsTargets(shard)

    # Topology.

    def prepare(self, heartbeat: StreamsHeartbeat, member: StreamsMember) -> Prepared:
        """Return the topology of the group with the current topics. Raises RefusalError."""
        group = heartbeat.group
        topology = _topology(heartbeat)
        if member is not group.members.get(member.member_id):
            self._shard.check_memory(group, group.growth_by(member, topology))
        known = group.topology
        if known is not None and member.topology_epoch < known.epoch:
            heartbeat.note(
                StreamsStatus.STALE_TOPOLOGY,
                f"The member's topology epoch {member.topology_epoch} is behind the group's "
                f"topology epoch {known.epoch}.",
            )
        metadata_hash = group.metadata_hash
        configured = group.configured
        is_outdated = group.needs_refresh
        has_new_hash = False
        if known is None or configured is None or is_outdated:
            metadata_hash = self._shard.hashes.of_topics(topology.required_topics)
            has_new_hash = metadata_hash != group.metadata_hash
            if not has_new_hash:
                group.compared_epoch = group.group_epoch
        if known is None or configured is None or has_new_hash:
            configured = _configure(heartbeat, topology, self._shard.topics, metadata_hash)
            group.configured, group.first_configured = configured, None
        return Prepared(topology, configured, metadata_hash, has_new_hash)

    def large_topology(
        self, group_id: str, given: StreamsGroupTopologyValue | None
    ) -> tuple[StreamsGroupTopologyValue, int] | None:
        """Return the topology that the heartbeat will configure, if it is large, and its hash."""
        group = self._shard.groups.find(group_id)
        topology = None if group is None else group.topology
        value = given if topology is None else topology.value
        if value is None or not is_large(value):
            return None
        if topology is None:
            topology = StreamsTopology(value)
        if group is not None and group.configured is not None and not group.needs_refresh:
            return None
        return value, self._shard.hashes.of_topics(topology.required_topics)

    # Group epoch and target assignment.

    def advance(
        self,
        heartbeat: StreamsHeartbeat,
        prepared: Prepared,
        member: StreamsMember,
        *,
        is_changed: bool,
    ) -> Assignment:
        """Raise the epochs if that is necessary, and return the member's target.

        Args:
            heartbeat: the heartbeat.
            prepared: the topology.
            member: the member of the heartbeat after it.
            is_changed: whether its change requires a new target assignment.
        """
        group = heartbeat.group
        validated = prepared.topology.epoch if prepared.configured.problem is None else NO_EPOCH
        configs = heartbeat.configs.assignment
        is_new = (
            is_changed
            or prepared.has_new_hash
            or validated != group.validated_topology_epoch
            or configs != group.assignment_configs
        )
        # A stable group in which the member does not have its target: the target stays the same.
        is_refined = (
            not is_new
            and group.state is StreamsGroupState.STABLE
            and not member.assigned.is_equal_to(group.target_of(member.member_id))
        )
        epoch = group.group_epoch
        if is_new or is_refined:
            epoch += 1
            heartbeat.records.append(
                epoch_record(group, epoch, prepared.metadata_hash, validated, configs)
            )
            self._shard.metrics.streams_rebalances += 1
            group.compared_epoch = epoch
        if not group.members:
            self._start_delay(group.group_id, heartbeat.configs.initial_rebalance_delay_ms)
        return self._target(heartbeat, epoch, prepared.configured, member, is_refined=is_refined)

    def _start_delay(self, group_id: str, delay_ms: int) -> None:
        """Start the initial rebalance delay of a group, unless it has begun already."""
        key = delay_key(group_id)
        if delay_ms > 0 and not self._shard.timers.is_scheduled(key):
            self._shard.timers.schedule(key, delay_ms, lambda: self._on_delay_over(group_id))

    def _target(
        self,
        heartbeat: StreamsHeartbeat,
        epoch: int,
        configured: ConfiguredTopology,
        member: StreamsMember,
        *,
        is_refined: bool,
    ) -> Assignment:
        """Return the target of the member, after computing it if it is outdated."""
        group, configs = heartbeat.group, heartbeat.configs
        if self._shard.timers.is_scheduled(delay_key(group.group_id)):
            heartbeat.note(
                StreamsStatus.ASSIGNMENT_DELAYED,
                "More members may join first: streams.initial.rebalance.delay.ms has not passed.",
            )
            return Assignment(epoch, group.assignment_epoch, NO_MEMBER_TASKS)
        known = _known_target(heartbeat, member)
        if group.assignment_epoch >= epoch:
            return Assignment(epoch, group.assignment_epoch, known)
        if is_refined and group.assignment_epoch >= group.group_epoch:
            heartbeat.records.append(
                target_epoch_record(group.group_id, epoch, group.assignment_timestamp)
            )
            return Assignment(epoch, epoch, known)
        if self._targets.is_too_early(group, configs.assignment_interval_ms):
            heartbeat.note(
                StreamsStatus.ASSIGNMENT_DELAYED,
                "The last assignment is too recent: streams.assignment.interval.ms has not passed.",
            )
            return Assignment(epoch, group.assignment_epoch, known)
        if self._targets.is_large(group, configured):
            self._targets.start_if_idle(group.group_id, configured)
            return Assignment(epoch, group.assignment_epoch, known)
        replaced = heartbeat.replaced
        members, targets = dict(group.members), dict(group.targets)
        if replaced is not None:
            del members[replaced.member_id]
            targets[member.member_id] = targets.pop(replaced.member_id, NO_MEMBER_TASKS)
        members[member.member_id] = member
        request = TargetRequest(group, epoch, configured, configs.assignment)
        targets, records = self._targets.compute(request, members, targets)
        heartbeat.records += records
        return Assignment(epoch, epoch, targets[member.member_id])

    def _on_delay_over(self, group_id: str) -> CoordinatorResult[None]:
        """Compute the first target assignment after the initial rebalance delay."""
        group = self._shard.groups.find(group_id)
        if (
            group is None
            or not group.members
            or group.configured is None
            or group.group_epoch <= group.assignment_epoch
            or self._targets.is_too_early(
                group, self._shard.configs_of(group).assignment_interval_ms
            )
        ):
            return CoordinatorResult(None)
        if self._targets.is_large(group, group.configured):
            self._targets.start_if_idle(group_id, group.configured)
            return CoordinatorResult(None)
        request = TargetRequest(
            group, group.group_epoch, group.configured, group.assignment_configs
        )
        _, records = self._targets.compute(request, group.members, group.targets)
        return CoordinatorResult(None, records)


def delay_key(group_id: str) -> tuple[str, str]:
    """Return the key of the timer of a group's initial rebalance delay."""
    return "streams-delay", group_id


def _configure(
    heartbeat: StreamsHeartbeat, topology: StreamsTopology, topics: TopicsView, metadata_hash: int
) -> ConfiguredTopology:
    """Return the topology with the current topics, a known one if it is not out of date.

    Raises:
        UnpreparedTopologyError: the topology is large, and was not configured in slices.
        RefusalError: STREAMS_INVALID_TOPOLOGY, see `configure_topology`.
    """
    for known in (heartbeat.given.configured, heartbeat.group.first_configured):
        if (
            known is not None
            and known.metadata_hash == metadata_hash
            and known.epoch == topology.epoch
        ):
            return known
    if not heartbeat.given.is_prepared and is_large(topology.value):
        raise UnpreparedTopologyError
    return configure_topology(topology.value, topics.partition_count, metadata_hash)


def _topology(heartbeat: StreamsHeartbeat) -> StreamsTopology:
    """Return the topology of the group, after the record of the first one. Raises RefusalError."""
    given, known = heartbeat.given.value, heartbeat.group.topology
    if given is None:
        if known is None:
            raise RefusalError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "Neither the request nor the group has a topology.",
            )
        return known
    if known is None:
        made = StreamsTopology(given)
        heartbeat.records.append(topology_record(heartbeat.group.group_id, made.value))
        return made
    if known.epoch <= given.epoch and not known.is_same(given):
        raise RefusalError(
            ErrorCode.INVALID_REQUEST,
            "The group has another topology, and a group keeps its topology.",
        )
    return known


def _known_target(heartbeat: StreamsHeartbeat, member: StreamsMember) -> MemberTasks:
    """Return the current target of a member, or of the static member that it replaces."""
    replaced = heartbeat.replaced
    return heartbeat.group.target_of(member.member_id if replaced is None else replaced.member_id)
