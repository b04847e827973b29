"""Conversion between the core's messages and Kafka's in both directions (KIP-595).

`_APIS` has one row per API, with the place of each value of a core message: Vote, BeginQuorumEpoch,
EndQuorumEpoch, Fetch of the metadata log, FetchSnapshot, AddRaftVoter, RemoveRaftVoter and
UpdateRaftVoter.

Values of a response are taken without checks. A response that lacks the requested partition is
rejected with UnusableResponseError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import (
    begin_quorum_epoch as begin,
    end_quorum_epoch as end,
    fetch,
    quorum,
)
from barnabas.protocol.messages.connection import ApiVersionsRequest, ApiVersionsResponse
from barnabas.raft.core import messages as core
from barnabas.raft.listener import SnapshotId
from barnabas.raft.log.metadata_log import METADATA_TOPIC, METADATA_TOPIC_ID
from barnabas.raft.transport.fields import (
    Candidates,
    ChangedVoter,
    Envelope,
    EpochEnd,
    Error,
    ErrorMessage,
    FetchSource,
    Key,
    Layout,
    Leader,
    LeaderOfVoterChange,
    OwnAddress,
    Reading,
    Records,
    UnusableResponseError,
    Values,
)
from barnabas.version import __version__

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message
    from barnabas.raft.config import RaftConfig


_KRAFT_VERSION = "kraft.version"


# The table.


class _Api(NamedTuple):
    """Request and response of an API."""

    request: Layout
    response: Layout


_TOPIC = Envelope({"topic_name": METADATA_TOPIC})
_FETCHED = {"topic": METADATA_TOPIC, "topic_id": METADATA_TOPIC_ID}
_SNAPSHOT = {"name": METADATA_TOPIC}
_OK = {"error_code": ErrorCode.NONE}
_ERROR = Error("error_code")
_PARTITION_ERROR = Error(".error_code")
_LEADER = Values(leader_id=".leader_id", epoch=".leader_epoch")
_VOTER = Key("voter", "voter_id", ".voter_directory_id", optional=True)

_VOTE = Layout(
    quorum.VoteRequest,
    core.VoteRequest,
    (
        Key("source", ".replica_id", ".replica_directory_id"),
        Values(epoch=".replica_epoch", last_epoch=".last_offset_epoch", end_offset=".last_offset"),
        Values(pre_vote=".pre_vote"),
        _VOTER,
    ),
    _TOPIC,
)
_VOTED = Layout(
    quorum.VoteResponse,
    core.VoteResponse,
    (_PARTITION_ERROR, Leader(), Values(granted=".vote_granted")),
    _TOPIC,
    _OK,
)
_BEGIN = Layout(
    begin.BeginQuorumEpochRequest,
    core.BeginQuorumEpochRequest,
    (_LEADER, OwnAddress(), _VOTER),
    _TOPIC,
)
_END = Layout(
    end.EndQuorumEpochRequest,
    core.EndQuorumEpochRequest,
    (_LEADER, Candidates(), OwnAddress()),
    _TOPIC,
)
_BEGUN, _ENDED = (
    Layout(message, core.QuorumEpochResponse, (_PARTITION_ERROR, Leader()), _TOPIC, _OK)
    for message in (begin.BeginQuorumEpochResponse, end.EndQuorumEpochResponse)
)
_FETCH = Layout(
    fetch.FetchRequest,
    core.FetchRequest,
    (
        FetchSource("source", "replica_id", ".replica_directory_id"),
        Values(epoch=".current_leader_epoch", fetch_offset=".fetch_offset"),
        Values(last_fetched_epoch=".last_fetched_epoch", high_watermark=".high_watermark"),
        Values(max_wait_ms="max_wait_ms", max_bytes="max_bytes"),
    ),
    Envelope(_FETCHED, index="partition"),
    {"min_bytes": 0},
)
_FETCHED_RECORDS = Layout(
    fetch.FetchResponse,
    core.FetchResponse,
    (
        _PARTITION_ERROR,
        Leader(".current_leader.", since=16),
        Values(high_watermark=".high_watermark", log_start_offset=".log_start_offset"),
        EpochEnd("diverging", ".diverging_epoch", core.DivergingEpoch, absent="epoch"),
        EpochEnd("snapshot_id", ".snapshot_id", SnapshotId, absent="end_offset"),
        Records(records=".records"),
    ),
    Envelope(_FETCHED, topics="responses"),
)
_FETCH_SNAPSHOT = Layout(
    quorum.FetchSnapshotRequest,
    core.FetchSnapshotRequest,
    (
        Key("source", "replica_id", ".replica_directory_id"),
        EpochEnd("snapshot_id", ".snapshot_id", SnapshotId),
        Values(epoch=".current_leader_epoch", position=".position", max_bytes="max_bytes"),
    ),
    Envelope(_SNAPSHOT, index="partition"),
)
_FETCHED_SNAPSHOT = Layout(
    quorum.FetchSnapshotResponse,
    core.FetchSnapshotResponse,
    (
        _PARTITION_ERROR,
        Leader(".current_leader."),
        EpochEnd("snapshot_id", ".snapshot_id", SnapshotId),
        Values(size=".size", position=".position", content=".unaligned_records"),
    ),
    Envelope(_SNAPSHOT, index="index"),
    _OK,
)
_ADD = Layout(
    quorum.AddRaftVoterRequest,
    core.AddVoterRequest,
    (
        ChangedVoter(has_versions=False),
        Values(timeout_ms="timeout_ms", ack_when_committed="ack_when_committed"),
    ),
)
_REMOVE = Layout(
    quorum.RemoveRaftVoterRequest,
    core.RemoveVoterRequest,
    (Key("voter", "voter_id", "voter_directory_id"),),
)
_ADDED, _REMOVED = (
    Layout(message, core.VoterChangeResponse, (_ERROR, ErrorMessage()))
    for message in (quorum.AddRaftVoterResponse, quorum.RemoveRaftVoterResponse)
)
_UPDATE = Layout(
    quorum.UpdateRaftVoterRequest,
    core.UpdateVoterRequest,
    (ChangedVoter(has_versions=True), Values(epoch="current_leader_epoch")),
)
_UPDATED = Layout(
    quorum.UpdateRaftVoterResponse, core.VoterChangeResponse, (_ERROR, LeaderOfVoterChange())
)
_APIS = (
    _Api(_VOTE, _VOTED),
    _Api(_BEGIN, _BEGUN),
    _Api(_END, _ENDED),
    _Api(_FETCH, _FETCHED_RECORDS),
    _Api(_FETCH_SNAPSHOT, _FETCHED_SNAPSHOT),
    _Api(_ADD, _ADDED),
    _Api(_REMOVE, _REMOVED),
    _Api(_UPDATE, _UPDATED),
)
_BY_CORE_REQUEST = {api.request.core: api for api in _APIS}
_BY_REQUEST = {api.request.message: api for api in _APIS}
_BY_RESPONSE = {api.response.message: api for api in _APIS}


# The receiver.


def cluster_id_of(message: Message) -> str | None:
    """Return the cluster id that a request names; None if it names none."""
    return getattr(message, "cluster_id", None)


def core_request(message: Message, listener_name: str, reply_to: core.Reply) -> core.Request | None:
    """Return the core request; None if the message is not about the metadata partition."""
    layout = _BY_REQUEST[type(message)].request
    partition = None if layout.envelope is None else layout.envelope.partition_of(message)
    if layout.envelope is not None and partition is None:
        return None
    request: core.Request = layout.read(
        Reading(message, partition, listener_name), reply_to=reply_to
    )
    return request


def response_message(request: core.Request, response: core.Response, version: int) -> Message:
    """Return the response message in the version of the request."""
    layout = _BY_CORE_REQUEST[type(request)].response
    return layout.write(response, version, {}).message(layout.message)


def refusal(
    message: Message, error: ErrorCode, leader: quorum.CurrentLeader | None = None
) -> Message:
    """Return an error response to a request that is refused without being handled."""
    layout = _BY_REQUEST[type(message)].response
    values: dict[str, Any] = {"error_code": error}
    if layout.envelope is not None:
        values[layout.envelope.topics] = []
    elif layout.message is not quorum.UpdateRaftVoterResponse:
        values["error_message"] = error.message
    elif leader is not None:
        values["current_leader"] = leader
    response: Message = layout.message(**values)
    return response


# The sender.


def api_key_of(request: core.Request) -> ApiKey:
    """Return the API of a request."""
    if isinstance(request, core.SupportedVersionsRequest):
        return ApiKey.API_VERSIONS
    return ApiKey(_BY_CORE_REQUEST[type(request)].request.message.__api_key__)


def request_message(request: core.Request, version: int, config: RaftConfig) -> Message:
    """Return the request message in the version that both sides support."""
    if isinstance(request, core.SupportedVersionsRequest):
        return api_versions_request()
    layout = _BY_CORE_REQUEST[type(request)].request
    draft = layout.write(request, version, config.advertised)
    draft.set("cluster_id", config.cluster_id)
    return draft.message(layout.message)


def api_versions_request() -> ApiVersionsRequest:
    """Return an ApiVersions request; Kafka refuses one without a client software name."""
    return ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)


def core_response(message: Message, token: int, listener_name: str) -> core.Response:
    """Convert a response message to a core response.

    Raises:
        UnusableResponseError: the message does not match the request.
    """
    if isinstance(message, ApiVersionsResponse):
        return _supported_versions(message, token)
    api = _BY_RESPONSE.get(type(message))
    if api is None:
        raise UnusableResponseError(f"{listener_name}: {type(message).__name__}")
    layout, partition = api.response, None
    if layout.envelope is not None:
        error = ErrorCode.of(message.error_code)  # type: ignore[attr-defined]  # all of them have it
        if error is not ErrorCode.NONE:
            raise UnusableResponseError(f"{type(message).__name__}: {error.name}", error)
        partition = layout.envelope.only_partition(message)
    response: core.Response = layout.read(Reading(message, partition, listener_name), token=token)
    return response


def _supported_versions(message: ApiVersionsResponse, token: int) -> core.SupportedVersionsResponse:
    range_ = next(
        (
            (each.min_version, each.max_version)
            for each in message.supported_features
            if each.name == _KRAFT_VERSION
        ),
        (0, 0),
    )
    error = ErrorCode.of(message.error_code)
    return core.SupportedVersionsResponse(*range_, token=token, error=error)
