"""What the members of a consumer group saw and did: what `member_checker` judges.

Beside the events of `storms.history` it has heartbeats, and requests that only a broken coordinator
serves. Times are nanoseconds of one clock, as in the events.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from storms.history import Event


class Heartbeat(NamedTuple):
    """A heartbeat that the coordinator has answered."""

    member: str
    asked_ns: int
    # Whether the coordinator served it, and the member stays a member.
    is_served: bool


class Probe(NamedTuple):
    """A request that the coordinator must refuse, and its error code."""

    kind: str
    error_code: int
    text: str


@dataclass
class MemberHistory:
    """All of it, about one topic and one group."""

    session_ns: int
    events: list[Event] = field(default_factory=list)
    heartbeats: list[Heartbeat] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    # Instance ids of static members. Those of one instance follow each other in one epoch.
    instances: dict[str, str] = field(default_factory=dict)
    # Members by the time at which they died.
    deaths: dict[str, int] = field(default_factory=dict)
    # Times in which a node may not know that it is no coordinator any more.
    isolations: list[tuple[int, int]] = field(default_factory=list)
    # End offset of each partition, and the group's offsets as seen from outside, in order of time.
    ends: dict[int, int] = field(default_factory=dict)
    seen: dict[int, list[int]] = field(default_factory=dict)
    # After long calm: the partitions of each living member, by its own view.
    final: dict[str, frozenset[int]] = field(default_factory=dict)

    def is_isolated(self, began_ns: int, ended_ns: int) -> bool:
        """Return whether a node was isolated in a time."""
        return any(a <= ended_ns and b >= began_ns for a, b in self.isolations)
