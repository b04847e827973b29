"""ShareAcknowledge (key 79, v1-2): acknowledge records of a share group (KIP-932).

Version 2 renews acquisition locks (KIP-1222).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from barnabas.server.handlers.share.leader_hints import MOVED, LeaderHints
from barnabas.server.handlers.share.requested_batches import (
    Acknowledging,
    acknowledge,
    are_too_many,
    check_acknowledgements,
    refuse_member,
)
from barnabas.server.share.share_sessions import FINAL_EPOCH, ShareSessionKey

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
    from barnabas.protocol.schema import Message
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies
    from barnabas.server.handlers.share.requested_batches import AcknowledgeResults


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler of acknowledgements."""
    return ShareAcknowledgeHandler(dependencies).handle_share_acknowledge


class ShareAcknowledgeHandler:
    """Checks the session, writes the acknowledgements, and ends the session at its last request."""

    __slots__ = ("_cluster", "_shares")

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._cluster = dependencies.cluster
        self._shares = dependencies.shares

    def handle_share_acknowledge(
        self, context: RequestContext, request: ShareAcknowledgeRequest
    ) -> Message | None:
        """Respond when all acknowledgements are written."""
        error = refuse_member(
            context,
            request.group_id,
            request.member_id,
            is_enabled=self._cluster.image.features.has_share_groups,
        )
        if error is ErrorCode.NONE and are_too_many(request.topics, self._shares):
            error = ErrorCode.INVALID_REQUEST
        if error is not ErrorCode.NONE:
            return _failed(error)
        assert request.group_id is not None, "checked"
        assert request.member_id is not None, "checked"
        key = ShareSessionKey(request.group_id, request.member_id)
        session = self._shares.sessions.advance(key, request.share_session_epoch)
        if isinstance(session, ErrorCode):
            return _failed(session)
        checks = check_acknowledgements(
            context,
            Acknowledging(context.version, request.is_renew_ack),
            request.topics,
            self._cluster,
        )
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
            found = hints.find(where) if error in MOVED else None
            if found is not None:
                data.current_leader = LeaderIdAndEpoch(leader_id=found[0], leader_epoch=found[1])
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
