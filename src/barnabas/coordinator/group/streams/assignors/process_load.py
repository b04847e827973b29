"""The tasks of one process of a streams application during an assignment (Kafka: ProcessState)."""

from __future__ import annotations

from typing import TypeAlias

from barnabas.protocol.java_collections import JavaQueue, JavaTable, string_hash

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
