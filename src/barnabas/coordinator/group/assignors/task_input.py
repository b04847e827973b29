"""The input of the task assignors (Kafka: GroupSpec and TopologyDescriber)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Generator


# Partitions by subtopology id. No set is empty.
Tasks = Mapping[str, frozenset[int]]


NO_TASKS: Tasks = MappingProxyType({})


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
