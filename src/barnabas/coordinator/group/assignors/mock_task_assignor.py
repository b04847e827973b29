"""The `mock` assignor of streams groups: owners keep their active tasks, without balance.

It takes the decisions of Kafka's MockAssignor, which a configuration can name by its class. Free
tasks go to the members with the fewest tasks. It assigns no standby tasks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.assignors.task_input import STEP, MemberTasks, TaskAssignorError
from barnabas.protocol.java_collections import (
    JavaQueue,
    JavaTable,
    member_order,
    string_hash,
    string_order,
)

if TYPE_CHECKING:
    from barnabas.coordinator.group.assignors.task_input import StreamsInput, TaskAssigning


def assign_mock(given: StreamsInput) -> TaskAssigning:
    """Return the tasks of each member. Yields.

    Raises:
        TaskAssignorError: two members own the same active task, a member owns a task that the
            topology does not have, or a group with tasks has no members.
    """
    members = yield from member_order(given.members)
    found: dict[str, dict[str, set[int]]] = {}
    owned: set[tuple[str, int]] = set()
    for member_id in members:
        active = given.members[member_id].owned.active
        found[member_id] = {each: set(partitions) for each, partitions in active.items()}
        for subtopology_id, partitions in active.items():
            subtopology = given.subtopologies.get(subtopology_id)
            for partition in partitions:
                if subtopology is None or partition >= subtopology.tasks:
                    message = f"Task {subtopology_id}_{partition} is not part of the topology."
                    raise TaskAssignorError(message)
                if (subtopology_id, partition) in owned:
                    message = f"Task {subtopology_id}_{partition} has two owners."
                    raise TaskAssignorError(message)
                owned.add((subtopology_id, partition))
        yield
    counts = [(each, sum(map(len, found[each].values()))) for each in members]
    queue = JavaQueue((count, each) for each, count in JavaTable(_count_hash, counts))
    order = JavaTable(string_hash, sorted(given.subtopologies, key=string_order))
    for subtopology_id in order:
        for partition in range(given.subtopologies[subtopology_id].tasks):
            if (subtopology_id, partition) not in owned:
                receiver = queue.poll()
                if receiver is None:
                    message = f"No member is available for task {subtopology_id}_{partition}."
                    raise TaskAssignorError(message)
                own = found[receiver]
                own.setdefault(subtopology_id, set()).add(partition)
                queue.add(sum(map(len, own.values())), receiver)
            if partition % STEP == STEP - 1:
                yield
        yield
    return {
        member_id: MemberTasks({each: frozenset(own) for each, own in found[member_id].items()})
        for member_id in given.members
    }


def _count_hash(count: tuple[str, int]) -> int:
    """Return Java's hash of a record of a member id and its number of tasks."""
    member_id, tasks = count
    return (31 * string_hash(member_id) + tasks) & 0xFFFF_FFFF
