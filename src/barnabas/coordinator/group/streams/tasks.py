"""Tasks of the members of streams groups, by subtopology and partition."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

# Partitions by subtopology id. No set is empty.
Tasks = Mapping[str, frozenset[int]]

NO_TASKS: Tasks = MappingProxyType({})


class MemberTasks(msgspec.Struct, frozen=True):
    """The tasks of one member, by role (Kafka: TasksTuple)."""

    active: Tasks = NO_TASKS
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS


NO_MEMBER_TASKS = MemberTasks()
