"""The text of messages in tutorials: Kafka's names, and only the relevant fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.raft.core.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    VoteRequest,
    VoteResponse,
)

if TYPE_CHECKING:
    from barnabas.raft.core.messages import Request, Response


def name_of(request: Request) -> str:
    """Return Kafka's name of the request."""
    if isinstance(request, VoteRequest) and request.pre_vote:
        return "PreVote"
    return type(request).__name__.removesuffix("Request")


def request_text(request: Request) -> str:
    """Return the request with the fields that matter for the rules."""
    name = name_of(request)
    match request:
        case VoteRequest():
            log = f"log end {request.end_offset} of epoch {request.last_epoch}"
            return f"{name} request: epoch {request.epoch}, {log}"
        case FetchRequest():
            after = f"after epoch {request.last_fetched_epoch}"
            return (
                f"{name} request: epoch {request.epoch}, from offset {request.fetch_offset} {after}"
            )
        case FetchSnapshotRequest():
            return f"{name} request: snapshot of {request.snapshot_id.end_offset} records"
        case BeginQuorumEpochRequest():
            return f"{name} request: epoch {request.epoch}, leader {request.leader_id}"
        case EndQuorumEpochRequest():
            preferred = ", ".join(str(each.id) for each in request.preferred_candidates)
            return f"{name} request: epoch {request.epoch}, preferred successors {preferred}"
        case AddVoterRequest():
            return f"{name} request: voter {request.voter.key.id}"
        case RemoveVoterRequest():
            return f"{name} request: voter {request.voter.id}"
        case _:
            return f"{name} request"


def response_text(request: Request, response: Response) -> str:
    """Return the response with the fields that matter for the rules."""
    name = f"{name_of(request)} response"
    known = f"epoch {response.epoch}, leader {leader_text(response.leader_id)}"
    if response.error is not ErrorCode.NONE:
        return f"{name}: {response.error.name}, {known}"
    match response:
        case VoteResponse():
            return f"{name}: {'granted' if response.granted else 'rejected'}, {known}"
        case FetchResponse() if response.diverging is not None:
            end = response.diverging
            return f"{name}: diverging, the leader's epoch {end.epoch} ends at {end.end_offset}"
        case FetchResponse() if response.snapshot_id is not None:
            return f"{name}: fetch the snapshot of {response.snapshot_id.end_offset} records"
        case FetchResponse():
            records = response.records
            assert isinstance(records, list)
            shown = f"records {' '.join(map(str, records))}" if records else "no records"
            return f"{name}: {shown}, high watermark {offset_text(response.high_watermark)}"
        case FetchSnapshotResponse():
            return f"{name}: bytes from {response.position} of {response.size}"
        case _:
            return f"{name}: {known}" if response.epoch >= 0 else name


def leader_text(leader_id: int) -> str:
    return "unknown" if leader_id < 0 else str(leader_id)


def offset_text(offset: int) -> str:
    return "unknown" if offset < 0 else str(offset)
