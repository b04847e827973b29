"""Inputs and outputs of the quorum core: messages, effects, and its view of the log.

*Messages* between replicas (KIP-595, KIP-630, KIP-853, KIP-996) are independent of Kafka's APIs. A
transport converts each message to its API and back. A request carries the sender's epoch. A
response carries the responder's epoch and leader, and the token of its request. The token
identifies the request and its destination.

*Effects* are the actions that the core requests after a step, as one batch (like Ready in etcd's
raft). `LogView` is the read-only interface through which the core sees the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.raft.listener import NO_LEADER, SnapshotId

if TYPE_CHECKING:
    from barnabas.raft.election_state import ElectionState
    from barnabas.raft.listener import LeaderAndEpoch
    from barnabas.raft.voter_set import Address, ReplicaKey, Voter, VoterSet


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


class ControlRecords(msgspec.Struct, frozen=True):
    """Control records that a leader appends as one batch. Fields that are None are left out."""

    epoch: int
    leader_change: LeaderChange | None = None
    kraft_version: int | None = None
    voters: VoterSet | None = None

    def __len__(self) -> int:
        """Return the number of records, which is also the number of offsets."""
        parts = (self.leader_change, self.kraft_version, self.voters)
        return sum(part is not None for part in parts)


class LeaderChange(msgspec.Struct, frozen=True):
    """The control record that starts the epoch of a new leader."""

    leader_id: int
    voters: VoterSet
    granting_voters: tuple[int, ...]


class SnapshotSlice(NamedTuple):
    """A part of the leader's snapshot, to be appended to the previous parts."""

    id: SnapshotId
    position: int
    # Bytes-like; the core does not read them.
    content: object
    is_last: bool


class Effects(msgspec.Struct):
    """Actions to carry out in the order of the fields, all of them before the next step."""

    # This replica may vote from now on. Must be on disk before any later action.
    has_vote: bool = False
    # Election state that must be on disk before any later action; None if unchanged.
    persist: ElectionState | None = None
    # Truncate the log to this offset; None for no truncation.
    truncate_to: int | None = None
    # Batches from the leader, to be appended unchanged and synced. Then the driver calls
    # `on_synced`.
    append: object = None
    # Part of a snapshot to write. After the last part the driver calls `on_snapshot_installed`.
    snapshot_slice: SnapshotSlice | None = None
    # The new high watermark; None if unchanged. It never decreases.
    high_watermark: int | None = None
    # The new leader and epoch, or NO_LEADER; None if unchanged.
    leadership: LeaderAndEpoch | None = None
    # (request, response): responses to send to the senders of the requests.
    responses: list[tuple[Request, Response]] = msgspec.field(default_factory=list)
    # (destination, request): voters by node id, bootstrap servers by negative numbers.
    requests: list[tuple[int, Request]] = msgspec.field(default_factory=list)
    # Records to append at the log end and sync. Then the driver calls `on_appended` and
    # `on_synced`.
    control_records: ControlRecords | None = None


class LogView(Protocol):
    """A read-only view of the metadata log."""

    @property
    def start_offset(self) -> int:
        """First offset of the log. Earlier records are only in snapshots."""
        ...

    @property
    def end_offset(self) -> int:
        """Exclusive end of the written records, whether or not they are synced."""
        ...

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record; 0 if the log never had a record."""
        ...

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        """The snapshot that ends where the log begins; None for a log that begins at 0."""
        ...

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The newest snapshot; None if there is none."""
        ...

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (largest epoch <= `epoch` in the log, its end offset).

        The result is (-1, -1) if there is no such epoch.
        """
        ...
