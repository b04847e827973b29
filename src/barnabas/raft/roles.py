"""The roles of a replica in an epoch (KIP-595; Prospective KIP-996), one class each.

Only `replica.Replica` moves a replica from one to another, as `TRANSITIONS` allows. A role holds
what is true only in it, so that leaving it forgets that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.raft.listener import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.raft.listener import SnapshotId
    from barnabas.raft.messages import FetchRequest
    from barnabas.raft.replica_key import Address, ReplicaKey
    from barnabas.raft.voter_change import VoterChange
    from barnabas.raft.voter_set import Voter

NEVER = float("inf")


class Unattached(msgspec.Struct):
    """Knows no leader of the epoch to follow. An observer stays here until it finds one."""

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
    # Until then another one goes first, who asks the same and is preferred; set once at most, so
    # that nobody is held up for long by one that comes to nothing.
    yields_until: float | None = None


class Candidate(msgspec.Struct):
    """Voted for itself in a new epoch and asks the others."""

    election_deadline: float
    granted: set[int]
    rejected: set[int] = msgspec.field(default_factory=set)


class SnapshotFetch(msgspec.Struct):
    """The leader's snapshot on its way."""

    id: SnapshotId
    # Bytes that are here.
    position: int = 0
    # All are; it is being put in place.
    is_complete: bool = False


class Follower(msgspec.Struct):
    """Fetches from the leader of the epoch. An observer too."""

    leader_id: int
    # Where it listens, as far as that was said; else the voters' addresses hold.
    leader_address: Address | None
    # When the leader counts as lost: it has not answered a fetch for so long.
    fetch_deadline: float
    # The same, when its connection broke and no new one came about; NEVER while all is well.
    lost_deadline: float = NEVER
    # Whether it has let another one go first since then: once, so that nobody is held up for long.
    has_yielded: bool = False
    # Whether the leader answered us in this epoch: if so, no pre-vote is granted to others.
    has_fetched: bool = False
    # The leader said that it steps down: whoever wants to follow it is welcome.
    has_resigned: bool = False
    # High watermark that came with records which are being written; the next fetch waits for them.
    syncing_to: int | None = None
    snapshot: SnapshotFetch | None = None
    # When to see whether the leader knows where we listen, or to ask to become a voter.
    update_voter_at: float = NEVER
    # Whether the leader was told so in this epoch.
    has_updated_leader: bool = False


class ReplicaState(msgspec.Struct):
    """What a leader knows of another replica."""

    key: ReplicaKey
    # It has all below this on disk; None until it fetched in this epoch.
    end_offset: int | None = None
    # Of fetches of log or snapshot.
    last_fetch_ms: float = -NEVER
    # The leader's log end at that fetch.
    leader_end_at_fetch: int = -1
    # When it last had everything that there was.
    last_caught_up_ms: float = -NEVER
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
    # The other voters, by node id.
    voters: dict[int, ReplicaState]
    # When to step down unless a majority of the voters has fetched by then.
    check_quorum_deadline: float
    observers: dict[ReplicaKey, ReplicaState] = msgspec.field(default_factory=dict)
    parked: dict[ReplicaKey, ParkedFetch] = msgspec.field(default_factory=dict)
    # The change of the voters that is under way; one at a time.
    change: VoterChange | None = None
    # What static voters have said of themselves, by node id: an upgrade to dynamic ones needs it.
    described: dict[int, Voter] = msgspec.field(default_factory=dict)


class Resigned(msgspec.Struct):
    """Led this epoch and gave it up, by its own will or by a restart; still tells the others."""

    election_deadline: float
    # Voters to be told.
    unacknowledged: set[int]
    preferred_candidates: tuple[ReplicaKey, ...]


Role = Unattached | Prospective | Candidate | Follower | Leader | Resigned

# Role -> the roles that may come next. Into the role it has a replica may come anew: as follower
# of a later leader, unattached in a later epoch.
TRANSITIONS: Mapping[type[Role], tuple[type[Role], ...]] = {
    Unattached: (Unattached, Prospective, Follower),
    Prospective: (Unattached, Candidate, Follower),
    Candidate: (Unattached, Prospective, Follower, Leader),
    Follower: (Unattached, Prospective, Follower),
    Leader: (Unattached, Follower, Resigned),
    Resigned: (Unattached, Prospective, Follower),
}
