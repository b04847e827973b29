"""The tasks of a streams group's member, and how it moves towards its target tasks (KIP-1071).

Kafka: StreamsGroupMember and CurrentAssignmentBuilder. A member first releases the tasks that it
must give up (UNREVOKED_TASKS), and confirms that with the tasks that it still owns. A new owner
waits for that (UNRELEASED_TASKS). An active task has one process at a time. Two members of one
process never have the same task at the same time, because they share the state directory.

A task may change its role within one member. From active to standby, and between standby and
warm-up, this needs no confirmation. A standby or warm-up task that becomes active keeps its role
until the member gets the active task.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from barnabas.coordinator.group.group_base import GroupMember, RefusalError
from barnabas.coordinator.group.replayed_group import advanced
from barnabas.coordinator.group.streams.task_assignors import (
    NO_OFFSETS,
    NO_TASKS,
    MemberTasks,
    Tasks,
)
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Set as AbstractSet

    from barnabas.protocol.messages.streams_groups import TaskOffset

    Task = tuple[str, int]


class TaskOwners(Protocol):
    """The processes that have tasks now, by (subtopology id, partition)."""

    def active_process(self, task: tuple[str, int]) -> str | None:
        """Return the process that runs the active task, or None."""
        ...

    def standby_processes(self, task: tuple[str, int]) -> AbstractSet[str]:
        """Return the processes that have the standby task."""
        ...

    def warmup_processes(self, task: tuple[str, int]) -> AbstractSet[str]:
        """Return the processes that have the warm-up task."""
        ...


class TaskReconciliation(msgspec.Struct, frozen=True):
    """The target of a member, and the facts that decide its next step."""

    target_epoch: int
    target: MemberTasks
    owners: TaskOwners
    # The tasks that the client reports as owned, or None if its request has none.
    reported: MemberTasks | None


def reconcile_tasks(member: StreamsMember, towards: TaskReconciliation) -> StreamsMember:
    """Return the next state of a member. The result is `member` itself if nothing changes.

    Raises:
        RefusalError: the state of the member is unknown, and the client owns tasks.
    """
    match member.state:
        case StreamsMemberState.STABLE:
            if member.member_epoch == towards.target_epoch:
                return member
            return _next(member, member.member_epoch, towards)
        case StreamsMemberState.UNREVOKED_TASKS:
            if _has_not_released(member.pending_revocation, towards):
                return member
            return _next(member, member.member_epoch + 1, towards)
        case StreamsMemberState.UNRELEASED_TASKS:
            return _next(member, member.member_epoch, towards)
        case StreamsMemberState.UNKNOWN:
            if towards.reported is None or towards.reported != MemberTasks():
                raise RefusalError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The streams group member is in a unknown state. The member must abandon all "
                    "its tasks and rejoin.",
                )
            return _next(member, towards.target_epoch, towards)


def _has_not_released(tasks: OwnedTasks, towards: TaskReconciliation) -> bool:
    """Whether the client still owns one of the tasks. Without a report, it does."""
    return towards.reported is None or tasks.has_any(towards.reported)


class _Roles(msgspec.Struct):
    """Tasks by role, while they are computed."""

    # Epoch by task.
    active: dict[Task, int] = msgspec.field(default_factory=dict)
    standby: set[Task] = msgspec.field(default_factory=set)
    warmup: set[Task] = msgspec.field(default_factory=set)

    @property
    def is_empty(self) -> bool:
        return not (self.active or self.standby or self.warmup)

    def as_owned(self) -> OwnedTasks:
        active: dict[str, dict[int, int]] = {}
        for (subtopology, index), epoch in sorted(self.active.items()):
            active.setdefault(subtopology, {})[index] = epoch
        return OwnedTasks(active, _grouped(self.standby), _grouped(self.warmup))


def _grouped(tasks: Collection[Task]) -> Tasks:
    grouped: dict[str, set[int]] = {}
    for subtopology, index in sorted(tasks):
        grouped.setdefault(subtopology, set()).add(index)
    return {each: frozenset(indexes) for each, indexes in grouped.items()}


class _Step:
    """One computation of the next assignment of a member."""

    def __init__(self, member: StreamsMember, towards: TaskReconciliation) -> None:
        self._member = member
        self._towards = towards
        self._had_active = set(each_task(member.assigned.active))
        self._had_standby = set(each_task(member.assigned.standby))
        self._had_warmup = set(each_task(member.assigned.warmup))
        self.kept, self.revoked, self.added = _Roles(), _Roles(), _Roles()
        # Whether the member waits for a task.
        self.has_unreleased = False

    def divide(self) -> None:
        """Divide the current and the target tasks into kept, revoked and added tasks."""
        target = self._towards.target
        wanted = set(each_task(target.active))
        for task, epoch in _with_epochs(self._member.assigned.active):
            (self.kept if task in wanted else self.revoked).active[task] = epoch
        for task in self._free(wanted - self._had_active, self._is_active_taken):
            self.added.active[task] = self._towards.target_epoch
        wanted = set(each_task(target.standby))
        self.kept.standby = self._had_standby & wanted
        self.revoked.standby = self._had_standby - wanted
        self.added.standby = self._free(wanted - self._had_standby, self._is_standby_taken)
        wanted = set(each_task(target.warmup))
        self.kept.warmup = self._had_warmup & wanted
        self.revoked.warmup = self._had_warmup - wanted
        self.added.warmup = self._free(wanted - self._had_warmup, self._is_warmup_taken)

    def _free(self, tasks: Iterable[Task], is_taken: Callable[[Task], bool]) -> set[Task]:
        """Return the tasks that the member may have now."""
        free: set[Task] = set()
        for task in tasks:
            if is_taken(task):
                self.has_unreleased = True
            else:
                free.add(task)
        return free

    def _is_active_taken(self, task: Task) -> bool:
        return (
            self._towards.owners.active_process(task) is not None
            or self._has_sibling_standby(task)
            or self._has_sibling_warmup(task)
        )

    def _is_standby_taken(self, task: Task) -> bool:
        own = self._member.process_id
        owners = self._towards.owners
        return (
            (owners.active_process(task) == own and task not in self._had_active)
            or own in owners.standby_processes(task)
            or self._has_sibling_warmup(task)
        )

    def _is_warmup_taken(self, task: Task) -> bool:
        own = self._member.process_id
        owners = self._towards.owners
        return (
            owners.active_process(task) == own
            or self._has_sibling_standby(task)
            or own in owners.warmup_processes(task)
        )

    def _has_sibling_standby(self, task: Task) -> bool:
        """Whether another member of the same process has the standby task."""
        own = self._member.process_id
        return own in self._towards.owners.standby_processes(task) and task not in self._had_standby

    def _has_sibling_warmup(self, task: Task) -> bool:
        """Whether another member of the same process has the warm-up task."""
        own = self._member.process_id
        return own in self._towards.owners.warmup_processes(task) and task not in self._had_warmup

    def change_roles(self) -> None:
        """Let tasks of this member change between roles that need no confirmation."""
        for task in self._had_active & self.added.standby:
            self.added.standby.remove(task)
            self.kept.standby.add(task)
        for task in self._had_standby & self.added.warmup:
            self.added.warmup.remove(task)
            self.kept.warmup.add(task)
            self.revoked.standby.discard(task)
        for task in self._had_warmup & self.added.standby:
            self.added.standby.remove(task)
            self.kept.standby.add(task)
            self.revoked.warmup.discard(task)

    def promote(self) -> bool:
        """Keep replicas that become active until then. Return whether tasks must be released."""
        promoted = set(each_task(self._towards.target.active))
        self.revoked.standby -= promoted
        self.revoked.warmup -= promoted
        must_release = not self.revoked.is_empty and _has_not_released(
            self.revoked.as_owned(), self._towards
        )
        granted: Collection[Task] = () if must_release else self.added.active
        waiting = promoted.difference(granted)
        self.kept.standby |= self._had_standby & waiting
        self.kept.warmup |= self._had_warmup & waiting
        return must_release


def _with_epochs(active: ActiveTasks) -> Iterable[tuple[Task, int]]:
    for subtopology, epochs in active.items():
        for index, epoch in epochs.items():
            yield (subtopology, index), epoch


def _next(member: StreamsMember, epoch: int, towards: TaskReconciliation) -> StreamsMember:
    """Return the member after the next step.

    Args:
        member: the member.
        epoch: the member's epoch if it must first release tasks.
        towards: the target.
    """
    if member.assigned.is_equal_to(towards.target):
        state = StreamsMemberState.STABLE
        return advanced(member, state, towards.target_epoch, member.assigned, NO_OWNED_TASKS)
    step = _Step(member, towards)
    step.divide()
    step.change_roles()
    if step.promote():
        return advanced(
            member,
            StreamsMemberState.UNREVOKED_TASKS,
            epoch,
            step.kept.as_owned(),
            step.revoked.as_owned(),
        )
    step.kept.active.update(step.added.active)
    step.kept.standby |= step.added.standby
    step.kept.warmup |= step.added.warmup
    state = StreamsMemberState.STABLE
    if step.has_unreleased:
        state = StreamsMemberState.UNRELEASED_TASKS
    assigned = step.kept.as_owned()
    return advanced(member, state, towards.target_epoch, assigned, NO_OWNED_TASKS)


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


NO_TAGS: Mapping[str, str] = MappingProxyType({})


class UserEndpoint(msgspec.Struct, frozen=True):
    """The address at which a client answers interactive queries."""

    host: str
    port: int


class StreamsMember(GroupMember, frozen=True):
    """A member of a streams group."""

    previous_member_epoch: int = 0
    state: StreamsMemberState = StreamsMemberState.STABLE
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
