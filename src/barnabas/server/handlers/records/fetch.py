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
from barnabas.storage.topic_partition import TopicIdPartition

if TYPE_CHECKING:
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.replication.requests.fetch_context import FetchContext
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies

    Asked = tuple[TopicIdPartition, FetchPartitionData]
    Answered = tuple[TopicIdPartition, FetchResult]

# A fetch with more unknown partitions does not wait, because it would hold their results in memory.
REFUSED_WAITING_MAX = 1_000
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

    __slots__ = ("_cluster", "_max_bytes", "_old", "_quotas", "_replicas", "_sessions")

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._cluster = dependencies.cluster
        self._quotas = dependencies.quotas
        self._replicas = dependencies.replicas
        self._sessions = dependencies.fetch_sessions
        self._max_bytes = dependencies.config.integer("fetch.max.bytes")
        self._old = OldFetch(dependencies.replicas, dependencies.conversions)

    def handle_fetch(self, context: RequestContext, request: FetchRequest) -> FetchResponse | None:
        """Respond once enough bytes can be read, or immediately if the request is invalid."""
        params = self._params(context, request)
        session = self._sessions.open(
            self._session_request(context.version, request, params),
            self._cluster.topic_name,
        )
        if session.error is not ErrorCode.NONE:
            return FetchResponse(
                error_code=session.error, session_id=session.session_id, responses=[]
            )
        pending = PendingFetch(
            context, session, self._cluster, self._replicas, params.is_from_follower
        )
        if context.version < ZSTD_SINCE:
            pending.old = self._old
        readable = pending.take(session.partitions())
        if pending.refused_count > REFUSED_WAITING_MAX:
            params.max_wait_ms = 0
        if readable or session.idle:
            if request.isolation_level not in ISOLATION_LEVELS:
                return _refused(context.version, request)
            operation = self._replicas.fetch(params, readable, pending.on_fetched, session.idle)
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
        asked: list[Asked] = []
        for topic in request.topics:
            topic_id, name = self._resolve(uses_topic_ids, topic.topic, topic.topic_id)
            asked += [
                (
                    TopicIdPartition(topic_id, name, partition.partition),
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
        if len(asked) > 1:
            # Read a repeated partition once: at its first position, with its last parameters.
            asked = list(dict(asked).items())
        forgotten = []
        for gone in request.forgotten_topics_data:
            topic_id, name = self._resolve(uses_topic_ids, gone.topic, gone.topic_id)
            forgotten += [TopicIdPartition(topic_id, name, index) for index in gone.partitions]
        return SessionRequest(
            request.session_id,
            request.session_epoch,
            asked,
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
    """A request and its response while records are awaited."""

    __slots__ = (
        "_asked",
        "_cluster",
        "_context",
        "_is_exempt",
        "_refused",
        "_replicas",
        "_session",
        "old",
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
        self._is_exempt = is_from_follower
        self._session = session
        self._cluster = cluster
        # Converts the response for old versions. None for versions with magic 2.
        self.old: OldFetch | None = None
        # All requested partitions, in the order of the response.
        self._asked: list[Asked] = []
        self._refused: dict[TopicIdPartition, FetchResult] = {}

    def take(self, asked: list[Asked]) -> list[Asked]:
        """Return the partitions that can be read, and record an error for all others."""
        topics = self._cluster.image.topics
        unknown_ids: list[TopicIdPartition] = []
        unknown: list[TopicIdPartition] = []
        for topic_partition, _ in asked:
            topic = topics.by_name(topic_partition.topic)
            if topic is None or topic_partition.partition not in topic.partitions:
                # A session keeps the name of an id whose topic was deleted. An empty name means
                # that the id was never known.
                named = topic_partition.topic or self._context.version < _TOPIC_IDS_SINCE
                (unknown if named else unknown_ids).append(topic_partition)
        # Kafka puts unknown ids first.
        self._refuse(unknown_ids, ErrorCode.UNKNOWN_TOPIC_ID)
        self._refuse(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._asked = asked
        if not self._refused:
            return asked
        return [each for each in asked if each[0] not in self._refused]

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

    def on_fetched(self, results: list[Answered]) -> None:
        """Send the response with the results that the session does not omit."""
        try:
            self._on_fetched(results)
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001 - other requests are completed by the same call
            self._context.give_up(error)

    def _on_fetched(self, results: list[Answered]) -> None:
        if self._refused:
            # Append the unknown partitions after those that were read, as Kafka does.
            results = [*results, *self._refused.items()]
        if self._is_exempt:
            self._answer(results, EXEMPT)
        elif self._context.quotas.is_active:
            self._answer_within_quota(results)
        else:
            self._answer(results, 0)

    def _answer(self, results: list[Answered], throttle_ms: int) -> None:
        news = self._session.answer(results)
        if self.old is None:
            self._respond(news, throttle_ms)
            return
        respond = partial(self._respond, throttle_ms=throttle_ms)
        self.old.adapt(self._context, news, self._asked, respond)

    def _respond(self, news: list[Answered], throttle_ms: int) -> None:
        response = FetchResponse(
            error_code=self._session.error, session_id=self._session.session_id, responses=[]
        )
        self._add_topics(response, news)
        is_clean = self._count(news) and self._session.error is _NONE
        self._context.respond(response, throttle_ms, is_clean=is_clean)

    def _count(self, news: list[Answered]) -> bool:
        """Count the bytes of each topic, and return whether no partition has an error."""
        topics = self._replicas.metrics.topics
        is_clean = True
        for asked, result in news:
            if result.error is not _NONE:
                is_clean = False
            size = len(result.records)
            if not size:
                continue
            if self._is_exempt:
                self._replicas.count_sent(asked, result)
            else:
                topics[asked.topic].bytes_out += size
        return is_clean

    def _answer_within_quota(self, results: list[Answered]) -> None:
        """Send the response, or an empty one with a throttle time if the quota is exceeded."""
        context, quota = self._context, self._context.quotas.fetch
        client_id = context.client_id or ""
        sized = FetchResponse(responses=[])
        self._add_topics(sized, [each for each in results if len(each[1].records) > 0])
        size = sum(map(len, encode(sized, context.version)))
        throttle_ms = quota.record(context.user, client_id, size)
        if throttle_ms <= 0:
            self._answer(results, 0)
            return
        quota.unrecord(context.user, client_id, size)
        if self._session.session_id:
            # Only check that the session still has the epoch of this request.
            self._session.answer([])
        response = FetchResponse(
            error_code=self._session.error, session_id=self._session.session_id, responses=[]
        )
        context.respond(response, throttle_ms)

    def _add_topics(self, response: FetchResponse, news: list[Answered]) -> None:
        """Add the results to the response. Consecutive partitions of a topic share an entry."""
        last: tuple[bytes, str] | None = None
        partitions: list[PartitionData] = []
        for asked, result in news:
            topic = (asked.topic_id, asked.topic)
            if topic != last:
                last = topic
                partitions = []
                response.responses.append(
                    FetchableTopicResponse(
                        topic=asked.topic, topic_id=asked.topic_id, partitions=partitions
                    )
                )
            data = partition_data(asked.partition, result)
            partitions.append(data)
            if result.error in _MOVED and self._context.version >= _ENDPOINTS_SINCE:
                self._name_leader(response, asked, data)

    def _name_leader(
        self, response: FetchResponse, asked: TopicIdPartition, data: PartitionData
    ) -> None:
        partition = self._cluster.partition(asked.topic, asked.partition)
        if partition is None:
            return
        data.current_leader = LeaderIdAndEpoch(
            leader_id=partition.leader, leader_epoch=partition.leader_epoch
        )
        if self._is_exempt:
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
