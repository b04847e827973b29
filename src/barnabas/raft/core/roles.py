"""The roles of a replica in an epoch, one class each (KIP-595; Prospective: KIP-996).

Only `replica.Replica` changes the role, and only as `TRANSITIONS` allows. Each class holds the
state that is valid only in that role; a change of the role discards it. `VoterChange` is the
pending change of the voters at the leader (KIP-853).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.raft.listener import NO_LEADER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.raft.core.messages import AddVoterRequest, FetchRequest, RemoveVoterRequest
    from barnabas.raft.listener import SnapshotId
    from barnabas.raft.voter_set import Address, ReplicaKey, Voter


class VoterChange(msgspec.Struct):
    """One change. The leader starts no other change before this one ends."""

    request: AddVoterRequest | RemoveVoterRequest
    # When the change fails with a timeout, monotonic ms.
    deadline: float
    # Whether the leader has requested the supported versions of the new voter.
    are_versions_requested: bool = False
    # Offset of the VotersRecord; None before it is appended.
    offset: int | None = None
    # Whether the leader has responded to the request.
    has_responded: bool = False


NEVER = float("inf")


class Unattached(msgspec.Struct):
    """Knows no leader of the epoch. An observer stays in this role until it finds the leader."""

    # When to run for leader, monotonic ms. Set when the role begins, and once more when an observer
    # becomes a voter. NEVER for an observer.
    election_deadline: float


class Prospective(msgspec.Struct):
    """Asks the voters whether it could win, before it starts a new epoch (pre-vote)."""

    # When the pre-vote counts as failed, monotonic ms. Never changes.
    election_deadline: float
    # Node ids of the voters that would grant their vote, including this replica. Each VoteResponse
    # adds to this set or to `rejected`. The two are disjoint; both only grow.
    granted: set[int]
    # Node ids of the voters that would reject their vote.
    rejected: set[int] = msgspec.field(default_factory=set)
    # The leader that this voter lost; NO_LEADER if there was none. If the pre-vote fails, the voter
    # follows this leader again.
    lost_leader_id: int = NO_LEADER
    # Defer to the preferred candidate until this time, ms; None while there is none. Set at most
    # once, so that a preferred candidate that fails does not delay the election for long.
    yields_until: float | None = None


class Candidate(msgspec.Struct):
    """Has voted for itself in a new epoch, and requests the votes of the other voters."""

    # When to ask for pre-votes again, monotonic ms. A rejected vote brings it forward.
    election_deadline: float
    # Node ids of the voters that granted their vote, including this replica. Each VoteResponse adds
    # to this set or to `rejected`. The two are disjoint; both only grow.
    granted: set[int]
    # Node ids of the voters that rejected their vote.
    rejected: set[int] = msgspec.field(default_factory=set)


class SnapshotFetch(msgspec.Struct):
    """A snapshot that is being fetched from the leader."""

    # The snapshot that the leader named. Never changes.
    id: SnapshotId
    # Number of bytes received so far. Each response raises it by the size of its content.
    # Invariant: not above the size that the leader announces.
    position: int = 0
    # Whether all bytes are received. The snapshot is then being installed.
    is_complete: bool = False


class Follower(msgspec.Struct):
    """Fetches from the leader of the epoch, as voter or as observer."""

    # Node id of the leader. Never changes, and is never this replica.
    leader_id: int
    # The leader's address from its own messages; None means to use the address in the voter set.
    leader_address: Address | None
    # When the leader counts as lost because it has not responded to a fetch, monotonic ms. Each
    # successful response sets it to the fetch timeout from then; EndQuorumEpoch brings it forward.
    fetch_deadline: float
    # When the leader counts as lost because its connection broke, monotonic ms; NEVER while it is
    # connected. A broken connection sets it, a successful response clears it.
    lost_deadline: float = NEVER
    # Whether this follower has already deferred to a candidate since the connection broke. It
    # defers only once, so that the election is not delayed for long.
    has_yielded: bool = False
    # Whether the leader responded to a fetch in this epoch. If so, this follower grants a pre-vote
    # only when the leader has resigned or its connection broke.
    has_fetched: bool = False
    # Whether the leader has resigned. Pre-votes are granted to every candidate then.
    has_resigned: bool = False
    # High watermark of the response whose records are being synced; None while no sync is pending.
    # The next fetch waits for the sync. Set by a response with records, cleared by the sync.
    syncing_to: int | None = None
    # The snapshot that is fetched or installed; None if the log is fetched.
    snapshot: SnapshotFetch | None = None
    # When to check the leader's record of this voter, or to ask to become a voter, ms.
    update_voter_at: float = NEVER
    # Whether the leader has accepted an UpdateVoter request in this epoch.
    has_updated_leader: bool = False
    # Whether a response of the leader would have removed committed records. A correct leader never
    # sends one.
    lacks_committed: bool = False


class ReplicaState(msgspec.Struct):
    """The leader's knowledge of another replica."""

    # The replica's id. Changes only if a voters record adds its directory id.
    key: ReplicaKey
    # The replica has all records below this offset on disk; None before its first fetch of the
    # epoch. Each Fetch request sets it to its fetch offset. Invariant: the log up to here agrees
    # with the leader's, so it is not above the leader's log end. It decreases only if the replica
    # lost records that it reported as synced.
    end_offset: int | None = None
    # Time of the last Fetch or FetchSnapshot request, monotonic ms.
    last_fetch_ms: float = -NEVER
    # The leader's log end offset at that fetch; -1 before the first. Never decreases.
    leader_end_at_fetch: int = -1
    # Last time at which the replica had fetched up to the leader's log end, monotonic ms. Never
    # decreases, and is not after `last_fetch_ms`.
    last_caught_up_ms: float = -NEVER
    # When BeginQuorumEpoch was last sent, monotonic ms.
    begin_sent_ms: float = -NEVER


class PendingFetch(msgspec.Struct):
    """A fetch request that waits for new records."""

    # The held request. Never changes.
    request: FetchRequest
    # When to respond without records, monotonic ms. Never changes.
    deadline: float


class Leader(msgspec.Struct):
    """Has won the election of its epoch."""

    # Offset of its LeaderChange record. No record is committed before this record is. Never
    # changes.
    epoch_start_offset: int
    # Node ids of the voters that granted their votes, including the leader itself.
    granting_voters: tuple[int, ...]
    # The leader's own log is on disk up to this offset, exclusive. Each completed sync raises it.
    # Invariant: not above the log end.
    synced_offset: int
    # The other voters by node id. Rebuilt when a voters record is appended.
    voters: dict[int, ReplicaState]
    # The leader does not resign for lack of fetches from a majority before this time, monotonic ms.
    # A change of the voters postpones it.
    check_quorum_deadline: float
    # Replicas that fetch and are not voters, at most 10,000. A first fetch adds an observer; five
    # minutes without a fetch remove it.
    observers: dict[ReplicaKey, ReplicaState] = msgspec.field(default_factory=dict)
    # Held fetches; at most one per replica. A newer fetch of the same replica replaces it.
    pending: dict[ReplicaKey, PendingFetch] = msgspec.field(default_factory=dict)
    # The pending change of the voters; at most one at a time. Cleared when its record is committed
    # or its deadline is over.
    change: VoterChange | None = None
    # Voter details that static voters sent in UpdateVoter, by node id. The upgrade to dynamic
    # voters needs them.
    described: dict[int, Voter] = msgspec.field(default_factory=dict)


class Resigned(msgspec.Struct):
    """Was leader of this epoch and resigned, or restarted; now informs the other voters."""

    # When to run for leader, monotonic ms; this voter may be elected again. Never changes.
    election_deadline: float
    # Node ids of the voters that have not acknowledged EndQuorumEpoch yet. Only shrinks.
    unacknowledged: set[int]
    # The other voters, those with the most records first. The first one runs for leader at once.
    preferred_candidates: tuple[ReplicaKey, ...]


Role = Unattached | Prospective | Candidate | Follower | Leader | Resigned

# Role -> allowed next role -> its trigger. A role that lists itself may be entered again.
TRANSITIONS: Mapping[type[Role], Mapping[type[Role], str]] = {
    Unattached: {
        Unattached: "a message names a later epoch without a leader, or this replica grants a vote",
        Prospective: "the election timeout is over",
        Follower: "a message names the leader of this epoch or of a later one",
    },
    Prospective: {
        Unattached: "a later epoch, a granted vote, or a failed pre-vote without a known leader",
        Candidate: "a majority of the voters grants the pre-vote",
        Follower: "a message names the leader, or a failed pre-vote: return to the lost leader",
    },
    Candidate: {
        Unattached: "a message names a later epoch, or a voters record removes this voter",
        Prospective: "the election timeout is over without a majority",
        Follower: "a message names the leader of this epoch or of a later one",
        Leader: "a majority of the voters grants the vote",
    },
    Follower: {
        Unattached: "a message names a later epoch without a leader",
        Prospective: "the leader is lost: fetch timeout, broken connection, or it has resigned",
        Follower: "a message names the leader of a later epoch",
    },
    Leader: {
        Unattached: "a message names a later epoch without a leader",
        Follower: "a message names the leader of a later epoch",
        Resigned: "no fetches from a majority, shutdown, or a voters record removes this leader",
    },
    Resigned: {
        Unattached: "a message names a later epoch without a leader",
        Prospective: "the election timeout is over",
        Follower: "a message names the leader of a later epoch",
    },
}
