"""The streams groups of a shard with their members and configs (Kafka: StreamsGroup)."""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

import msgspec

from barnabas.coordinator.group.group_config import NO_OVERRIDES
from barnabas.coordinator.group.group_kind import KindShard
from barnabas.coordinator.group.replayed_group import NO_EPOCH, ReplayedGroup
from barnabas.coordinator.group.streams.task_assignors import NO_MEMBER_TASKS, MemberTasks
from barnabas.coordinator.group.streams.task_reconciliation import (
    NO_OWNED_TASKS,
    StreamsMember,
    StreamsMemberState,
    each_task,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Set as AbstractSet

    from barnabas.coordinator.group.group_base import GroupMemory
    from barnabas.coordinator.group.group_config import GroupSettings
    from barnabas.coordinator.group.group_kind import GroupDependencies
    from barnabas.coordinator.group.streams.configuring import ConfiguredTopology
    from barnabas.coordinator.group.streams.task_reconciliation import MemberOffsets, OwnedTasks
    from barnabas.coordinator.group.streams.topology import StreamsTopology
    from barnabas.protocol.messages.streams_groups import EndpointToPartitions
    from barnabas.settings.definition import ParsedConfig


class StreamsGroupState(Enum):
    """The name of a state in responses. Deleted groups have no state."""

    EMPTY = "Empty"
    # The topics of the topology are missing or do not fit.
    NOT_READY = "NotReady"
    # The target assignment is older than the group epoch.
    ASSIGNING = "Assigning"
    # A member does not have its target yet.
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"

    @property
    def filter_name(self) -> str:
        """The name in filters and metrics."""
        return "not_ready" if self is StreamsGroupState.NOT_READY else self.value.lower()


class StreamsConfigs(msgspec.Struct, frozen=True):
    """The values that heartbeats need. Each heartbeat uses them until one of their sources changes.

    Times are in ms.
    """

    # The sources: the configuration of the broker, and the configs of the group.
    broker: ParsedConfig
    own: Mapping[str, str]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    task_offset_interval_ms: int
    assignment_interval_ms: int
    initial_rebalance_delay_ms: int
    acceptable_recovery_lag: int
    # The keys of client tags that members must have.
    rack_tags: tuple[str, ...]
    # The configs that the target assignment depends on, as the record of the group has them.
    assignment: Mapping[str, str]

    def is_of(self, broker: ParsedConfig, own: Mapping[str, str]) -> bool:
        """Whether these are the sources."""
        return self.broker is broker and self.own is own


def read_configs(settings: GroupSettings, group_id: str, own: Mapping[str, str]) -> StreamsConfigs:
    """Return the current configs of a group.

    Args:
        settings: the configuration of groups.
        group_id: the group.
        own: the configs of the group, which override the broker's.
    """

    def value(name: str) -> int:
        return settings.value(group_id, f"streams.{name}")

    tags = _rack_tags(settings.config, own)
    assignment = {"num.standby.replicas": str(value("num.standby.replicas"))}
    if tags:
        assignment["rack.aware.assignment.tags"] = ",".join(tags)
    return StreamsConfigs(
        broker=settings.config,
        own=own,
        session_timeout_ms=value("session.timeout.ms"),
        heartbeat_interval_ms=value("heartbeat.interval.ms"),
        task_offset_interval_ms=value("task.offset.interval.ms"),
        assignment_interval_ms=value("assignment.interval.ms"),
        initial_rebalance_delay_ms=value("initial.rebalance.delay.ms"),
        acceptable_recovery_lag=value("acceptable.recovery.lag"),
        rack_tags=tags,
        assignment=assignment,
    )


def _rack_tags(broker: ParsedConfig, own: Mapping[str, str]) -> tuple[str, ...]:
    tags = own.get("streams.rack.aware.assignment.tags")
    if tags is None:
        return tuple(broker.strings("group.streams.rack.aware.assignment.tags"))
    return tuple(each.strip() for each in tags.split(",")) if tags.strip() else ()


# Estimated overhead of a member and of each of its tasks and tags, in bytes.
_MEMBER_BYTES = 1_000
_TASK_BYTES = 100

_NO_PROCESSES: frozenset[str] = frozenset()
_NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


class StreamsGroup(ReplayedGroup[StreamsMember, MemberTasks]):
    """Members, epochs, topology and target assignment of a group."""

    kind: ClassVar[str] = "streams"

    __slots__ = (
        "_active",
        "_configured",
        "_reconciled",
        "_standby",
        "_topology",
        "_warmup",
        "assignment_configs",
        "configs",
        "description_epochs",
        "endpoint_epoch",
        "endpoints",
        "first_configured",
        "shutdown_member_id",
        "task_offsets",
        "validated_topology_epoch",
    )

    def __init__(self, group_id: str, memory: GroupMemory) -> None:
        super().__init__(group_id, memory)
        # Epoch of the topology whose topics exist and fit, or -1.
        self.validated_topology_epoch = NO_EPOCH
        # Configs with which the last target assignment was requested.
        self.assignment_configs = _NO_CONFIGS
        # (stored, failed) epochs of topology descriptions, which only plugins of Kafka write.
        self.description_epochs = (NO_EPOCH, NO_EPOCH)
        self._topology: StreamsTopology | None = None
        # Processes by current task. An active task has one, the others may have several.
        self._active: dict[tuple[str, int], str] = {}
        self._standby: dict[tuple[str, int], set[str]] = {}
        self._warmup: dict[tuple[str, int], set[str]] = {}
        # Number of members in the state STABLE by member epoch. No number is 0.
        self._reconciled: dict[int, int] = {}
        # The fields below are not in records. A new coordinator begins without them.
        # The configs of the group at the last heartbeat.
        self.configs: StreamsConfigs | None = None
        # The topology with the current topics, or None if it must be configured.
        self._configured: ConfiguredTopology | None = None
        # The topology as the heartbeat that created the group configured it. It counts from the
        # next heartbeat on: until then, Kafka describes the topology of the member.
        self.first_configured: ConfiguredTopology | None = None
        # The member that requested the shutdown of the application.
        self.shutdown_member_id: str | None = None
        # Increases when `endpoints` changes.
        self.endpoint_epoch = 0
        # Computed partitions of members with an endpoint, by member id.
        self.endpoints: dict[str, EndpointToPartitions] = {}
        # The last reported offsets of tasks by member id.
        self.task_offsets: dict[str, MemberOffsets] = {}

    # State.

    @property
    def state(self) -> StreamsGroupState:
        """The current state."""
        if not self.members:
            return StreamsGroupState.EMPTY
        if self._topology is None or self._topology.epoch != self.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.group_epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        if self._reconciled.get(self.assignment_epoch, 0) < len(self.members):
            return StreamsGroupState.RECONCILING
        return StreamsGroupState.STABLE

    def is_settled(self, member: StreamsMember) -> bool:
        """Whether a heartbeat that reports no change leaves the group and `member` as they are."""
        topology, configured = self._topology, self._configured
        return (
            topology is not None
            and configured is not None
            and configured.problem is None
            and topology.epoch == self.validated_topology_epoch
            and member.topology_epoch >= topology.epoch
            and self.assignment_epoch >= self.group_epoch >= self.compared_epoch
            and member.is_reconciled_to(self.assignment_epoch)
            and (
                self._reconciled.get(self.assignment_epoch, 0) < len(self.members)
                or member.assigned.is_equal_to(self.target_of(member.member_id))
            )
        )

    # Topology.

    @property
    def topology(self) -> StreamsTopology | None:
        """The topology, or None before the first record of it."""
        return self._topology

    @topology.setter
    def topology(self, topology: StreamsTopology | None) -> None:
        before = 0 if self._topology is None else self._topology.byte_size
        self._resize((0 if topology is None else topology.byte_size) - before)
        self._topology = topology

    @property
    def configured(self) -> ConfiguredTopology | None:
        """The topology with the current topics, or None if it must be configured."""
        return self._configured

    @configured.setter
    def configured(self, configured: ConfiguredTopology | None) -> None:
        self._configured = configured
        self.endpoints.clear()

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a group with members reads the topic."""
        has_members = bool(self.members)
        return has_members and self._topology is not None and topic in self._topology.subtopology_of

    def needs_topic(self, topic: str) -> bool:
        """Whether the topology has the topic."""
        return self._topology is not None and topic in self._topology.required_topics

    # Members and targets.

    def target_of(self, member_id: str) -> MemberTasks:
        """Return the target assignment of a member."""
        return self.targets.get(member_id, NO_MEMBER_TASKS)

    def put(self, member: StreamsMember) -> None:
        """Add or replace a member."""
        before = self.members.get(member.member_id)
        if before is not None:
            self._forget(before)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if member.state is StreamsMemberState.STABLE:
            reconciled = self._reconciled.get(member.member_epoch, 0)
            self._reconciled[member.member_epoch] = reconciled + 1
        for tasks in (member.assigned, member.pending_revocation):
            if tasks is not NO_OWNED_TASKS:
                self._add_process(tasks, member.process_id)
        self.endpoints.pop(member.member_id, None)
        self._resize(_bytes_of(member))

    def remove(self, member_id: str) -> None:
        """Remove a member. Another record removes its target assignment."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._forget(member)
        self.endpoints.pop(member_id, None)
        self.task_offsets.pop(member_id, None)
        if not self.members:
            self.shutdown_member_id = None

    def _forget(self, member: StreamsMember) -> None:
        if member.instance_id is not None:
            self.static_members.pop(member.instance_id, None)
        if member.state is StreamsMemberState.STABLE:
            reconciled = self._reconciled.pop(member.member_epoch) - 1
            if reconciled:
                self._reconciled[member.member_epoch] = reconciled
        for tasks in (member.assigned, member.pending_revocation):
            if tasks is not NO_OWNED_TASKS:
                self._remove_process(tasks, member.process_id)
        self._resize(-_bytes_of(member))

    # Processes of tasks.

    def active_process(self, task: tuple[str, int]) -> str | None:
        """Return the process that runs the active task, or None."""
        return self._active.get(task)

    def standby_processes(self, task: tuple[str, int]) -> AbstractSet[str]:
        """Return the processes that have the standby task."""
        return self._standby.get(task, _NO_PROCESSES)

    def warmup_processes(self, task: tuple[str, int]) -> AbstractSet[str]:
        """Return the processes that have the warm-up task."""
        return self._warmup.get(task, _NO_PROCESSES)

    def _add_process(self, tasks: OwnedTasks, process_id: str) -> None:
        for task in each_task(tasks.active):
            self._active[task] = process_id
        for task in each_task(tasks.standby):
            self._standby.setdefault(task, set()).add(process_id)
        for task in each_task(tasks.warmup):
            self._warmup.setdefault(task, set()).add(process_id)

    def _remove_process(self, tasks: OwnedTasks, process_id: str) -> None:
        for task in each_task(tasks.active):
            # Another process may have the task already.
            if self._active.get(task) == process_id:
                del self._active[task]
        for known, own in ((self._standby, tasks.standby), (self._warmup, tasks.warmup)):
            for task in each_task(own):
                processes = known.get(task)
                if processes is not None:
                    processes.discard(process_id)
                    if not processes:
                        del known[task]

    # Memory.

    def growth_by(self, member: StreamsMember, topology: StreamsTopology | None) -> int:
        """Return by how many bytes the group grows by this member and a new topology."""
        known = self.members.get(member.member_id)
        growth = _bytes_of(member) - (0 if known is None else _bytes_of(known))
        if topology is not None and self._topology is None:
            growth += topology.byte_size
        return growth


def _bytes_of(member: StreamsMember) -> int:
    """Return the estimated memory size of a member and of its tasks, in bytes."""
    size = _MEMBER_BYTES + len(member.member_id) + len(member.process_id)
    for key, value in member.client_tags.items():
        size += len(key) + len(value) + _TASK_BYTES
    for tasks in (member.assigned, member.pending_revocation):
        if not tasks.is_empty:
            size += tasks.count() * _TASK_BYTES
    return size


class StreamsShard(KindShard[StreamsGroup]):
    """The streams groups of one shard."""

    too_large: ClassVar[str] = "The topology and the members take too much memory."

    __slots__ = ("_last_configs",)

    def __init__(self, settings: GroupSettings, dependencies: GroupDependencies) -> None:
        super().__init__(StreamsGroup, settings, dependencies)
        # The configs that were read last.
        self._last_configs: StreamsConfigs | None = None

    def configs_of(self, group: StreamsGroup) -> StreamsConfigs:
        """Return the current configs of a group."""
        settings = self._settings
        broker, own = settings.config, settings.overrides.get(group.group_id, NO_OVERRIDES)
        known = group.configs
        if known is None or not known.is_of(broker, own):
            # Groups without own configs share the object.
            known = self._last_configs
            if known is None or not known.is_of(broker, own):
                known = self._last_configs = read_configs(self._settings, group.group_id, own)
            group.configs = known
        return known
