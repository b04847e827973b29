"""What the members of a streams group (KIP-1071) saw: the input of `streams_checker`.

Times are seconds of one clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from chaos.groups.streams_topology import StreamsTopology, Task


class StreamsIdentity(NamedTuple):
    """A member, and the process with the state directory of its tasks."""

    member_id: str
    process_id: str
    # Of a static member.
    instance_id: str | None = None

    @property
    def owner(self) -> str:
        """The owner of the tasks: a static member keeps them when its member id changes."""
        return self.instance_id or self.member_id


class OwnedTasks(NamedTuple):
    """The tasks of a member, by role."""

    active: frozenset[Task] = frozenset()
    standby: frozenset[Task] = frozenset()
    warmup: frozenset[Task] = frozenset()

    @property
    def replicas(self) -> frozenset[Task]:
        """Tasks whose state the member copies."""
        return self.standby | self.warmup


class ServedHeartbeat(NamedTuple):
    """A heartbeat without an error, and the state of the member after it."""

    # When the response arrived, and when the request was sent.
    at: float
    asked: float
    member: StreamsIdentity
    epoch: int
    tasks: OwnedTasks
    # Whether the member joined with it, and so gave up all its tasks before.
    is_joining: bool


class TaskCommit(NamedTuple):
    """A request to commit an offset of one task, and its error code."""

    asked: float
    member: StreamsIdentity
    epoch: int
    task: Task
    error_code: int


@dataclass
class StreamsHistory:
    """The history of one group."""

    topology: StreamsTopology
    heartbeats: list[ServedHeartbeat] = field(default_factory=list)
    commits: list[TaskCommit] = field(default_factory=list)
    # When the response to the last heartbeat of a member that left arrived.
    departures: dict[StreamsIdentity, float] = field(default_factory=dict)
    # Long after the last fault: the tasks of each live member, from its own view.
    final: dict[StreamsIdentity, OwnedTasks] = field(default_factory=dict)
