"""ShareFetch (key 78, v1-2): acquire and acknowledge records of a share group (KIP-932).

Version 2 adds acquire modes (KIP-1206) and renewals of acquisition locks (KIP-1222).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.protocol.codec import encode
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.share_consumers import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from barnabas.replication.partition.fetch_params import CONSUMER_REPLICA_ID, FetchParams
from barnabas.server.handlers.records.fetch import within_quota
from barnabas.server.handlers.records.share_acknowledge import (
    MOVED,
    RENEWAL_SINCE,
    LeaderHints,
    acknowledge,
    check_acknowledgements,
    session_key,
    topic_reader,
)
from barnabas.server.share.delayed_share_fetch import ShareFetchOptions, ShareFetchResult
from barnabas.server.share.records.acquisition import BATCH_OPTIMIZED, RECORD_LIMIT
from barnabas.server.share.records.share_records import MemberRequest
from barnabas.server.share.share_partitions import NARROW_PARTITIONS_MAX
from barnabas.server.share.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSessionKey
from barnabas.storage.topic_partition import TopicIdPartition
from barnabas.waiting.steps import in_parts, run_to_end

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.protocol.messages.share_consumers import ShareFetchRequest
    from barnabas.protocol.schema import Message
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.dispatch.request import RequestContext
    from barnabas.server.handlers.records.share_acknowledge import (
        AcknowledgeResults,
        CheckedAcknowledgements,
    )
    from barnabas.server.share.share_partitions import SharePartitions
    from barnabas.server.share.share_sessions import ShareSession
    from barnabas.settings.definition import ParsedConfig

    Results = dict[TopicIdPartition, ShareFetchResult]


# Version of Fetch whose rules apply to the reads: leaders only, and the first batch is whole.
_FETCH_VERSION = 10
# Longest wait before a session is refused. It is shorter than the request timeouts of clients.
_REFUSAL_WAIT_MS_MAX = 10_000
ACQUIRE_MODES = (BATCH_OPTIMIZED, RECORD_LIMIT)
_NONE = ErrorCode.NONE


class ShareFetchHandler:
    """Opens the session, acknowledges, acquires, and responds with changed partitions."""

    __slots__ = ("_clock", "_cluster", "_fetch_bytes_max", "_shares")

    def __init__(
        self,
        cluster: ClusterView,
        shares: SharePartitions,
        config: ParsedConfig,
    ) -> None:
        self._cluster = cluster
        self._shares = shares
        self._fetch_bytes_max = config.integer("fetch.max.bytes")

    def handle_share_fetch(
        self, context: RequestContext, request: ShareFetchRequest
    ) -> Message | None:
        """Respond when enough bytes are available and all acknowledgements are written."""
        key = session_key(context, request, self._cluster, self._shares)
        if isinstance(key, ErrorCode):
            return failed_share_fetch(key)
        if is_renewal_with_fetch(context.version, request):
            return failed_share_fetch(ErrorCode.INVALID_REQUEST)
        acknowledges = any(
            partition.acknowledgement_batches
            for topic in request.topics
            for partition in topic.partitions
        )
        session = self._open(context, key, request, acknowledges)
        if session is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            # Refuse late, so that the member does not retry at once.
            wait_ms = min(max(0, request.max_wait_ms), _REFUSAL_WAIT_MS_MAX)
            entry = self._shares.call_later(wait_ms, partial(_refuse, context, session))
            context.on_client_gone(entry.cancel)
            return None
        if isinstance(session, ErrorCode):
            return failed_share_fetch(session)
        pending = PendingShareFetch(context, self, key, session, request.share_session_epoch)
        if not acknowledges:
            self._serve(context, request, pending)
            return None
        pending.expect_acknowledgements()
        checks = check_acknowledgements(context, request, self._cluster)
        return context.after(checks, partial(self._acknowledge, context, request, pending))

    def _acknowledge(
        self,
        context: RequestContext,
        request: ShareFetchRequest,
        pending: PendingShareFetch,
        checked: CheckedAcknowledgements,
    ) -> None:
        acknowledge(self._shares, pending.key, checked, pending.on_acknowledged)
        self._serve(context, request, pending)

    def _serve(
        self, context: RequestContext, request: ShareFetchRequest, pending: PendingShareFetch
    ) -> None:
        if request.is_renew_ack or request.share_session_epoch == FINAL_EPOCH:
            pending.on_fetched({})
        else:
            self._fetch(context, request, pending)

    def _open(
        self,
        context: RequestContext,
        key: ShareSessionKey,
        request: ShareFetchRequest,
        acknowledges: bool,
    ) -> ShareSession | ErrorCode:
        """Return the session of the request with its changed partitions."""
        sessions, epoch = self._shares.sessions, request.share_session_epoch
        added = [
            TopicIdPartition(topic.topic_id, name, partition.partition_index)
            for topic in request.topics
            for name in (self._cluster.topic_name(topic.topic_id) or "",)
            for partition in topic.partitions
        ]
        if epoch == INITIAL_EPOCH:
            if acknowledges:
                return ErrorCode.INVALID_REQUEST
            return sessions.begin(key, added, (context.listener_name, context.connection.id))
        session = sessions.advance(key, epoch)
        if isinstance(session, ErrorCode) or epoch == FINAL_EPOCH:
            return session
        forgotten = [
            (topic.topic_id, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        ]
        error = sessions.update(session, added, forgotten)
        return session if error is _NONE else error

    def _fetch(
        self, context: RequestContext, request: ShareFetchRequest, pending: PendingShareFetch
    ) -> None:
        steps = self._fetch_in_steps(context, request, pending)
        if pending.partition_count > NARROW_PARTITIONS_MAX:
            context.respond_in_slices(steps)
        else:
            run_to_end(steps)

    def _fetch_in_steps(
        self, context: RequestContext, request: ShareFetchRequest, pending: PendingShareFetch
    ) -> Generator[None, None, None]:
        """Refuse unknown partitions of the session and fetch the others."""
        may_read = topic_reader(context)
        readable: list[TopicIdPartition] = []
        for some in in_parts(pending.partitions()):
            for where in some:
                if not where.topic:
                    pending.refuse(where, ErrorCode.UNKNOWN_TOPIC_ID)
                elif not may_read(where.topic):
                    pending.refuse(where, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                elif not self._cluster.has_partition(where.topic, where.partition):
                    pending.refuse(where, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                else:
                    readable.append(where)
            yield
        if readable and request.share_acquire_mode not in ACQUIRE_MODES:
            pending.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        assert request.group_id is not None, "checked"
        yield from self._shares.fetch(
            request.group_id,
            self._options(context, request),
            rotated(readable, request.share_session_epoch),
            pending.on_fetched,
            context.on_client_gone,
        )

    def _options(self, context: RequestContext, request: ShareFetchRequest) -> ShareFetchOptions:
        max_bytes = min(request.max_bytes, self._fetch_bytes_max)
        if context.quotas.is_active:
            max_bytes = within_quota(context, max_bytes)
        assert request.group_id is not None, "checked"
        assert request.member_id is not None, "checked"
        return ShareFetchOptions(
            FetchParams(
                version=_FETCH_VERSION,
                replica_id=CONSUMER_REPLICA_ID,
                replica_epoch=-1,
                max_wait_ms=request.max_wait_ms,
                min_bytes=min(request.min_bytes, max_bytes),
                max_bytes=max_bytes,
                isolation=self._shares.settings.isolation(request.group_id),
                listener_name=context.listener_name,
            ),
            MemberRequest(request.member_id, request.share_acquire_mode, request.batch_size),
            request.max_records,
        )

    def make_response(
        self,
        context: RequestContext,
        key: ShareSessionKey,
        results: Results,
        acknowledged: AcknowledgeResults,
    ) -> Generator[None, None, ShareFetchResponse]:
        """Return the response with results of fetches and of acknowledgements."""
        hints = LeaderHints(self._cluster, context.listener_name)
        topics: dict[bytes, dict[int, PartitionData]] = {}
        for where, result in results.items():
            data = _partition_data(where.partition, result)
            topics.setdefault(where.topic_id, {})[where.partition] = data
            leader = hints.find(where) if result.error in MOVED else None
            if leader is not None:
                data.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
            yield
        for where, (error, message) in acknowledged.items():
            # The name may be unknown by now: the topic id identifies the partition.
            partitions = topics.setdefault(where.topic_id, {})
            data = partitions.get(where.partition) or _partition_data(
                where.partition, ShareFetchResult()
            )
            partitions[where.partition] = data
            data.acknowledge_error_code = error
            data.acknowledge_error_message = message
            yield
        return ShareFetchResponse(
            error_code=_NONE,
            acquisition_lock_timeout_ms=self._shares.settings.limits(key.group_id).lock_duration_ms,
            responses=[
                ShareFetchableTopicResponse(topic_id=topic_id, partitions=list(partitions.values()))
                for topic_id, partitions in topics.items()
            ],
            node_endpoints=[
                NodeEndpoint(node_id=node_id, host=endpoint.host, port=endpoint.port)
                for node_id, endpoint in hints.endpoints.items()
            ],
        )

    def end_session(self, key: ShareSessionKey) -> None:
        """End a session at its last request."""
        self._shares.end_session(key)

    def count(self, results: Results) -> None:
        """Count the bytes that are sent."""
        self._shares.count_sent(results)


class PendingShareFetch:
    """A pending share fetch: its session, and the results that are known so far."""

    __slots__ = (
        "_acknowledged",
        "_context",
        "_epoch",
        "_fetched",
        "_handler",
        "_refused",
        "_session",
        "key",
    )

    def __init__(
        self,
        context: RequestContext,
        handler: ShareFetchHandler,
        key: ShareSessionKey,
        session: ShareSession,
        epoch: int,
    ) -> None:
        self._context = context
        self._handler = handler
        self.key = key
        self._session = session
        self._epoch = epoch
        self._refused: Results = {}
        # None until the results are known.
        self._fetched: Results | None = None
        self._acknowledged: AcknowledgeResults | None = {}

    @property
    def partition_count(self) -> int:
        """Number of partitions of the session."""
        return len(self._session.partitions)

    def partitions(self) -> list[TopicIdPartition]:
        """Return the partitions of the session, in the order of their last records."""
        return [each.where for each in self._session.partitions.values()]

    def refuse(self, where: TopicIdPartition, error: ErrorCode) -> None:
        """Record the error of a partition that is not fetched."""
        self._refused[where] = ShareFetchResult(error)

    def fail(self, error: ErrorCode) -> None:
        """Respond with an error for the whole request. Acknowledgements are executed anyway."""
        self._acknowledged = None
        self._context.respond(failed_share_fetch(error))

    def expect_acknowledgements(self) -> None:
        """Wait for the results of acknowledgements before the response."""
        self._acknowledged = None

    def on_acknowledged(self, results: AcknowledgeResults) -> None:
        """Take the results of the acknowledgements."""
        self._acknowledged = results
        self._maybe_respond()

    def on_fetched(self, results: Results) -> None:
        """Take the results of the fetch."""
        self._fetched = {**results, **self._refused}
        self._maybe_respond()

    def _maybe_respond(self) -> None:
        if self._fetched is None or self._acknowledged is None:
            return
        try:
            self._context.respond_in_slices(self._respond(self._fetched, self._acknowledged))
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001 - other requests are completed by the same call
            self._context.give_up(error)

    def _respond(
        self, fetched: Results, acknowledged: AcknowledgeResults
    ) -> Generator[None, None, ShareFetchResponse | None]:
        context, handler = self._context, self._handler
        throttle_ms = 0
        if context.quotas.is_active:
            throttle_ms = yield from self._throttle_ms(fetched)
        results: Results = {}
        if throttle_ms <= 0:
            results = self._included(fetched)
            handler.count(results)
        response = yield from handler.make_response(context, self.key, results, acknowledged)
        if self._epoch == FINAL_EPOCH:
            handler.end_session(self.key)
        if throttle_ms <= 0:
            return response
        context.respond(response, throttle_ms)
        return None

    def _throttle_ms(self, fetched: Results) -> Generator[None, None, int]:
        """Count the response against the quota. Above it the records are sent with a later one."""
        context, quota = self._context, self._context.quotas.fetch
        sized = yield from self._handler.make_response(context, self.key, fetched, {})
        size = sum(map(len, encode(sized, context.version)))
        client_id = context.client_id or ""
        throttle_ms = quota.record(context.user, client_id, size)
        if throttle_ms > 0:
            quota.unrecord(context.user, client_id, size)
        return throttle_ms

    def _included(self, fetched: Results) -> Results:
        """Return the results that the response includes: all of the first request of a session."""
        if self._epoch == INITIAL_EPOCH:
            return fetched
        return {
            where: result
            for where, result in fetched.items()
            if self._session.note_sent(where, result.error is not _NONE, len(result.records) > 0)
        }


def is_renewal_with_fetch(version: int, request: ShareFetchRequest) -> bool:
    """Whether a request both renews locks and fetches records, which is not allowed."""
    if version < RENEWAL_SINCE or not request.is_renew_ack:
        return False
    return any((request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms))


def rotated(partitions: list[TopicIdPartition], epoch: int) -> list[TopicIdPartition]:
    """Return the partitions in another order for each epoch, so that each is first at times."""
    if len(partitions) <= 1 or epoch < 1:
        return partitions
    start = epoch % len(partitions)
    return partitions[start:] + partitions[:start]


def _partition_data(index: int, result: ShareFetchResult) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=result.error,
        acknowledge_error_code=_NONE,
        current_leader=LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
        records=result.records,
        acquired_records=[
            AcquiredRecords(
                first_offset=each.first, last_offset=each.last, delivery_count=each.delivery_count
            )
            for each in result.acquired
        ],
    )


def _refuse(context: RequestContext, error: ErrorCode) -> None:
    context.respond(failed_share_fetch(error))


def failed_share_fetch(error: ErrorCode) -> ShareFetchResponse:
    """Return the response to a request that is refused as a whole."""
    return ShareFetchResponse(
        error_code=error,
        acquisition_lock_timeout_ms=0,
        responses=[],
        node_endpoints=[],
    )
