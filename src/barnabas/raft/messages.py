"""What replicas say to each other (KIP-595, KIP-630, KIP-853, KIP-996), without Kafka's envelopes.

A transport turns each into its API and back. A request carries the sender's epoch; a response
carries the responder's epoch and leader, and the token of its request, by which the sender knows
whom and what it asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.raft.listener import NO_LEADER, SnapshotId

if TYPE_CHECKING:
    from barnabas.raft.replica_key import Address, ReplicaKey
    from barnabas.raft.voter_set import Voter

# Takes the response to one request; opaque to the core.
Reply = Callable[["Response"], None]

# Highest that can be said of a high watermark: who says so wants no answer for its sake.
LONG_MAX = (1 << 63) - 1


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What all requests have."""

    # Number of the request at its sender; its response bears it too.
    token: int = 0
    # Where the answer goes at the receiver; None where the world carries it by itself.
    reply_to: Reply | None = None


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What all responses have."""

    token: int = 0
    error: ErrorCode = ErrorCode.NONE
    # The responder's, and who leads it as far as it knows.
    epoch: int = -1
    leader_id: int = NO_LEADER
    leader_address: Address | None = None


class VoteRequest(Request, frozen=True):
    """Asks for a vote, or (pre-vote) whether one would be given."""

    source: ReplicaKey
    epoch: int
    # Epoch of the candidate's last record.
    last_epoch: int
    # Its log end offset.
    end_offset: int
    pre_vote: bool
    # Whom the candidate believes to ask.
    voter: ReplicaKey | None = None


class VoteResponse(Response, frozen=True):
    """Answers a VoteRequest."""

    granted: bool = False


class BeginQuorumEpochRequest(Request, frozen=True):
    """A new leader makes itself known."""

    leader_id: int
    epoch: int
    # Where the leader listens, as it says itself; None if it does not.
    address: Address | None = None
    # Whom the leader believes to tell.
    voter: ReplicaKey | None = None


class EndQuorumEpochRequest(Request, frozen=True):
    """A leader steps down; the first of `preferred_candidates` may begin an election at once."""

    leader_id: int
    epoch: int
    preferred_candidates: tuple[ReplicaKey, ...]
    address: Address | None = None


class QuorumEpochResponse(Response, frozen=True):
    """Answers BeginQuorumEpoch and EndQuorumEpoch."""


class FetchRequest(Request, frozen=True):
    """A replica has all records below `fetch_offset` on disk and wants those from there on."""

    source: ReplicaKey
    epoch: int
    fetch_offset: int
    # Epoch of the record before `fetch_offset`, 0 if there is none.
    last_fetched_epoch: int
    # What the replica knows to be committed (KIP-1166): a leader that knows more answers at once.
    high_watermark: int = LONG_MAX
    max_wait_ms: int = 0
    max_bytes: int = 1 << 20


class DivergingEpoch(msgspec.Struct, frozen=True):
    """The largest epoch at or below the follower's that the leader has, and its end there."""

    epoch: int
    end_offset: int


class FetchResponse(Response, frozen=True):
    """Answers a FetchRequest.

    The driver puts the log's bytes from the fetch offset on into the answer, unless it has an
    error, a diverging epoch or a snapshot.
    """

    high_watermark: int = -1
    diverging: DivergingEpoch | None = None
    # To be fetched in place of the log, which begins above the fetch offset.
    snapshot_id: SnapshotId | None = None
    log_start_offset: int = -1
    # Batches from the fetch offset on; opaque here.
    records: object = None


class FetchSnapshotRequest(Request, frozen=True):
    """Asks for a snapshot's bytes from `position` on (KIP-630)."""

    source: ReplicaKey
    epoch: int
    snapshot_id: SnapshotId
    position: int
    max_bytes: int = 1 << 20


class FetchSnapshotResponse(Response, frozen=True):
    """Answers a FetchSnapshotRequest; the driver puts size and content into it."""

    snapshot_id: SnapshotId
    # Of the whole snapshot, bytes.
    size: int = 0
    position: int = 0
    content: object = b""


class SupportedVersionsRequest(Request, frozen=True):
    """Asks a replica which kraft.version it supports, before it becomes a voter (KIP-853)."""


class SupportedVersionsResponse(Response, frozen=True):
    """Answers a SupportedVersionsRequest."""

    min_version: int = 0
    max_version: int = 0


class AddVoterRequest(Request, frozen=True):
    """Asks to make an observer a voter."""

    voter: Voter
    timeout_ms: int = 30_000
    # Whether to answer only when the change is committed.
    ack_when_committed: bool = True


class RemoveVoterRequest(Request, frozen=True):
    """Asks to make a voter an observer."""

    voter: ReplicaKey


class UpdateVoterRequest(Request, frozen=True):
    """A voter says where it listens and what it supports."""

    voter: Voter
    epoch: int


class VoterChangeResponse(Response, frozen=True):
    """Answers requests for other voters."""

    message: str | None = None


class RequestFailed(msgspec.Struct, frozen=True):
    """A request that was sent got no answer and will get none."""

    token: int
    # Whether the other end is gone (refused, reset, closed), and not only slow.
    is_unreachable: bool = False
    # Whether there was an answer, which says nothing but that there is none.
    is_refused: bool = False


Message = Request | Response | RequestFailed
