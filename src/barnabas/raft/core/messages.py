"""Messages between replicas (KIP-595, KIP-630, KIP-853, KIP-996), independent of Kafka's APIs.

A transport converts each message to its API and back. A request carries the sender's epoch. A
response carries the responder's epoch and leader, and the token of its request. The token
identifies the request and its destination.
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

# Sentinel: never complete this fetch early because of the high watermark.
LONG_MAX = (1 << 63) - 1


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of all requests."""

    # Number of the request at its sender; the response carries the same number.
    token: int = 0
    # Callback at the receiver that takes the response; None if the transport needs no callback.
    reply_to: Reply | None = None


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of all responses."""

    token: int = 0
    error: ErrorCode = ErrorCode.NONE
    # Epoch of the responder, and the leader as far as the responder knows it.
    epoch: int = -1
    leader_id: int = NO_LEADER
    leader_address: Address | None = None


class VoteRequest(Request, frozen=True):
    """Asks for a vote, or, with `pre_vote`, whether the voter would grant one."""

    source: ReplicaKey
    epoch: int
    # Epoch of the candidate's last record.
    last_epoch: int
    # The candidate's log end offset.
    end_offset: int
    pre_vote: bool
    # The voter that the candidate means to ask; None if the request names none.
    voter: ReplicaKey | None = None


class VoteResponse(Response, frozen=True):
    """Response to VoteRequest."""

    granted: bool = False


class BeginQuorumEpochRequest(Request, frozen=True):
    """Announces a new leader to a voter."""

    leader_id: int
    epoch: int
    # The leader's address as sent by the leader; None if the request has none.
    address: Address | None = None
    # The voter that the leader means to inform; None if the request names none.
    voter: ReplicaKey | None = None


class EndQuorumEpochRequest(Request, frozen=True):
    """Announces a resignation. The first of `preferred_candidates` may run for leader at once."""

    leader_id: int
    epoch: int
    preferred_candidates: tuple[ReplicaKey, ...]
    address: Address | None = None


class QuorumEpochResponse(Response, frozen=True):
    """Response to BeginQuorumEpoch and EndQuorumEpoch."""


class FetchRequest(Request, frozen=True):
    """Asks for records from `fetch_offset` on; the sender has all earlier records on disk."""

    source: ReplicaKey
    epoch: int
    fetch_offset: int
    # Epoch of the record before `fetch_offset`; 0 if there is none.
    last_fetched_epoch: int
    # High watermark known to the sender (KIP-1166). A leader with a larger one responds at once.
    high_watermark: int = LONG_MAX
    max_wait_ms: int = 0
    max_bytes: int = 1 << 20


class DivergingEpoch(msgspec.Struct, frozen=True):
    """The leader's largest epoch at or below the follower's, and the end offset of that epoch."""

    epoch: int
    end_offset: int


class FetchResponse(Response, frozen=True):
    """Response to FetchRequest.

    The driver adds the log's bytes from the fetch offset on, unless the response has an error, a
    diverging epoch or a snapshot id.
    """

    high_watermark: int = -1
    diverging: DivergingEpoch | None = None
    # Snapshot to fetch instead, because the log begins above the fetch offset.
    snapshot_id: SnapshotId | None = None
    log_start_offset: int = -1
    # Batches from the fetch offset on; opaque to the core.
    records: object = None


class FetchSnapshotRequest(Request, frozen=True):
    """Asks for a snapshot's bytes from `position` on (KIP-630)."""

    source: ReplicaKey
    epoch: int
    snapshot_id: SnapshotId
    position: int
    max_bytes: int = 1 << 20


class FetchSnapshotResponse(Response, frozen=True):
    """Response to FetchSnapshotRequest; the driver adds size and content."""

    snapshot_id: SnapshotId
    # Size of the whole snapshot, bytes.
    size: int = 0
    position: int = 0
    content: object = b""


class SupportedVersionsRequest(Request, frozen=True):
    """Asks an observer which kraft.version it supports, before it becomes a voter (KIP-853)."""


class SupportedVersionsResponse(Response, frozen=True):
    """Response to SupportedVersionsRequest."""

    min_version: int = 0
    max_version: int = 0


class AddVoterRequest(Request, frozen=True):
    """Asks the leader to make an observer a voter."""

    voter: Voter
    timeout_ms: int = 30_000
    # Whether the leader responds only after the change is committed.
    ack_when_committed: bool = True


class RemoveVoterRequest(Request, frozen=True):
    """Asks the leader to make a voter an observer."""

    voter: ReplicaKey


class UpdateVoterRequest(Request, frozen=True):
    """Reports a voter's endpoints and supported kraft.version levels to the leader."""

    voter: Voter
    epoch: int


class VoterChangeResponse(Response, frozen=True):
    """Response to requests that change the voters."""

    message: str | None = None


class RequestFailed(msgspec.Struct, frozen=True):
    """Reports that a sent request has no response and will get none."""

    token: int
    # Whether the peer refused, reset or closed the connection, rather than being slow.
    is_unreachable: bool = False
    # Whether the peer sent a response that carries only an error.
    is_refused: bool = False


Message = Request | Response | RequestFailed
