"""Moves a member towards its target tasks (KIP-1071; Kafka: CurrentAssignmentBuilder).

A member first releases the tasks that it must give up (UNREVOKED_TASKS), and confirms that with the
tasks that it still owns. A new owner waits for that (UNRELEASED_TASKS). An active task has one
process at a time. Two members of one process never have the same task at the same time, because
they share the state directory.

A task may change its role within one member. From active to standby, and between standby and
warm-up, this needs no confirmation. A standby or warm-up task that becomes active keeps its role
until the member gets the active task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec.structs import replace

from barnabas.coordinator.group.assignors.task_input import MemberTasks
from barnabas.coordinator.group.refusal import RefusalError
from barnabas.coordinator.group.streams.streams_member import (
    NO_OWNED_TASKS,
    OwnedTasks,
    StreamsMemberState,
    each_task,
)
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Set as AbstractSet

    from barnabas.coordinator.group.assignors.task_input import Tasks
    from barnabas.coordinator.group.streams.streams_member import ActiveTasks, StreamsMember

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
        tasks = (member.assigned, NO_OWNED_TASKS)
        return _advanced(member, StreamsMemberState.STABLE, towards.target_epoch, tasks)
    step = _Step(member, towards)
    step.divide()
    step.change_roles()
    if step.promote():
        return _advanced(
            member,
            StreamsMemberState.UNREVOKED_TASKS,
            epoch,
            (step.kept.as_owned(), step.revoked.as_owned()),
        )
    step.kept.active.update(step.added.active)
    step.kept.standby |= step.added.standby
    step.kept.warmup |= step.added.warmup
    state = StreamsMemberState.STABLE
    if step.has_unreleased:
        state = StreamsMemberState.UNRELEASED_TASKS
    assigned = step.kept.as_owned()
    return _advanced(member, state, towards.target_epoch, (assigned, NO_OWNED_TASKS))


def _advanced(
    member: StreamsMember,
    state: StreamsMemberState,
    epoch: int,
    tasks: tuple[OwnedTasks, OwnedTasks],
) -> StreamsMember:
    assigned, pending = tasks
    after = replace(
        member,
        state=state,
        member_epoch=epoch,
        previous_member_epoch=member.member_epoch,
        assigned=assigned,
        pending_revocation=pending,
    )
    return member if after == member else after
