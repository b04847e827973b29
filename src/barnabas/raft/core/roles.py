"""The roles of a replica in an epoch, one class each (KIP-595; Prospective: KIP-996).

Only `replica.Replica` changes the role, and only as `TRANSITIONS` allows. Each class holds the
state that is valid only in that role; a change of the role discards it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.raft.listener import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.raft.core.messages import FetchRequest
    from barnabas.raft.core.voter_change import VoterChange
    from barnabas.raft.listener import SnapshotId
    from barnabas.raft.replica_key import Address, ReplicaKey
    from barnabas.raft.voter_set import Voter

NEVER = float("inf")


class Unattached(msgspec.Struct):
    """Knows no leader of the epoch. An observer stays in this role until it finds the leader."""

    # When to run for leader, ms; NEVER for an observer.
    election_deadline: float


class Prospective(msgspec.Struct):
    """Asks the voters whether it could win, before it starts a new epoch (pre-vote)."""

    election_deadline: float
    # Voters that would grant their vote, including this replica.
    granted: set[int]
    rejected: set[int] = msgspec.field(default_factory=set)
    # The leader that this voter lost; NO_LEADER if there was none. If the pre-vote fails, the voter
    # follows this leader again.
    lost_leader_id: int = NO_LEADER
    # Defer to the preferred candidate until this time, ms; None while there is none. Set at most
    # once, so that a preferred candidate that fails does not delay the election for long.
    yields_until: float | None = None


class Candidate(msgspec.Struct):
    """Has voted for itself in a new epoch, and asks the other voters for their votes."""

    election_deadline: float
    granted: set[int]
    rejected: set[int] = msgspec.field(default_factory=set)


class SnapshotFetch(msgspec.Struct):
    """A snapshot that is being fetched from the leader."""

    id: SnapshotId
    # Number of bytes received so far.
    position: int = 0
    # Whether all bytes are received. The snapshot is then being installed.
    is_complete: bool = False


class Follower(msgspec.Struct):
    """Fetches from the leader of the epoch, as voter or as observer."""

    leader_id: int
    # The leader's address from its own messages; None means to use the address in the voter set.
    leader_address: Address | None
    # When the leader counts as lost because it has not answered a fetch, ms.
    fetch_deadline: float
    # When the leader counts as lost because its connection broke, ms; NEVER while it is connected.
    lost_deadline: float = NEVER
    # Whether this follower has already deferred to a candidate since the connection broke. It
    # defers only once, so that the election is not delayed for long.
    has_yielded: bool = False
    # Whether the leader answered a fetch in this epoch. If so, this follower grants a pre-vote only
    # when the leader has resigned or its connection broke.
    has_fetched: bool = False
    # Whether the leader has resigned. Pre-votes are granted to every candidate then.
    has_resigned: bool = False
    # High watermark of the response whose records are being synced; None while no sync is pending.
    # The next fetch waits for the sync.
    syncing_to: int | None = None
    snapshot: SnapshotFetch | None = None
    # When to check the leader's record of this voter, or to ask to become a voter, ms.
    update_voter_at: float = NEVER
    # Whether the leader has accepted an UpdateVoter request in this epoch.
    has_updated_leader: bool = False


class ReplicaState(msgspec.Struct):
    """The leader's knowledge of another replica."""

    key: ReplicaKey
    # The replica has all records below this offset on disk; None before its first fetch of the
    # epoch.
    end_offset: int | None = None
    # Time of the last Fetch or FetchSnapshot request, ms.
    last_fetch_ms: float = -NEVER
    # The leader's log end offset at that fetch.
    leader_end_at_fetch: int = -1
    # Last time at which the replica had fetched up to the leader's log end, ms.
    last_caught_up_ms: float = -NEVER
    # When BeginQuorumEpoch was last sent, ms.
    begin_sent_ms: float = -NEVER


class ParkedFetch(msgspec.Struct):
    """A fetch request that waits for new records."""

    request: FetchRequest
    deadline: float


class Leader(msgspec.Struct):
    """Has won the election of its epoch."""

    # Offset of its LeaderChange record. No record is committed before this record is.
    epoch_start_offset: int
    # Node ids of the voters that granted their votes, including the leader itself.
    granting_voters: tuple[int, ...]
    # The leader's own log is on disk up to this offset, exclusive.
    synced_offset: int
    # The other voters by node id.
    voters: dict[int, ReplicaState]
    # The leader does not resign for lack of fetches from a majority before this time, ms.
    check_quorum_deadline: float
    # Replicas that fetch and are not voters; limited in number.
    observers: dict[ReplicaKey, ReplicaState] = msgspec.field(default_factory=dict)
    # Held fetches; at most one per replica.
    parked: dict[ReplicaKey, ParkedFetch] = msgspec.field(default_factory=dict)
    # The pending change of the voters; at most one at a time.
    change: VoterChange | None = None
    # Voter details that static voters sent in UpdateVoter, by node id. The upgrade to dynamic
    # voters needs them.
    described: dict[int, Voter] = msgspec.field(default_factory=dict)


class Resigned(msgspec.Struct):
    """Was leader of this epoch and resigned, or restarted; now informs the other voters."""

    election_deadline: float
    # Voters that have not acknowledged EndQuorumEpoch yet.
    unacknowledged: set[int]
    preferred_candidates: tuple[ReplicaKey, ...]


Role = Unattached | Prospective | Candidate | Follower | Leader | Resigned

# Role -> allowed next roles. A role that lists itself may be entered again: a follower of a later
# leader, or unattached in a later epoch.
TRANSITIONS: Mapping[type[Role], tuple[type[Role], ...]] = {
    Unattached: (Unattached, Prospective, Follower),
    Prospective: (Unattached, Candidate, Follower),
    Candidate: (Unattached, Prospective, Follower, Leader),
    Follower: (Unattached, Prospective, Follower),
    Leader: (Unattached, Follower, Resigned),
    Resigned: (Unattached, Prospective, Follower),
}
