"""ShareAcknowledge (key 79, v1-2): acknowledge records of a share group (KIP-932).

Version 2 renews acquisition locks (KIP-1222). ShareFetch contains acknowledgements too, so
`share_fetch` uses the checks of their form, and the leaders that responses name for partitions that
have moved (KIP-951).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from barnabas.protocol.resources import AclOperation, AclResourceType
from barnabas.server.share.records.acknowledgement import AcknowledgedBatch
from barnabas.server.share.records.record_states import GAP, REJECT, RENEW
from barnabas.server.share.share_sessions import FINAL_EPOCH, ShareSessionKey
from barnabas.storage.topic_partition import TopicIdPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from barnabas.metadata.broker_registration import Endpoint
    from barnabas.protocol.messages import share_consumers
    from barnabas.protocol.messages.share_acknowledge import (
        AcknowledgementBatch,
        ShareAcknowledgeRequest,
    )
    from barnabas.protocol.schema import Message
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.dispatch.request import RequestContext
    from barnabas.server.share.share_partitions import SharePartitions

    ShareRequest = ShareAcknowledgeRequest | share_consumers.ShareFetchRequest
    Batch = AcknowledgementBatch | share_consumers.AcknowledgementBatch
    AcknowledgeResults = dict[TopicIdPartition, tuple[ErrorCode, str | None]]


class ShareAcknowledgeHandler:
    """Checks the session, writes the acknowledgements, and ends the session at its last request."""

    __slots__ = ("_cluster", "_shares")

    def __init__(self, cluster: ClusterView, shares: SharePartitions) -> None:
        self._cluster = cluster
        self._shares = shares

    def handle_share_acknowledge(
        self, context: RequestContext, request: ShareAcknowledgeRequest
    ) -> Message | None:
        """Respond when all acknowledgements are written."""
        key = session_key(context, request, self._cluster, self._shares)
        if isinstance(key, ErrorCode):
            return _failed(key)
        session = self._shares.sessions.advance(key, request.share_session_epoch)
        if isinstance(session, ErrorCode):
            return _failed(session)
        checks = check_acknowledgements(context, request, self._cluster)
        respond = partial(self._respond, context, key, request.share_session_epoch)
        return context.after(checks, lambda made: acknowledge(self._shares, key, made, respond))

    def _respond(
        self,
        context: RequestContext,
        key: ShareSessionKey,
        epoch: int,
        results: AcknowledgeResults,
    ) -> None:
        context.respond_in_slices(self._make_response(context, key, epoch, results))

    def _make_response(
        self,
        context: RequestContext,
        key: ShareSessionKey,
        epoch: int,
        results: AcknowledgeResults,
    ) -> Generator[None, None, ShareAcknowledgeResponse]:
        """Return the response, and end the session after its last request."""
        hints = LeaderHints(self._cluster, context.listener_name)
        topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
        for where, (error, message) in results.items():
            topic = topics.get(where.topic_id)
            if topic is None:
                topic = ShareAcknowledgeTopicResponse(topic_id=where.topic_id, partitions=[])
                topics[where.topic_id] = topic
            data = PartitionData(
                partition_index=where.partition,
                error_code=error,
                error_message=message,
                current_leader=LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
            )
            leader = hints.find(where) if error in MOVED else None
            if leader is not None:
                data.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
            topic.partitions.append(data)
            yield
        limits = self._shares.settings.limits(key.group_id)
        response = ShareAcknowledgeResponse(
            error_code=ErrorCode.NONE,
            acquisition_lock_timeout_ms=limits.lock_duration_ms,
            responses=list(topics.values()),
            node_endpoints=[
                NodeEndpoint(node_id=node_id, host=endpoint.host, port=endpoint.port)
                for node_id, endpoint in hints.endpoints.items()
            ],
        )
        if epoch == FINAL_EPOCH:
            self._shares.end_session(key)
        return response


def _failed(error: ErrorCode) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(
        error_code=error,
        acquisition_lock_timeout_ms=0,
        responses=[],
        node_endpoints=[],
    )


# As in Kafka: the length of a UUID as text.
MEMBER_ID_LENGTH_MAX = 36
# Version of both requests since which locks can be renewed (KIP-1222).
RENEWAL_SINCE = 2
_GROUP, _TOPIC = int(AclResourceType.GROUP), int(AclResourceType.TOPIC)
_READ = int(AclOperation.READ)


# Maximum number of acknowledged batches of one request. Kafka has none. Each batch takes some
# microseconds, and a member has at most some thousand records.
BATCHES_MAX = 10_000


def session_key(
    context: RequestContext, request: ShareRequest, cluster: ClusterView, shares: SharePartitions
) -> ShareSessionKey | ErrorCode:
    """Return group and member of a request, or the error if it cannot be served at all."""
    group_id, member_id, access = request.group_id, request.member_id, context.access
    if not cluster.image.features.has_share_groups:
        return ErrorCode.UNSUPPORTED_VERSION
    if group_id is None:
        return ErrorCode.INVALID_REQUEST
    if access is not None and not access.allows(_READ, _GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not member_id or len(member_id) > MEMBER_ID_LENGTH_MAX or _is_too_large(request, shares):
        return ErrorCode.INVALID_REQUEST
    return ShareSessionKey(group_id, member_id)


def _is_too_large(request: ShareRequest, shares: SharePartitions) -> bool:
    """Whether a request has more partitions than a session may have, or too many batches."""
    partitions = batches = 0
    for topic in request.topics:
        partitions += len(topic.partitions)
        for partition in topic.partitions:
            batches += len(partition.acknowledgement_batches)
    return batches > BATCHES_MAX or shares.sessions.is_too_large(partitions)


def topic_reader(context: RequestContext) -> Callable[[str], bool]:
    """Return a function that returns whether the client may read a topic. It caches the result."""
    access = context.access
    known: dict[str, bool] = {}

    def may_read(topic: str) -> bool:
        if access is None:
            return True
        if topic not in known:
            known[topic] = access.allows(_READ, _TOPIC, topic)
        return known[topic]

    return may_read


class CheckedAcknowledgements(msgspec.Struct):
    """The acknowledgements of a request, by the result of their checks."""

    refused: AcknowledgeResults = msgspec.field(default_factory=dict)
    # Results of partitions without acknowledgements.
    empty: AcknowledgeResults = msgspec.field(default_factory=dict)
    accepted: dict[TopicIdPartition, list[AcknowledgedBatch]] = msgspec.field(default_factory=dict)


def check_acknowledgements(
    context: RequestContext, request: ShareRequest, cluster: ClusterView
) -> Generator[None, None, CheckedAcknowledgements]:
    """Check the acknowledgements of a request, one partition per step."""
    may_read = topic_reader(context)
    checked = CheckedAcknowledgements()
    types_max = RENEW if context.version >= RENEWAL_SINCE else REJECT
    for topic in request.topics:
        name = cluster.topic_name(topic.topic_id)
        for partition in topic.partitions:
            where = TopicIdPartition(topic.topic_id, name or "", partition.partition_index)
            batches = partition.acknowledgement_batches
            if name is None:
                checked.refused[where] = ErrorCode.UNKNOWN_TOPIC_ID, None
            elif not are_valid(batches, types_max, may_renew=request.is_renew_ack):
                checked.refused[where] = ErrorCode.INVALID_REQUEST, None
            elif not may_read(name):
                checked.refused[where] = ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
            elif not cluster.has_partition(name, partition.partition_index):
                checked.refused[where] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
            elif not batches:
                checked.empty[where] = ErrorCode.NONE, None
            else:
                checked.accepted[where] = [
                    AcknowledgedBatch(each.first_offset, each.last_offset, each.acknowledge_types)
                    for each in batches
                ]
            yield
    return checked


def acknowledge(
    shares: SharePartitions,
    key: ShareSessionKey,
    checked: CheckedAcknowledgements,
    on_done: Callable[[AcknowledgeResults], None],
) -> None:
    """Execute the acknowledgements that passed the checks.

    Args:
        shares: the share partitions.
        key: group and member.
        checked: the acknowledgements of the request.
        on_done: gets a result for each partition when all are written, perhaps before this returns.
    """
    if not checked.accepted:
        # As in Kafka, which leaves out partitions without acknowledgements in this case only.
        on_done(checked.refused)
        return
    shares.acknowledge(
        key.group_id,
        key.member_id,
        checked.accepted,
        lambda results: on_done({**checked.refused, **checked.empty, **results}),
    )


def are_valid(batches: Iterable[Batch], types_max: int, *, may_renew: bool) -> bool:
    """Whether the batches are in order, and have one type for all offsets or one for each."""
    previous_last = -1
    for batch in batches:
        types = batch.acknowledge_types
        if batch.first_offset > batch.last_offset or batch.first_offset < previous_last:
            return False
        if not types:
            return False
        if len(types) > 1 and len(types) != batch.last_offset - batch.first_offset + 1:
            return False
        if min(types) < GAP or max(types) > types_max:
            return False
        if not may_renew and RENEW in types:
            return False
        previous_last = batch.last_offset
    return True


MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class LeaderHints:
    """Collects the leaders of moved partitions, and their addresses on one listener."""

    __slots__ = ("_cluster", "_listener_name", "endpoints")

    def __init__(self, cluster: ClusterView, listener_name: str) -> None:
        self._cluster = cluster
        self._listener_name = listener_name
        # Addresses of the leaders by broker id.
        self.endpoints: dict[int, Endpoint] = {}

    def find(self, where: TopicIdPartition) -> tuple[int, int] | None:
        """Return leader and leader epoch of a partition; None if the partition is unknown."""
        partition = self._cluster.partition(where.topic, where.partition)
        if partition is None:
            return None
        endpoint = self._cluster.endpoint(partition.leader, self._listener_name)
        if endpoint is not None:
            self.endpoints[partition.leader] = endpoint
        return partition.leader, partition.leader_epoch
