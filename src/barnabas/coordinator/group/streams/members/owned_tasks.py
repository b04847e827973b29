"""The tasks of a member, with the epochs of the active ones (Kafka: TasksTupleWithEpochs)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from barnabas.coordinator.group.streams.tasks import NO_TASKS, MemberTasks, Tasks

if TYPE_CHECKING:
    from collections.abc import Iterator

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
