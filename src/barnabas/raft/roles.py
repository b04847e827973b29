"""The roles of a replica in an epoch (KIP-595; Prospective KIP-996), one class each.

Only `core.RaftCore` moves a replica from one to another. A role holds what is true only in it, so
that leaving it forgets that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.raft.listener import NO_LEADER

if TYPE_CHECKING:
    from barnabas.raft.messages import FetchRequest

NEVER = float("inf")


@dataclass(slots=True)
class Unattached:
    """Knows no leader of the epoch. An observer stays here until it is told one."""

    # When to run for leader; NEVER for an observer.
    election_deadline: float


@dataclass(slots=True)
class Prospective:
    """Asks whether it could win before it disturbs anybody with a new epoch (pre-vote)."""

    election_deadline: float
    # Voters that would vote for us, ourselves included.
    granted: set[int]
    rejected: set[int] = field(default_factory=set)
    # The leader we lost touch with; NO_LEADER if there was none.
    lost_leader_id: int = NO_LEADER


@dataclass(slots=True)
class Candidate:
    """Voted for itself in a new epoch and asks the others."""

    election_deadline: float
    granted: set[int]
    rejected: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Follower:
    """Fetches from the leader of the epoch. An observer too, with no deadline."""

    leader_id: int
    # When the leader counts as lost: it has not answered a fetch for so long.
    fetch_deadline: float
    # When the fetch under way counts as lost; None while none is under way.
    request_deadline: float | None = None
    # Whether the leader answered us in this epoch: if so, no pre-vote is granted to others.
    has_fetched: bool = False
    # Records of the leader that are being written; the next fetch waits for them.
    syncing_to: int | None = None


@dataclass(slots=True)
class ReplicaState:
    """What a leader knows of another replica."""

    # It has all below this on disk; None until it fetched in this epoch.
    end_offset: int | None = None
    last_fetch_ms: float = -NEVER
    # When it was last told that the epoch began.
    begin_sent_ms: float = -NEVER


@dataclass(slots=True)
class ParkedFetch:
    """A fetch that waits for records."""

    request: FetchRequest
    deadline: float


@dataclass(slots=True)
class Leader:
    """Won the election of its epoch."""

    # Offset of its LeaderChange record: nothing is committed before that is.
    epoch_start_offset: int
    granting_voters: tuple[int, ...]
    # Its own log is on disk up to here.
    synced_offset: int
    # The other voters.
    voters: dict[int, ReplicaState]
    observers: dict[int, ReplicaState] = field(default_factory=dict)
    parked: dict[int, ParkedFetch] = field(default_factory=dict)
    # When to step down unless a majority of the voters has fetched by then.
    check_quorum_deadline: float = NEVER


@dataclass(slots=True)
class Resigned:
    """Led this epoch and gave it up, by its own will or by a restart; still tells the others."""

    election_deadline: float
    # Voters to be told, and when next.
    unacknowledged: set[int]
    preferred_candidates: tuple[int, ...]
    resend_at: float = NEVER


Role = Unattached | Prospective | Candidate | Follower | Leader | Resigned
