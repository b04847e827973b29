"""Operations of the members of a consumer group: the input of `member_checker`.

In addition to the events of `storms.history`, it has heartbeats, and requests that a correct
coordinator rejects. Times are nanoseconds of one clock, as in the events.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from storms.history import Event


class Heartbeat(NamedTuple):
    """A heartbeat with a response of the coordinator."""

    member: str
    asked_ns: int
    # Whether the response has no error, so that the member stays in the group.
    is_served: bool


class Probe(NamedTuple):
    """A request that the coordinator must refuse, and its error code."""

    kind: str
    error_code: int
    text: str


@dataclass
class MemberHistory:
    """The history of one topic and one group."""

    session_ns: int
    events: list[Event] = field(default_factory=list)
    heartbeats: list[Heartbeat] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    # Instance ids of static members. Members of one instance replace each other in one epoch.
    instances: dict[str, str] = field(default_factory=dict)
    # Time of death by member.
    deaths: dict[str, int] = field(default_factory=dict)
    # Times in which a former coordinator may not know of its successor.
    isolations: list[tuple[int, int]] = field(default_factory=list)
    # End offset of each partition, and the committed offsets that another client fetched, by time.
    ends: dict[int, int] = field(default_factory=dict)
    seen: dict[int, list[int]] = field(default_factory=dict)
    # Long after the last fault: the partitions of each live member, from its own view.
    final: dict[str, frozenset[int]] = field(default_factory=dict)

    def is_isolated(self, began_ns: int, ended_ns: int) -> bool:
        """Return whether a node was isolated in a time."""
        return any(a <= ended_ns and b >= began_ns for a, b in self.isolations)
