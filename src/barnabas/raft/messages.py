"""What voters say to each other (KIP-595, KIP-996), without Kafka's envelopes.

A transport turns each into its API (Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch) and back. Every
request carries the sender's epoch; every response carries the responder's epoch and leader.
"""

from __future__ import annotations

from enum import Enum

import msgspec


class Refusal(Enum):
    """Why a request was not served; a transport maps it to an ErrorCode."""

    FENCED_LEADER_EPOCH = "the request's epoch is older than ours"
    NOT_LEADER = "this node does not lead"
    INCONSISTENT_VOTER_SET = "the sender or this node is no voter"


class VoteRequest(msgspec.Struct, frozen=True):
    """Asks for a vote, or (pre-vote) whether one would be given."""

    source: int
    epoch: int
    # Epoch of the candidate's last record.
    last_epoch: int
    # Its log end offset.
    end_offset: int
    pre_vote: bool


class VoteResponse(msgspec.Struct, frozen=True):
    """Answers a VoteRequest."""

    source: int
    epoch: int
    leader_id: int
    granted: bool
    pre_vote: bool
    # Epoch of the request: an answer to an older election is ignored.
    request_epoch: int


class BeginQuorumEpochRequest(msgspec.Struct, frozen=True):
    """A new leader makes itself known."""

    source: int
    epoch: int


class EndQuorumEpochRequest(msgspec.Struct, frozen=True):
    """A leader steps down; the first of `preferred_candidates` may begin an election at once."""

    source: int
    epoch: int
    preferred_candidates: tuple[int, ...]


class QuorumEpochResponse(msgspec.Struct, frozen=True):
    """Answers BeginQuorumEpoch and EndQuorumEpoch."""

    source: int
    epoch: int
    leader_id: int
    refusal: Refusal | None = None


class FetchRequest(msgspec.Struct, frozen=True):
    """A replica has all records below `fetch_offset` on disk and wants those from there on."""

    source: int
    epoch: int
    fetch_offset: int
    # Epoch of the record before `fetch_offset`, -1 if there is none.
    last_fetched_epoch: int
    # What the replica knows to be committed (KIP-1166): a leader that knows more answers at once.
    high_watermark: int = -1


class DivergingEpoch(msgspec.Struct, frozen=True):
    """The largest epoch at or below the follower's that the leader has, and its end there."""

    epoch: int
    end_offset: int


class FetchResponse(msgspec.Struct, frozen=True):
    """Answers a FetchRequest.

    The driver puts the log's bytes from `fetch_offset` on into the answer, unless it refuses or
    shows a diverging epoch.
    """

    source: int
    epoch: int
    leader_id: int
    # The offset that was asked for: an answer to an older question is ignored.
    fetch_offset: int
    high_watermark: int = -1
    diverging: DivergingEpoch | None = None
    refusal: Refusal | None = None
    # Whole batches from `fetch_offset` on; opaque here.
    records: object = None


Message = (
    VoteRequest
    | VoteResponse
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | QuorumEpochResponse
    | FetchRequest
    | FetchResponse
)
