"""Members of streams groups: tasks, offsets and states (Kafka: StreamsGroupMember)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from barnabas.coordinator.group.assignors.task_input import NO_OFFSETS, NO_TASKS, MemberTasks, Tasks
from barnabas.coordinator.group.refusal import RefusalError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.protocol.messages.streams_groups import TaskOffset


# The epoch in which each active task was assigned, by subtopology id and partition. No map is
# empty.
ActiveTasks: TypeAlias = Mapping[str, Mapping[int, int]]

NO_ACTIVE_TASKS: ActiveTasks = MappingProxyType({})


class OwnedTasks(msgspec.Struct, frozen=True):
    """Active, standby and warm-up tasks."""

    active: ActiveTasks = NO_ACTIVE_TASKS
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS

    @property
    def is_empty(self) -> bool:
        """Whether there are no tasks."""
        return not (self.active or self.standby or self.warmup)

    def count(self) -> int:
        """Return the number of tasks."""
        return sum(
            len(indexes)
            for tasks in (self.active, self.standby, self.warmup)
            for indexes in tasks.values()
        )

    def plain(self) -> MemberTasks:
        """Return the tasks without the epochs."""
        active = {each: frozenset(indexes) for each, indexes in self.active.items()}
        return MemberTasks(active=active, standby=self.standby, warmup=self.warmup)

    def with_epoch(self, epoch: int) -> OwnedTasks:
        """Return the same tasks, assigned in that epoch."""
        active = {each: dict.fromkeys(indexes, epoch) for each, indexes in self.active.items()}
        return OwnedTasks(active, self.standby, self.warmup)

    def is_equal_to(self, tasks: MemberTasks) -> bool:
        """Whether these are exactly the tasks, in the same roles."""
        if self.standby != tasks.standby or self.warmup != tasks.warmup:
            return False
        active = tasks.active
        if len(self.active) != len(active):
            return False
        for subtopology, epochs in self.active.items():
            indexes = active.get(subtopology)
            if indexes is None or len(indexes) != len(epochs) or not indexes.issuperset(epochs):
                return False
        return True

    def has_any(self, tasks: MemberTasks) -> bool:
        """Whether one of the tasks is here in the same role."""
        return (
            _overlap(tasks.active, self.active)
            or _overlap(tasks.standby, self.standby)
            or _overlap(tasks.warmup, self.warmup)
        )


NO_OWNED_TASKS = OwnedTasks()


def _overlap(tasks: Tasks, own: Mapping[str, frozenset[int] | Mapping[int, int]]) -> bool:
    return any(
        not indexes.isdisjoint(own[subtopology])
        for subtopology, indexes in tasks.items()
        if subtopology in own
    )


def each_task(tasks: Mapping[str, frozenset[int] | Mapping[int, int]]) -> Iterator[tuple[str, int]]:
    """Yield (subtopology id, partition) of each task."""
    for subtopology, indexes in tasks.items():
        for index in indexes:
            yield subtopology, index


# Limit of the offsets of one member. Kafka has none. A member has at most some hundred tasks.
OFFSETS_MAX = 10_000


class MemberOffsets(msgspec.Struct, frozen=True):
    """Sums of changelog offsets, and of their end offsets, by subtopology id and partition."""

    offsets: Mapping[str, Mapping[int, int]] = NO_OFFSETS
    end_offsets: Mapping[str, Mapping[int, int]] = NO_OFFSETS

    def updated(
        self, offsets: list[TaskOffset] | None, end_offsets: list[TaskOffset] | None
    ) -> MemberOffsets:
        """Return the offsets with the lists that a request has. Raises RefusalError."""
        return MemberOffsets(
            self.offsets if offsets is None else _by_task(offsets),
            self.end_offsets if end_offsets is None else _by_task(end_offsets),
        )


def _by_task(offsets: list[TaskOffset]) -> Mapping[str, Mapping[int, int]]:
    if len(offsets) > OFFSETS_MAX:
        raise RefusalError(
            ErrorCode.INVALID_REQUEST, f"A member may report at most {OFFSETS_MAX} task offsets."
        )
    found: dict[str, dict[int, int]] = {}
    for each in offsets:
        partitions = found.setdefault(each.subtopology_id, {})
        if each.partition in partitions:
            raise RefusalError(
                ErrorCode.INVALID_REQUEST,
                f"Task offsets contain a duplicate entry for subtopology {each.subtopology_id} "
                f"and partition {each.partition}.",
            )
        partitions[each.partition] = each.offset
    return found


class StreamsMemberState(IntEnum):
    """The progress of a member towards its target assignment."""

    # It has its target.
    STABLE = 1
    # The client must release tasks before it gets a new epoch.
    UNREVOKED_TASKS = 2
    # It waits for tasks that another member or another process still has.
    UNRELEASED_TASKS = 3
    # Written by a newer broker.
    UNKNOWN = 127

    @classmethod
    def of(cls, number: int) -> StreamsMemberState:
        """Return the state of a record; UNKNOWN for unknown numbers."""
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN


# Member epochs with which a client leaves the group, or a static member leaves for a while.
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
# The member epoch with which a client joins the group.
JOIN_EPOCH = 0

NO_TAGS: Mapping[str, str] = MappingProxyType({})


class UserEndpoint(msgspec.Struct, frozen=True):
    """The address at which a client answers interactive queries."""

    host: str
    port: int


class StreamsMember(msgspec.Struct, frozen=True):
    """A member. A change creates a new object, and its record replaces the old one."""

    member_id: str
    # Epoch of the target assignment that the member has reached. -2 for a static member that has
    # left for a while.
    member_epoch: int = 0
    # The epoch before that. A client that missed the last response still sends it.
    previous_member_epoch: int = 0
    state: StreamsMemberState = StreamsMemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    # Starts with a slash, as Java prints addresses.
    client_host: str = ""
    # Time in ms for the release of tasks. -1 until the client sends it.
    rebalance_timeout_ms: int = -1
    # Epoch of the client's topology.
    topology_epoch: int = -1
    # The process of the client. Threads of one process share state directories.
    process_id: str = ""
    user_endpoint: UserEndpoint | None = None
    client_tags: Mapping[str, str] = NO_TAGS
    # Tasks that the client may run.
    assigned: OwnedTasks = NO_OWNED_TASKS
    # Tasks that the client must release. No other process gets them before that.
    pending_revocation: OwnedTasks = NO_OWNED_TASKS

    @property
    def must_revoke(self) -> bool:
        """Whether the client must release tasks before it gets a new epoch."""
        return self.state is StreamsMemberState.UNREVOKED_TASKS

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether the member has all tasks of that target assignment."""
        return self.state is StreamsMemberState.STABLE and self.member_epoch == assignment_epoch
