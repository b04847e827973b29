"""The topology of the streams group (KIP-1071).

Subtopology "0" reads the source topic and writes to a repartition topic. Subtopology "1" reads that
topic into a store, so its tasks have standby tasks. The coordinator creates the internal topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

GROUP = "chaos-streams"
# Configs of the group.
GROUP_CONFIGS = {"streams.num.standby.replicas": "1"}
STATELESS, STATEFUL = "0", "1"
REPARTITION, CHANGELOG = f"{GROUP}-words-repartition", f"{GROUP}-counts-changelog"
REPLICAS = 3


class Task(NamedTuple):
    """A task of the topology."""

    subtopology: str
    partition: int


class StreamsTopology(NamedTuple):
    """Both subtopologies."""

    source: str
    # Numbers of partitions, and so of tasks.
    source_partitions: int
    repartition_partitions: int

    @property
    def stateful_tasks(self) -> frozenset[Task]:
        """The tasks with a store."""
        return frozenset(Task(STATEFUL, number) for number in range(self.repartition_partitions))

    @property
    def tasks(self) -> frozenset[Task]:
        """All tasks."""
        stateless = {Task(STATELESS, number) for number in range(self.source_partitions)}
        return self.stateful_tasks | stateless

    def topic_of(self, task: Task) -> str:
        """Return the topic that a task reads."""
        return self.source if task.subtopology == STATELESS else REPARTITION

    def request_fields(self) -> dict[str, Any]:
        """Return the topology as a heartbeat has it."""
        first = {
            "subtopology_id": STATELESS,
            "source_topics": [self.source],
            "repartition_sink_topics": [REPARTITION],
        }
        second = {
            "subtopology_id": STATEFUL,
            "repartition_source_topics": [_internal(REPARTITION, self.repartition_partitions)],
            # It gets as many partitions as its subtopology has tasks.
            "state_changelog_topics": [_internal(CHANGELOG, 0)],
        }
        return {"epoch": 0, "subtopologies": [first, second]}


def _internal(name: str, partitions: int) -> dict[str, Any]:
    return {
        "name": name,
        "partitions": partitions,
        "replication_factor": REPLICAS,
        "topic_configs": [],
    }


def tasks_of(listed: Collection[Any]) -> frozenset[Task]:
    """Return the tasks of a response."""
    return frozenset(
        Task(each.subtopology_id, partition) for each in listed for partition in each.partitions
    )


def by_subtopology(tasks: Collection[Task]) -> list[dict[str, Any]]:
    """Return tasks as a heartbeat has them."""
    found: dict[str, list[int]] = {}
    for task in sorted(tasks):
        found.setdefault(task.subtopology, []).append(task.partition)
    return [{"subtopology_id": each, "partitions": numbers} for each, numbers in found.items()]
