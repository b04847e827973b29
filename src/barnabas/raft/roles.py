"""The roles of a replica in an epoch (KIP-595; Prospective KIP-996), one class each.

Only `core.RaftCore` moves a replica from one to another. A role holds what is true only in it, so
that leaving it forgets that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.raft.listener import NO_LEADER

if TYPE_CHECKING:
    from barnabas.raft.messages import FetchRequest

NEVER = float("inf")


class Unattached(msgspec.Struct):
    """Knows no leader of the epoch. An observer stays here until it is told one."""

    # When to run for leader; NEVER for an observer.
    election_deadline: float


class Prospective(msgspec.Struct):
    """Asks whether it could win before it disturbs anybody with a new epoch (pre-vote)."""

    election_deadline: float
    # Voters that would vote for us, ourselves included.
    granted: set[int]
    rejected: set[int] = msgspec.field(default_factory=set)
    # The leader we lost touch with; NO_LEADER if there was none.
    lost_leader_id: int = NO_LEADER


class Candidate(msgspec.Struct):
    """Voted for itself in a new epoch and asks the others."""

    election_deadline: float
    granted: set[int]
    rejected: set[int] = msgspec.field(default_factory=set)


class Follower(msgspec.Struct):
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


class ReplicaState(msgspec.Struct):
    """What a leader knows of another replica."""

    # It has all below this on disk; None until it fetched in this epoch.
    end_offset: int | None = None
    last_fetch_ms: float = -NEVER
    # When it was last told that the epoch began.
    begin_sent_ms: float = -NEVER


class ParkedFetch(msgspec.Struct):
    """A fetch that waits for records."""

    request: FetchRequest
    deadline: float


class Leader(msgspec.Struct):
    """Won the election of its epoch."""

    # Offset of its LeaderChange record: nothing is committed before that is.
    epoch_start_offset: int
    granting_voters: tuple[int, ...]
    # Its own log is on disk up to here.
    synced_offset: int
    # The other voters.
    voters: dict[int, ReplicaState]
    observers: dict[int, ReplicaState] = msgspec.field(default_factory=dict)
    parked: dict[int, ParkedFetch] = msgspec.field(default_factory=dict)
    # When to step down unless a majority of the voters has fetched by then.
    check_quorum_deadline: float = NEVER


class Resigned(msgspec.Struct):
    """Led this epoch and gave it up, by its own will or by a restart; still tells the others."""

    election_deadline: float
    # Voters to be told, and when next.
    unacknowledged: set[int]
    preferred_candidates: tuple[int, ...]
    resend_at: float = NEVER


Role = Unattached | Prospective | Candidate | Follower | Leader | Resigned
