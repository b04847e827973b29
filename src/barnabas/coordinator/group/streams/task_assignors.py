"""The `sticky` assignor of streams groups: balanced, with as few movements as possible.

It takes the decisions of Kafka's StickyTaskAssignor. Active tasks go to their last owners, then to
members that have their state, then to the processes with the least load. Standby tasks follow in
the same way, on processes that do not have the task. Racks and client tags do not influence it,
and it assigns no warm-up tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from heapq import merge
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

import msgspec

from barnabas.protocol.java_collections import (
    JavaQueue,
    JavaTable,
    capacity_for,
    member_order,
    string_hash,
    string_order,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

_log = logging.getLogger(__name__)


# Partitions by subtopology id. No set is empty.
Tasks = Mapping[str, frozenset[int]]
T = TypeVar("T")


NO_TASKS: Tasks = MappingProxyType({})


def task_lists(item: Callable[..., T], tasks: Mapping[str, Iterable[int]]) -> list[T]:
    """Return tasks as they are in records and messages: one `item` for each subtopology."""
    return [
        item(subtopology_id=each, partitions=sorted(indexes))
        for each, indexes in sorted(tasks.items())
    ]


class MemberTasks(msgspec.Struct, frozen=True):
    """The tasks of one member, by role (Kafka: TasksTuple)."""

    active: Tasks = NO_TASKS
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS


NO_MEMBER_TASKS = MemberTasks()


# An assignor in progress: it yields after each step, and returns the tasks of each member. A step
# takes at most some tenths of a millisecond.
TaskAssigning: TypeAlias = "Generator[None, None, dict[str, MemberTasks]]"

# Offsets by subtopology id and partition.
TaskOffsets = Mapping[str, Mapping[int, int]]

NO_OFFSETS: TaskOffsets = MappingProxyType({})

# Members or tasks that an assignor handles in one step.
STEP = 64


class TaskAssignorError(Exception):
    """The assignor cannot assign the tasks (Kafka: TaskAssignorException)."""


class StreamsMemberInput(msgspec.Struct, frozen=True):
    """One member, as a task assignor sees it."""

    # Identifies the process of the member. Members of one process share its state directory.
    process_id: str
    # The tasks that the member owns now. This is not its last target assignment.
    owned: MemberTasks = NO_MEMBER_TASKS
    # The sums of the changelog offsets that the member has reported, by task.
    offsets: TaskOffsets = NO_OFFSETS


class SubtopologyInput(msgspec.Struct, frozen=True):
    """One subtopology, as a task assignor sees it."""

    # Number of tasks: the largest number of partitions of its source topics.
    tasks: int
    # Whether the subtopology has state stores with changelog topics. Only such tasks get standbys.
    is_stateful: bool


class StreamsInput(msgspec.Struct, frozen=True):
    """All members by id, and all subtopologies by id."""

    members: Mapping[str, StreamsMemberInput]
    subtopologies: Mapping[str, SubtopologyInput]
    # Number of standby tasks that each stateful task should have.
    standby_replicas: int = 0


# Subtopology id and partition.
Task: TypeAlias = "tuple[str, int]"


class ProcessLoad:
    """One process with the tasks that its members have got so far."""

    __slots__ = ("_by_load", "_members", "active", "counts", "load", "standby", "tasks")

    def __init__(self) -> None:
        # Ids of the members, in the order of Kafka's map.
        self._members: JavaTable[str] = JavaTable(string_hash)
        # Number of tasks of each member. Additions raise it.
        self.counts: dict[str, int] = {}
        # Tasks of the process. A process has each task at most once.
        self.tasks: set[Task] = set()
        # Tasks by member id and role.
        self.active: dict[str, list[Task]] = {}
        self.standby: dict[str, list[Task]] = {}
        # Number of tasks per member.
        self.load = 0.0
        # Members by their number of tasks. None if a task was added to a chosen member since.
        self._by_load: JavaQueue[str] | None = None

    def add_member(self, member_id: str) -> None:
        """Add a member without tasks. All members are added before the first task."""
        self._members.add(member_id)
        self.counts[member_id] = 0

    def add_task(self, member_id: str, task: Task, *, is_active: bool) -> int:
        """Give a member a task. Return its new number of tasks."""
        count = self._add(member_id, task, is_active=is_active)
        self._by_load = None
        return count

    def add_to_least_loaded(self, task: Task, *, is_active: bool) -> int:
        """Give a task to a member with the fewest tasks. Return its new number of tasks."""
        if len(self.counts) == 1:
            (only,) = self.counts
            return self._add(only, task, is_active=is_active)
        if self._by_load is None:
            self._by_load = JavaQueue((self.counts[each], each) for each in self._members)
        member_id = self._by_load.poll()
        assert member_id is not None, "a process has members"
        count = self._add(member_id, task, is_active=is_active)
        self._by_load.add(count, member_id)
        return count

    def _add(self, member_id: str, task: Task, *, is_active: bool) -> int:
        self.tasks.add(task)
        self.counts[member_id] += 1
        by_member = self.active if is_active else self.standby
        by_member.setdefault(member_id, []).append(task)
        self.load = len(self.tasks) / len(self.counts)
        return self.counts[member_id]


def assign_sticky(given: StreamsInput) -> TaskAssigning:
    """Return the tasks of each member. Yields."""
    known = _known_tasks(given)
    if known is not None:
        return known
    assigning = _Assigning(given)
    yield from assigning.read_members()
    yield from assigning.assign_active()
    if given.standby_replicas > 0:
        yield from assigning.assign_standby()
    return (yield from assigning.result())


def _known_tasks(given: StreamsInput) -> dict[str, MemberTasks] | None:
    """Return the tasks of a small group without the general algorithm; None if it must decide.

    The only member gets all tasks. Balanced members keep their tasks if these are all tasks.
    """
    members, subtopologies = given.members, given.subtopologies
    if not members or len(members) > STEP:
        return None
    if len(members) == 1:
        # Only other processes could have standby tasks.
        active = {
            each: frozenset(range(own.tasks)) for each, own in subtopologies.items() if own.tasks
        }
        return dict.fromkeys(members, MemberTasks(active))
    count = 0
    for subtopology in subtopologies.values():
        if given.standby_replicas and subtopology.is_stateful:
            return None
        count += subtopology.tasks
    if count > STEP:
        return None
    owned = [set(_tasks_of(each.owned.active)) for each in members.values()]
    counts = [len(each) for each in owned]
    if sum(counts) != count or max(counts) - min(counts) > 1:
        return None
    tasks = {(each, index) for each, own in subtopologies.items() for index in range(own.tasks)}
    if tasks != set().union(*owned):
        return None
    return {member_id: MemberTasks(each.owned.active) for member_id, each in members.items()}


class _Owner(NamedTuple):
    """A member with its process."""

    member_id: str
    process: ProcessLoad


class _Candidate(NamedTuple):
    """A member that has the state of a task. Candidates are sorted by these fields."""

    # 0 if the member has the standby task, 1 if it has only reported offsets.
    rank: int
    # The negative sum of the offsets: the member with most of the state comes first.
    missing: int
    owner: _Owner


class _Quota:
    """The largest number of tasks of a member with which the rest fills the other members."""

    __slots__ = ("_members", "_tasks", "limit")

    def __init__(self, tasks: int, members: int) -> None:
        # Tasks without those of full members, and members that are not full.
        self._tasks = tasks
        self._members = members
        self.limit = self._compute()

    def on_count(self, count: int) -> None:
        """Lower the limit for the others if a member with this number of tasks is full."""
        if count == self.limit:
            self._members -= 1
            self._tasks -= count
            self.limit = self._compute()

    def _compute(self) -> int:
        return -(-self._tasks // self._members) if self._members else 0


class _Assigning:
    """One assignment in progress."""

    __slots__ = (
        "_active_owners",
        "_active_quota",
        "_by_id",
        "_candidates",
        "_given",
        "_order",
        "_processes",
        "_quota",
    )

    def __init__(self, given: StreamsInput) -> None:
        self._given = given
        # Ids of the subtopologies, in Java's order.
        self._order = sorted(given.subtopologies, key=string_order)
        self._by_id: dict[str, ProcessLoad] = {}
        # Ids of the processes, in the order of Kafka's map.
        self._processes: JavaTable[str] = JavaTable(
            string_hash, capacity=capacity_for(len(given.members)), is_computed=True
        )
        # The member that owns the active task now.
        self._active_owners: dict[Task, _Owner] = {}
        # Members that have the state of the task.
        self._candidates: dict[Task, list[_Candidate]] = {}
        active = sum(each.tasks for each in given.subtopologies.values())
        standby = given.standby_replicas * sum(
            each.tasks for each in given.subtopologies.values() if each.is_stateful
        )
        self._active_quota = _Quota(active, len(given.members))
        self._quota = _Quota(active + standby, len(given.members))

    def read_members(self) -> Generator[None, None, None]:
        """Collect the processes, and the tasks and offsets of all members."""
        members = yield from member_order(self._given.members)
        for member_id in members:
            member = self._given.members[member_id]
            # Each look-up may enlarge Kafka's map.
            self._processes.add(member.process_id)
            process = self._by_id.setdefault(member.process_id, ProcessLoad())
            process.add_member(member_id)
            yield from self._read_state(member, _Owner(member_id, process))

    def _read_state(self, member: StreamsMemberInput, owner: _Owner) -> Generator[None, None, None]:
        for task in _tasks_of(member.owned.active):
            self._active_owners[task] = owner
        yield
        standby = member.owned.standby
        for subtopology_id, partition in _tasks_of(standby):
            offset = member.offsets.get(subtopology_id, {}).get(partition, 0)
            self._add_candidate((subtopology_id, partition), _Candidate(0, -offset, owner))
        yield
        for subtopology_id, offsets in member.offsets.items():
            own = standby.get(subtopology_id, frozenset())
            for partition, offset in offsets.items():
                if partition not in own:
                    task = (subtopology_id, partition)
                    self._add_candidate(task, _Candidate(1, -offset, owner))
            yield

    def _add_candidate(self, task: Task, candidate: _Candidate) -> None:
        self._candidates.setdefault(task, []).append(candidate)

    def assign_active(self) -> Generator[None, None, None]:
        """Assign all active tasks."""
        if not self._by_id and any(each.tasks for each in self._given.subtopologies.values()):
            message = "No member is available for the active tasks."
            raise TaskAssignorError(message)
        remaining: dict[Task, None] = {}
        for position, task in enumerate(self._tasks_by_partition()):
            owner = self._active_owners.get(task)
            if owner is None or not _is_below(owner, self._active_quota):
                remaining[task] = None
            else:
                self._add_active(owner, task)
            if position % STEP == STEP - 1:
                yield
        # The order of the sorted tasks. Assigned tasks leave the dict meanwhile.
        for position, task in enumerate(list(remaining)):
            owner = self._least_loaded(task)
            if owner is not None and _is_below(owner, self._active_quota):
                self._add_active(owner, task)
                del remaining[task]
            if position % STEP == STEP - 1:
                yield
        queue = self._queue()
        for position, task in enumerate(self._tasks()):
            if task in remaining:
                process = queue.poll()
                assert process is not None, "there are members"
                count = process.add_to_least_loaded(task, is_active=True)
                self._on_active(count)
                queue.add(process.load, process)
            if position % STEP == STEP - 1:
                yield

    def _add_active(self, owner: _Owner, task: Task) -> None:
        self._on_active(owner.process.add_task(owner.member_id, task, is_active=True))

    def _on_active(self, count: int) -> None:
        self._active_quota.on_count(count)
        self._quota.on_count(count)

    def assign_standby(self) -> Generator[None, None, None]:
        """Assign standby tasks of stateful subtopologies."""
        # Tasks that lack standbys with the number of those, by subtopology.
        waiting: dict[str, list[tuple[Task, int]]] = {}
        replicas = self._given.standby_replicas
        for position, task in enumerate(self._stateful_tasks_reversed()):
            for assigned in range(replicas):
                owner = self._standby_owner(task)
                if owner is None:
                    waiting.setdefault(task[0], []).append((task, replicas - assigned))
                    break
                count = owner.process.add_task(owner.member_id, task, is_active=False)
                self._quota.on_count(count)
            if position % STEP == STEP - 1:
                yield
        queue = self._queue()
        lacking = 0
        ordered = (each for name in reversed(self._order) for each in waiting.get(name, ()))
        for position, (task, missing) in enumerate(ordered):
            for assigned in range(missing):
                if not self._assign_to_least_loaded(queue, task):
                    lacking += missing - assigned
                    break
            if position % STEP == STEP - 1:
                yield
        if lacking:
            _log.debug("Too few processes for the standby tasks: missing=%d", lacking)

    def _standby_owner(self, task: Task) -> _Owner | None:
        """Return a member that has the state of the task, and room for a standby task."""
        owner = self._active_owners.get(task)
        if owner is not None and task not in owner.process.tasks and _is_below(owner, self._quota):
            return owner
        owner = self._least_loaded(task, is_standby=True)
        return owner if owner is not None and _is_below(owner, self._quota) else None

    def _assign_to_least_loaded(self, queue: JavaQueue[ProcessLoad], task: Task) -> bool:
        """Assign a standby task to the first process without it. Return whether one exists."""
        polled: list[ProcessLoad] = []
        is_assigned = False
        while not is_assigned:
            process = queue.poll()
            if process is None:
                break
            polled.append(process)
            if task not in process.tasks:
                self._quota.on_count(process.add_to_least_loaded(task, is_active=False))
                is_assigned = True
        # Kafka does this by recursion, so the last process returns to the queue first.
        for process in reversed(polled):
            queue.add(process.load, process)
        return is_assigned

    def _least_loaded(self, task: Task, *, is_standby: bool = False) -> _Owner | None:
        """Return the candidate for the task with the least load.

        As in Kafka, a candidate replaces an earlier one only if both the load of its process and
        its own number of tasks are lower.
        """
        found: _Owner | None = None
        load = float("inf")
        count = 0
        for candidate in sorted(self._candidates.get(task, ()), key=_candidate_order):
            owner = candidate.owner
            process = owner.process
            if is_standby and task in process.tasks:
                continue
            own = process.counts[owner.member_id]
            if found is None or (process.load < load and own < count):
                found, load, count = owner, process.load, own
        return found

    def _queue(self) -> JavaQueue[ProcessLoad]:
        processes = (self._by_id[each] for each in self._processes)
        return JavaQueue((process.load, process) for process in processes)

    def _tasks(self) -> Iterator[Task]:
        """Yield all tasks, by subtopology and partition."""
        for subtopology_id in self._order:
            for partition in range(self._given.subtopologies[subtopology_id].tasks):
                yield subtopology_id, partition

    def _tasks_by_partition(self) -> Iterator[Task]:
        """Yield all tasks, by partition and subtopology."""
        counts = [(each, self._given.subtopologies[each].tasks) for each in self._order]
        partition = 0
        while counts:
            counts = [(each, tasks) for each, tasks in counts if tasks > partition]
            for subtopology_id, _ in counts:
                yield subtopology_id, partition
            partition += 1

    def _stateful_tasks_reversed(self) -> Iterator[Task]:
        """Yield the tasks that get standbys, by partition and subtopology, the last one first."""
        by_count: dict[int, list[int]] = {}
        for index, subtopology_id in enumerate(self._order):
            subtopology = self._given.subtopologies[subtopology_id]
            if subtopology.is_stateful:
                by_count.setdefault(subtopology.tasks, []).append(index)
        # Places of the subtopologies that have the partition.
        indexes: list[int] = []
        for partition in reversed(range(max(by_count, default=0))):
            if partition + 1 in by_count:
                indexes = list(merge(indexes, by_count[partition + 1]))
            for index in reversed(indexes):
                yield self._order[index], partition

    def result(self) -> TaskAssigning:
        """Return the tasks of each member."""
        found: dict[str, MemberTasks] = {}
        for position, (member_id, member) in enumerate(self._given.members.items()):
            process = self._by_id[member.process_id]
            found[member_id] = MemberTasks(
                _grouped(process.active.get(member_id, ())),
                _grouped(process.standby.get(member_id, ())),
            )
            if position % STEP == STEP - 1:
                yield
        return found


def _candidate_order(candidate: _Candidate) -> tuple[int, int]:
    return candidate.rank, candidate.missing


def _is_below(owner: _Owner, quota: _Quota) -> bool:
    return owner.process.counts[owner.member_id] < quota.limit


def _tasks_of(tasks: Tasks) -> Iterator[Task]:
    for subtopology_id, partitions in tasks.items():
        for partition in partitions:
            yield subtopology_id, partition


def _grouped(tasks: Iterable[Task]) -> Tasks:
    found: dict[str, list[int]] = {}
    for subtopology_id, partition in tasks:
        found.setdefault(subtopology_id, []).append(partition)
    return {each: frozenset(partitions) for each, partitions in found.items()}
