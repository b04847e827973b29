"""Fetch (key 1, v0-18): read records for consumers and followers, with or without a fetch session.

v0-3 return old message formats, which `old_fetch` creates. v3 adds a size limit of the whole
response, v4 the isolation level and v5 the log start offset. v7 adds sessions (KIP-227), v9 leader
epochs, v10 zstd, v11 the rack (KIP-392), v12 diverging epochs (KIP-595) and v13 topic ids
(KIP-516). v15 adds the broker epoch of the follower (KIP-903), v16 new leaders (KIP-951), v17
directory ids (KIP-853) and v18 the high watermark of the follower (KIP-1166).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.protocol.codec import encode
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from barnabas.protocol.schema import ZERO_UUID
from barnabas.replication.partition.fetch_params import (
    ISOLATION_LEVELS,
    FetchParams,
    FetchPartitionData,
    fetch_isolation,
)
from barnabas.replication.partition.results import FetchResult, failed_fetch
from barnabas.replication.requests.fetch_session_cache import SessionRequest
from barnabas.server.conversion.old_fetch import MAGIC_2_SINCE, ZSTD_SINCE, OldFetch, bytes_limit
from barnabas.server.dispatch.request import EXEMPT
from barnabas.server.dispatch.wide_requests import check_width
from barnabas.server.handlers.records.wide_fetch import WideFetchHandling, session_request_in_steps
from barnabas.storage.topic_partition import TopicIdPartition, made_topic_id_partition

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.protocol.schema import Message
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.replication.requests.fetch_context import FetchContext
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies

    RequestedPartition = tuple[TopicIdPartition, FetchPartitionData]
    PartitionResult = tuple[TopicIdPartition, FetchResult]

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
_ENDPOINTS_SINCE = 16
# Cached member: access to an enum member costs 100 ns, as much as a function call.
_NONE = ErrorCode.NONE
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

# Value for partitions without divergence. The encoder omits the field only for this instance.
_NO_DIVERGENCE: EpochEndOffset = EpochEndOffset.default_instance()


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that reads records for consumers and followers."""
    return FetchHandler(dependencies).handle_fetch


class FetchHandler:
    """Opens the fetch session, reads partitions, and responds with those that have changed."""

    __slots__ = ("_cluster", "_max_bytes", "_old", "_pending", "_quotas", "_replicas", "_sessions")

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._cluster = dependencies.cluster
        self._quotas = dependencies.quotas
        self._replicas = dependencies.replicas
        self._sessions = dependencies.fetch_sessions
        self._max_bytes = dependencies.config.integer("fetch.max.bytes")
        self._old = OldFetch(dependencies.replicas, dependencies.conversions)
        # Class of the objects that hold pending requests. `guarded_fetch` sets a subclass.
        self._pending = PendingFetch

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
            check_width(
                [topic.partitions for topic in request.topics]
                + [topic.partitions for topic in request.forgotten_topics_data],
                PARTITIONS_MAX,
            )
        made = yield from session_request_in_steps(
            request, lambda part: self._session_request(version, part, params)
        )
        return (yield from self._sessions.open_in_steps(made, self._cluster.topic_name))

    def _serve(
        self,
        context: RequestContext,
        request: FetchRequest,
        params: FetchParams,
        session: FetchContext,
    ) -> FetchResponse | None:
        if session.error is not _NONE:
            return FetchResponse(
                error_code=session.error, session_id=session.session_id, responses=[]
            )
        pending = self._pending(
            context, session, self._cluster, self._replicas, params.is_from_follower
        )
        if context.version < ZSTD_SINCE:
            pending.old = self._old
        readable = pending.filter_readable()
        refused_count = pending.refused_count
        idle = session.idle
        if refused_count > REFUSED_WAITING_MAX:
            params.max_wait_ms = 0
        if (readable or idle) and request.isolation_level not in ISOLATION_LEVELS:
            return _refused(context.version, request)
        is_wide = len(readable) + refused_count > NARROW_PARTITIONS_MAX
        if is_wide or (idle is not None and not params.is_from_follower):
            WideFetchHandling(context, session, pending).fetch(self._replicas, params, readable)
        elif readable or idle:
            operation = self._replicas.fetch(params, readable, pending.on_fetched, idle)
            if operation is not None:
                context.on_client_gone(operation.cancel)
        else:
            pending.on_fetched([])
        return None

    def _params(self, context: RequestContext, request: FetchRequest) -> FetchParams:
        version = context.version
        replica_id, replica_epoch = request.replica_id, -1
        if version >= _REPLICA_STATE_SINCE:
            replica_id = request.replica_state.replica_id
            replica_epoch = request.replica_state.replica_epoch
        max_bytes = min(request.max_bytes, self._max_bytes)
        if version < MAGIC_2_SINCE:
            max_bytes = bytes_limit(request, max_bytes)
        if self._quotas.is_active and replica_id < 0:
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

    def _resolve(self, uses_topic_ids: bool, name: str, topic_id: bytes) -> tuple[bytes, str]:
        """Return topic id and name. The name of an unknown id is empty; names are not checked."""
        if uses_topic_ids:
            return topic_id, self._cluster.topic_name(topic_id) or ""
        return ZERO_UUID, name


class PendingFetch:
    """A pending fetch: the request, its session, and the errors of partitions that are not read."""

    __slots__ = (
        "_cluster",
        "_context",
        "_refused",
        "_replicas",
        "_session",
        "is_exempt",
        "old",
        "requested",
    )

    def __init__(
        self,
        context: RequestContext,
        session: FetchContext,
        cluster: ClusterView,
        replicas: ReplicaManager,
        is_from_follower: bool,
    ) -> None:
        self._context = context
        self._replicas = replicas
        # Whether no quota applies, because a follower fetches.
        self.is_exempt = is_from_follower
        self._session = session
        self._cluster = cluster
        # Converts the response for old versions. None for versions with magic 2.
        self.old: OldFetch | None = None
        # All requested partitions, in the order of the response.
        self.requested: list[RequestedPartition] = []
        self._refused: dict[TopicIdPartition, FetchResult] = {}

    def filter_readable(self) -> list[RequestedPartition]:
        """Return the partitions that can be read, and record an error for all others."""
        requested = self._session.partitions()
        topics = self._cluster.image.topics
        unknown_ids: list[TopicIdPartition] = []
        unknown: list[TopicIdPartition] = []
        for topic_partition, _ in requested:
            topic = topics.by_name(topic_partition.topic)
            if topic is None or topic_partition.partition not in topic.partitions:
                # A session keeps the name of an id whose topic was deleted. An empty name means
                # that the id was never known.
                named = topic_partition.topic or self._context.version < _TOPIC_IDS_SINCE
                (unknown if named else unknown_ids).append(topic_partition)
        self.requested = requested
        if not unknown and not unknown_ids:
            return requested
        # Kafka puts unknown ids first.
        self._refuse(unknown_ids, ErrorCode.UNKNOWN_TOPIC_ID)
        self._refuse(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self.is_exempt:
            # For followers, the errors are in the order of the request.
            self._refused = {
                each[0]: self._refused[each[0]] for each in requested if each[0] in self._refused
            }
        return [each for each in requested if each[0] not in self._refused]

    @property
    def refused_count(self) -> int:
        """Number of partitions that are not read because they are unknown."""
        return len(self._refused)

    def _refuse(self, partitions: list[TopicIdPartition], error: ErrorCode) -> None:
        for topic_partition in partitions:
            failed = failed_fetch(error)
            # Send an empty list and not null, because the partition was not looked up.
            failed.aborted_transactions = []
            self._refused[topic_partition] = failed

    def on_fetched(self, results: list[PartitionResult]) -> None:
        """Send the response. In a session it has only the partitions that have changed."""
        try:
            if self._refused:
                results = self.with_refused(results)
            if self.is_exempt:
                self._filter_and_respond(results, EXEMPT)
            elif self._context.quotas.is_active:
                self._respond_within_quota(results)
            else:
                self._filter_and_respond(results, 0)
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001 - other requests are completed by the same call
            self._context.give_up(error)

    def with_refused(self, results: list[PartitionResult]) -> list[PartitionResult]:
        """Return the results with those of refused partitions, which come last as in Kafka."""
        return [*results, *self._refused.items()] if self._refused else results

    def _filter_and_respond(self, results: list[PartitionResult], throttle_ms: int) -> None:
        changed = self._session.answer(results)
        if self.old is None:
            self._respond(changed, throttle_ms)
            return
        respond = partial(self._respond, throttle_ms=throttle_ms)
        self.old.adapt(self._context, changed, self.requested, respond)

    def _respond(self, changed: list[PartitionResult], throttle_ms: int) -> None:
        response = FetchResponse(
            error_code=self._session.error, session_id=self._session.session_id, responses=[]
        )
        self.add_topics(response, changed)
        is_clean = self.count(changed) and self._session.error is _NONE
        self._context.respond(response, throttle_ms, is_clean=is_clean)

    def count(self, changed: list[PartitionResult]) -> bool:
        """Count the bytes of each topic, and return whether no partition has an error."""
        topics = self._replicas.metrics.topics
        is_clean = True
        for requested, result in changed:
            if result.error is not _NONE:
                is_clean = False
            size = len(result.records)
            if not size:
                continue
            if self.is_exempt:
                self._replicas.count_sent(requested, result)
            else:
                topics[requested.topic].bytes_out += size
        return is_clean

    def _respond_within_quota(self, results: list[PartitionResult]) -> None:
        """Send the response, or an empty one with a throttle time if the quota is exceeded."""
        sized = FetchResponse(responses=[])
        self.add_topics(sized, [each for each in results if len(each[1].records) > 0])
        if not self.maybe_respond_throttled(sized):
            self._filter_and_respond(results, 0)

    def maybe_respond_throttled(self, sized: FetchResponse) -> bool:
        """Send an empty response with a throttle time if the quota is exceeded.

        Args:
            sized: all results with records. Its size counts for the quota.

        Returns:
            Whether the response is sent.
        """
        context, quota = self._context, self._context.quotas.fetch
        client_id = context.client_id or ""
        size = sum(map(len, encode(sized, context.version)))
        throttle_ms = quota.record(context.user, client_id, size)
        if throttle_ms <= 0:
            return False
        quota.unrecord(context.user, client_id, size)
        if self._session.session_id:
            # Only check that the session still has the epoch of this request.
            self._session.answer([])
        response = FetchResponse(
            error_code=self._session.error, session_id=self._session.session_id, responses=[]
        )
        context.respond(response, throttle_ms)
        return True

    def add_topics(self, response: FetchResponse, changed: list[PartitionResult]) -> None:
        """Add the results to the response. Consecutive partitions of a topic share an entry."""
        last: tuple[bytes, str] | None = None
        partitions: list[PartitionData] = []
        if response.responses:
            entry = response.responses[-1]
            last, partitions = (entry.topic_id, entry.topic), entry.partitions
        for requested, result in changed:
            topic = (requested.topic_id, requested.topic)
            if topic != last:
                last = topic
                partitions = []
                response.responses.append(
                    FetchableTopicResponse(
                        topic=requested.topic, topic_id=requested.topic_id, partitions=partitions
                    )
                )
            data = partition_data(requested.partition, result)
            partitions.append(data)
            if result.error in _MOVED and self._context.version >= _ENDPOINTS_SINCE:
                self._name_leader(response, requested, data)

    def _name_leader(
        self, response: FetchResponse, requested: TopicIdPartition, data: PartitionData
    ) -> None:
        partition = self._cluster.partition(requested.topic, requested.partition)
        if partition is None:
            return
        data.current_leader = LeaderIdAndEpoch(
            leader_id=partition.leader, leader_epoch=partition.leader_epoch
        )
        if self.is_exempt:
            # Brokers get each other's addresses from the metadata.
            return
        endpoint = self._cluster.endpoint(partition.leader, self._context.listener_name)
        known = {node.node_id for node in response.node_endpoints}
        if endpoint is not None and partition.leader not in known:
            response.node_endpoints.append(
                NodeEndpoint(node_id=partition.leader, host=endpoint.host, port=endpoint.port)
            )


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


def partition_data(index: int, result: FetchResult) -> PartitionData:
    """Return the entry of one partition in the response."""
    diverging = result.diverging_epoch
    aborted = result.aborted_transactions
    return PartitionData(
        partition_index=index,
        error_code=result.error,
        high_watermark=result.high_watermark,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start_offset,
        diverging_epoch=_NO_DIVERGENCE
        if diverging is None
        else EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.end_offset),
        aborted_transactions=None
        if aborted is None
        else [
            AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in aborted
        ],
        preferred_read_replica=result.preferred_read_replica,
        records=result.records,
    )
