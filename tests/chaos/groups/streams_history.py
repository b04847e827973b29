"""What the members of a streams group (KIP-1071) saw: the input of `streams_checker`.

The topology has one subtopology, so a task is the number of a partition. Times are seconds of one
clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class ServedHeartbeat(NamedTuple):
    """A heartbeat without an error, and the state of the member after it."""

    # When the response arrived, and when the request was sent.
    at: float
    asked: float
    member: str
    epoch: int
    tasks: frozenset[int]
    # Whether the member joined with it, and so gave up all its tasks before.
    is_joining: bool


class TaskCommit(NamedTuple):
    """A request to commit an offset of one task, and its error code."""

    asked: float
    member: str
    epoch: int
    task: int
    error_code: int


@dataclass
class StreamsHistory:
    """The history of one group."""

    # Number of tasks.
    tasks: int
    heartbeats: list[ServedHeartbeat] = field(default_factory=list)
    commits: list[TaskCommit] = field(default_factory=list)
    # When the response to the last heartbeat of a member that left arrived.
    departures: dict[str, float] = field(default_factory=dict)
    # Long after the last fault: the tasks of each live member, from its own view.
    final: dict[str, frozenset[int]] = field(default_factory=dict)
