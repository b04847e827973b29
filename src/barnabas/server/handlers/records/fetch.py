"""Fetch (key 1, v0-18): read records for consumers and followers, with or without a fetch session.

v0-3 return old message formats, which `OldFetch` creates. v3 adds a size limit of the whole
response, v4 the isolation level and v5 the log start offset. v7 adds sessions (KIP-227), v9 leader
epochs, v10 zstd, v11 the rack (KIP-392), v12 diverging epochs (KIP-595) and v13 topic ids
(KIP-516). v15 adds the broker epoch of the follower (KIP-903), v16 new leaders (KIP-951), v17
directory ids (KIP-853) and v18 the high watermark of the follower (KIP-1166).
"""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from barnabas.protocol.resources import CLUSTER_NAME, AclOperation, AclResourceType
from barnabas.protocol.schema import ZERO_UUID
from barnabas.replication.partition.fetch_params import (
    ISOLATION_LEVELS,
    FetchParams,
    FetchPartitionData,
    fetch_isolation,
)
from barnabas.replication.partition.results import failed_fetch
from barnabas.replication.requests.fetch_session_cache import SessionRequest
from barnabas.server.conversion.old_versions import (
    FETCH_MAGIC_2_SINCE,
    ZSTD_SINCE,
    OldFetch,
    bytes_limit,
)
from barnabas.server.dispatch.dispatcher import check_width
from barnabas.server.handlers.records.pending_fetch import PendingFetch, partition_data
from barnabas.storage.topic_partition import TopicIdPartition, made_topic_id_partition
from barnabas.waiting.steps import in_parts

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.protocol.messages.fetch import ForgottenTopic
    from barnabas.protocol.schema import Message
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.replication.requests.fetch_session import FetchContext
    from barnabas.replication.requests.fetch_session_cache import FetchSessionCache
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.conversion.conversion_queue import ConversionQueue
    from barnabas.server.dispatch.request import RequestContext
    from barnabas.server.security.authorizer.guard import Guard
    from barnabas.settings.definition import ParsedConfig

    RequestedPartition = tuple[TopicIdPartition, FetchPartitionData]


# A fetch with more unknown partitions does not wait, so that their results do not stay in memory.
REFUSED_WAITING_MAX = 1_000
# Limit for the partitions in a fetch of a consumer.
PARTITIONS_MAX = 10_000
# A fetch with more partitions is served in slices.
NARROW_PARTITIONS_MAX = 1_000
# Shorter requests have at most this number of partitions.
NARROW_BYTES_MAX = 16 * NARROW_PARTITIONS_MAX
_TOPIC_IDS_SINCE = 13
_REPLICA_STATE_SINCE = 15
# Partitions that one step reads from a request.
_AT_ONCE = 200
_CLUSTER_ACTION, _CLUSTER = int(AclOperation.CLUSTER_ACTION), int(AclResourceType.CLUSTER)
# Cached member: access to an enum member costs 100 ns, as much as a function call.
_NONE = ErrorCode.NONE


class FetchHandler:
    """Opens the fetch session, reads partitions, and responds with those that have changed."""

    __slots__ = (
        "_cluster",
        "_is_guarded",
        "_max_bytes",
        "_old",
        "_replicas",
        "_sessions",
    )

    def __init__(
        self,
        cluster: ClusterView,
        replicas: ReplicaManager,
        fetch_sessions: FetchSessionCache,
        config: ParsedConfig,
        conversions: ConversionQueue,
        guard: Guard | None,
    ) -> None:
        self._cluster = cluster
        self._replicas = replicas
        self._sessions = fetch_sessions
        self._max_bytes = config.integer("fetch.max.bytes")
        self._old = OldFetch(replicas, conversions)
        # Whether clients need rights: READ on each topic, CLUSTER_ACTION for followers.
        self._is_guarded = guard is not None

    def handle_fetch(self, context: RequestContext, request: FetchRequest) -> Message | None:
        """Respond when enough bytes are available, or immediately if the request is invalid."""
        params = self._params(context, request)
        if context.request_bytes > NARROW_BYTES_MAX:
            return context.after(
                self._open_in_steps(context.version, request, params),
                partial(self._serve, context, request, params),
            )
        session = self._sessions.open(
            self._session_request(context.version, request, params),
            self._cluster.topic_name,
        )
        return self._serve(context, request, params, session)

    def _open_in_steps(
        self, version: int, request: FetchRequest, params: FetchParams
    ) -> Generator[None, None, FetchContext]:
        """Open the session of a request with many partitions."""
        if not params.is_from_follower:
            topics: list[FetchTopic | ForgottenTopic] = [
                *request.topics,
                *request.forgotten_topics_data,
            ]
            check_width(topics, (topic.partitions for topic in topics), PARTITIONS_MAX)
        session_request = yield from self._session_request_in_steps(version, request, params)
        return (yield from self._sessions.open_in_steps(session_request, self._cluster.topic_name))

    def _serve(
        self,
        context: RequestContext,
        request: FetchRequest,
        params: FetchParams,
        session: FetchContext,
    ) -> FetchResponse | None:
        is_follower = params.is_from_follower
        if session.error is not _NONE:
            return FetchResponse(
                error_code=session.error, session_id=session.session_id, responses=[]
            )
        pending = PendingFetch(context, session, self._cluster, self._replicas, is_follower)
        if is_follower and self._is_guarded and not _may_follow(context):
            pending.refuse_all()
            return None
        if context.version < ZSTD_SINCE:
            pending.old = self._old
        readable = pending.filter_readable(is_guarded=self._is_guarded and not is_follower)
        idle = session.idle
        if (readable or idle) and request.isolation_level not in ISOLATION_LEVELS:
            return _refused(context.version, request)
        refused_count = len(pending.refused)
        if refused_count > REFUSED_WAITING_MAX:
            params.max_wait_ms = 0
        is_wide = len(readable) + refused_count > NARROW_PARTITIONS_MAX
        if is_wide or (idle is not None and not is_follower):
            pending.is_wide = True
        if not (readable or idle):
            pending.on_fetched([])
            return None
        run = pending.run if pending.is_wide else None
        operation = self._replicas.fetch(params, readable, pending.on_fetched, idle, run)
        if operation is not None:
            context.on_client_gone(operation.cancel)
        return None

    def _params(self, context: RequestContext, request: FetchRequest) -> FetchParams:
        version = context.version
        replica_id, replica_epoch = request.replica_id, -1
        if version >= _REPLICA_STATE_SINCE:
            replica_id = request.replica_state.replica_id
            replica_epoch = request.replica_state.replica_epoch
        max_bytes = min(request.max_bytes, self._max_bytes)
        if version < FETCH_MAGIC_2_SINCE:
            max_bytes = bytes_limit(request, max_bytes)
        if context.quotas.is_active and replica_id < 0:
            max_bytes = within_quota(context, max_bytes)
        return FetchParams(
            version=version,
            replica_id=replica_id,
            replica_epoch=replica_epoch,
            max_wait_ms=request.max_wait_ms,
            min_bytes=min(request.min_bytes, max_bytes),
            max_bytes=max_bytes,
            isolation=fetch_isolation(replica_id, request.isolation_level),
            rack_id=request.rack_id,
            listener_name=context.listener_name,
        )

    def _session_request(
        self, version: int, request: FetchRequest, params: FetchParams
    ) -> SessionRequest:
        uses_topic_ids = version >= _TOPIC_IDS_SINCE
        requested: list[RequestedPartition] = []
        for topic in request.topics:
            topic_id, name = self._resolve(uses_topic_ids, topic.topic, topic.topic_id)
            requested += [
                (
                    made_topic_id_partition((topic_id, name, partition.partition)),
                    FetchPartitionData(
                        partition.fetch_offset,
                        partition.partition_max_bytes,
                        partition.log_start_offset,
                        partition.current_leader_epoch,
                        partition.last_fetched_epoch,
                    ),
                )
                for partition in topic.partitions
            ]
        if len(requested) > 1:
            # Read a repeated partition once: at its first position, with its last parameters.
            requested = list(dict(requested).items())
        forgotten = []
        for forgotten_topic in request.forgotten_topics_data:
            topic_id, name = self._resolve(
                uses_topic_ids, forgotten_topic.topic, forgotten_topic.topic_id
            )
            forgotten += [
                TopicIdPartition(topic_id, name, index) for index in forgotten_topic.partitions
            ]
        return SessionRequest(
            request.session_id,
            request.session_epoch,
            requested,
            forgotten,
            params.is_from_follower,
            uses_topic_ids,
            params.replica_id,
            params.replica_epoch,
        )

    def _session_request_in_steps(
        self, version: int, request: FetchRequest, params: FetchParams
    ) -> Generator[None, None, SessionRequest]:
        """Do the same as `_session_request` for many partitions."""
        short = copy(request)
        short.topics = []
        without_partitions = self._session_request(version, short, params)
        short.forgotten_topics_data = []
        requested: list[RequestedPartition] = []
        for topic in request.topics:
            yield
            for part in in_parts(topic.partitions, _AT_ONCE):
                short.topics = [
                    FetchTopic(topic=topic.topic, topic_id=topic.topic_id, partitions=part)
                ]
                requested += self._session_request(version, short, params).requested
                yield
        # Merge the repetitions of a partition, as for a whole request.
        return replace(without_partitions, requested=list(dict(requested).items()))

    def _resolve(self, uses_topic_ids: bool, name: str, topic_id: bytes) -> tuple[bytes, str]:
        """Return topic id and name. The name of an unknown id is empty; names are not checked."""
        if uses_topic_ids:
            return topic_id, self._cluster.topic_name(topic_id) or ""
        return ZERO_UUID, name


def _may_follow(context: RequestContext) -> bool:
    """Return whether the client has the right of a follower."""
    access = context.access
    assert access is not None, "the node has an authorizer"
    return access.allows(_CLUSTER_ACTION, _CLUSTER, CLUSTER_NAME)


def _refused(version: int, request: FetchRequest) -> FetchResponse:
    """Return the error response to an invalid isolation level."""
    error = ErrorCode.UNKNOWN_SERVER_ERROR
    failed = failed_fetch(error)
    failed.aborted_transactions = []
    response = FetchResponse(error_code=error, session_id=request.session_id, responses=[])
    if version < _TOPIC_IDS_SINCE:
        response.responses = [
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[partition_data(each.partition, failed) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    return response


def within_quota(context: RequestContext, max_bytes: int) -> int:
    """Return the limit of a fetch: `max_bytes`, or less if the client's quota is smaller."""
    largest = context.quotas.fetch.largest_use(context.user, context.client_id or "")
    return max_bytes if largest is None else min(max_bytes, int(largest))
