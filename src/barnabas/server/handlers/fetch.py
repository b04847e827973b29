"""Fetch: key 1, v0-18. Reads for consumers and followers, within sessions or without.

v0-3 get old message formats, which `old_fetch` makes; v3 limits the whole answer, v4 isolation
level, v5 log start offset, v7 sessions (KIP-227), v9 leader epochs, v10 zstd, v11 rack (KIP-392),
v12 diverging epochs (KIP-595), v13 topic ids (KIP-516), v15 the follower's broker epoch (KIP-903),
v16 new leaders (KIP-951), v17 directory ids (KIP-853), v18 the asker's high watermark (KIP-1166).
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
from barnabas.replication.fetch_params import (
    ISOLATION_LEVELS,
    FetchParams,
    FetchPartitionData,
    fetch_isolation,
)
from barnabas.replication.fetch_session_cache import SessionRequest
from barnabas.replication.results import FetchResult, failed_fetch
from barnabas.server.old_fetch import MAGIC_2_SINCE, ZSTD_SINCE, OldFetch, bytes_limit
from barnabas.server.request import EXEMPT
from barnabas.storage.topic_partition import TopicIdPartition

if TYPE_CHECKING:
    from barnabas.replication.fetch_context import FetchContext
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.server.cluster_view import ClusterView
    from barnabas.server.parts import ServerParts
    from barnabas.server.request import Handle, RequestContext

    Asked = tuple[TopicIdPartition, FetchPartitionData]
    Answered = tuple[TopicIdPartition, FetchResult]

# A fetch of more partitions that do not exist does not wait: it would keep them all meanwhile.
REFUSED_WAITING_MAX = 1_000
_TOPIC_IDS_SINCE = 13
_REPLICA_STATE_SINCE = 15
_ENDPOINTS_SINCE = 16
# Looking a member up in its enum costs 100 ns, as much as a call.
_NONE = ErrorCode.NONE
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

# What most partitions answer: the very struct by which the encoder knows that nothing is there.
_NO_DIVERGENCE: EpochEndOffset = EpochEndOffset.default_instance()


def handler(parts: ServerParts) -> Handle:
    """The handler of this API."""
    return FetchHandler(parts).handle_fetch


class FetchHandler:
    """Opens the session, hands what can be read to the replicas, answers with what has news."""

    __slots__ = ("_cluster", "_max_bytes", "_old", "_quotas", "_replicas", "_sessions")

    def __init__(self, parts: ServerParts) -> None:
        self._cluster = parts.cluster
        self._quotas = parts.quotas
        self._replicas = parts.replicas
        self._sessions = parts.fetch_sessions
        self._max_bytes = parts.config.integer("fetch.max.bytes")
        self._old = OldFetch(parts.replicas, parts.conversions)

    def handle_fetch(self, context: RequestContext, request: FetchRequest) -> FetchResponse | None:
        """Answered now only if the session cannot be used; else when there is enough to read."""
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
        if readable or session.quiet:
            if request.isolation_level not in ISOLATION_LEVELS:
                return _refused(context.version, request)
            operation = self._replicas.fetch(params, readable, pending.on_fetched, session.quiet)
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
            # A partition that is named twice is read once: in its first place, as its last says.
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
        """Id and name; the name of an unknown id is empty, names of old versions go unchecked."""
        if uses_topic_ids:
            return topic_id, self._cluster.topic_name(topic_id) or ""
        return ZERO_UUID, name


class PendingFetch:
    """A request whose answer is being put together."""

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
        # What brings the answer into an old version's form; None for versions that need none.
        self.old: OldFetch | None = None
        # Everything asked, in the order that the answer has.
        self._asked: list[Asked] = []
        self._refused: dict[TopicIdPartition, FetchResult] = {}

    def take(self, asked: list[Asked]) -> list[Asked]:
        """What can be read; the rest is refused, and answered together with it."""
        topics = self._cluster.image.topics
        unknown_ids: list[TopicIdPartition] = []
        unknown: list[TopicIdPartition] = []
        for topic_partition, _ in asked:
            topic = topics.by_name(topic_partition.topic)
            if topic is None or topic_partition.partition not in topic.partitions:
                # A session keeps the name that an id once had; where there is none, none was known.
                named = topic_partition.topic or self._context.version < _TOPIC_IDS_SINCE
                (unknown if named else unknown_ids).append(topic_partition)
        # Ids that nobody knows come first, as Kafka has them.
        self._refuse(unknown_ids, ErrorCode.UNKNOWN_TOPIC_ID)
        self._refuse(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._asked = asked
        if not self._refused:
            return asked
        return [each for each in asked if each[0] not in self._refused]

    @property
    def refused_count(self) -> int:
        """Partitions that are not read."""
        return len(self._refused)

    def _refuse(self, partitions: list[TopicIdPartition], error: ErrorCode) -> None:
        for topic_partition in partitions:
            failed = failed_fetch(error)
            # Empty, not absent: the partition was not even looked for.
            failed.aborted_transactions = []
            self._refused[topic_partition] = failed

    def on_fetched(self, results: list[Answered]) -> None:
        """Answer with what the session leaves of the results."""
        try:
            self._on_fetched(results)
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001 - other requests are completed by the same call
            self._context.give_up(error)

    def _on_fetched(self, results: list[Answered]) -> None:
        if self._refused:
            # Behind those that were read, as Kafka has them.
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
        """Count the bytes of each topic; returns whether there is no error."""
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
        """Over quota: nothing, and the time to wait, so that the client asks for it again."""
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
            # Only whether the session still is at this request's epoch.
            self._session.answer([])
        response = FetchResponse(
            error_code=self._session.error, session_id=self._session.session_id, responses=[]
        )
        context.respond(response, throttle_ms)

    def _add_topics(self, response: FetchResponse, news: list[Answered]) -> None:
        """Neighbours of one topic share an entry."""
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
            # Brokers know each other's addresses.
            return
        endpoint = self._cluster.endpoint(partition.leader, self._context.listener_name)
        known = {node.node_id for node in response.node_endpoints}
        if endpoint is not None and partition.leader not in known:
            response.node_endpoints.append(
                NodeEndpoint(node_id=partition.leader, host=endpoint.host, port=endpoint.port)
            )


def _refused(version: int, request: FetchRequest) -> FetchResponse:
    """The answer to an isolation level that is none: nothing is read, for no partition."""
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
    """What to read at most: what the client's quota allows in all its windows."""
    largest = context.quotas.fetch.largest_use(context.user, context.client_id or "")
    return max_bytes if largest is None else min(max_bytes, int(largest))


def partition_data(index: int, result: FetchResult) -> PartitionData:
    """One partition's part of the answer."""
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
