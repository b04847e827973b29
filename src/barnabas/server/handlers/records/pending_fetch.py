"""A fetch between its request and its response.

A fetch with thousands of partitions takes several turns of the event loop. Its steps are the same
as those of a small fetch, which are all done in one turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.codec import encode
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from barnabas.protocol.resources import AclOperation, AclResourceType
from barnabas.replication.partition.results import FetchResult, failed_fetch
from barnabas.replication.requests.fetch_session import answer_in_steps
from barnabas.server.conversion.old_versions import FETCH_MAGIC_2_SINCE
from barnabas.server.dispatch.request import EXEMPT
from barnabas.waiting.steps import in_parts

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from barnabas.replication.partition.fetch_params import FetchPartitionData
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.replication.requests.fetch_session import FetchContext
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.conversion.old_versions import OldFetch
    from barnabas.server.dispatch.request import RequestContext
    from barnabas.storage.topic_partition import TopicIdPartition

    RequestedPartition = tuple[TopicIdPartition, FetchPartitionData]
    PartitionResult = tuple[TopicIdPartition, FetchResult]
    Steps = Generator[None, None, None]

# Partitions in one step of a wide fetch.
_AT_ONCE = 200
_READ, _TOPIC = int(AclOperation.READ), int(AclResourceType.TOPIC)
_TOPIC_IDS_SINCE = 13
_ENDPOINTS_SINCE = 16
# Cached members: access to an enum member costs 100 ns, as much as a function call.
_NONE = ErrorCode.NONE
_UNKNOWN_ID, _UNKNOWN_NAME = ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

# Value for partitions without divergence. The encoder omits the field only for this instance.
_NO_DIVERGENCE: EpochEndOffset = EpochEndOffset.default_instance()
_NO_SNAPSHOT: SnapshotId = SnapshotId.default_instance()


class PendingFetch:
    """A pending fetch: the request, its session, and the errors of partitions that are not read."""

    __slots__ = (
        "_cluster",
        "_context",
        "_replicas",
        "_session",
        "is_exempt",
        "is_wide",
        "old",
        "refused",
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
        # Whether the fetch is served in several turns of the loop.
        self.is_wide = False
        self._session = session
        self._cluster = cluster
        # Converts the response for old versions. None for versions with magic 2.
        self.old: OldFetch | None = None
        # All requested partitions, in the order of the response.
        self.requested: list[RequestedPartition] = []
        # Errors of partitions that are not read, in the order of the response.
        self.refused: dict[TopicIdPartition, FetchResult] = {}

    # Partitions that are not read.

    def filter_readable(self, *, is_guarded: bool) -> list[RequestedPartition]:
        """Return the partitions that can be read, and record an error for all others.

        Args:
            is_guarded: whether the client needs the right to read each topic.
        """
        if is_guarded:
            requested, forbidden = self._guarded_partitions()
        else:
            requested, forbidden = self._session.partitions(), None
        self.requested = requested
        topics = self._cluster.image.topics
        refused: list[tuple[TopicIdPartition, ErrorCode]] = []
        for key, _ in requested:
            topic = topics.by_name(key.topic)
            if forbidden and key.topic in forbidden:
                # Also if the partition does not exist, which the client may not know.
                refused.append((key, _REFUSED))
            elif topic is None or key.partition not in topic.partitions:
                is_named = self._is_known(key.topic)
                refused.append((key, _UNKNOWN_NAME if is_named else _UNKNOWN_ID))
        if not refused:
            return requested
        if not self.is_exempt:
            # Kafka puts unknown ids first. For followers, the errors have the order of the request.
            refused.sort(key=lambda each: each[1] is not _UNKNOWN_ID)
        self._refuse(refused)
        return [each for each in requested if each[0] not in self.refused]

    def refuse_all(self) -> None:
        """Respond with an error for each partition, since the client is no broker."""
        self.requested = self._session.partitions()
        self._refuse((key, _REFUSED) for key, _ in self.requested)
        self.on_fetched([])

    def _guarded_partitions(self) -> tuple[list[RequestedPartition], set[str]]:
        """Return the partitions to check, and the topics that the client may not read.

        The session checks its idle partitions of topics that the client may not read now, too.
        """
        idle, access = self._session.idle, self._context.access
        assert access is not None, "the node has an authorizer"
        if idle is not None:
            for name in idle.topics:
                if not access.allows(_READ, _TOPIC, name, is_logged=False):
                    idle.activate_topic(name)
        requested = self._session.partitions()
        forbidden = {
            name
            for name in {key.topic for key, _ in requested}
            if self._is_known(name) and not access.allows(_READ, _TOPIC, name)
        }
        return requested, forbidden

    def _is_known(self, name: str) -> bool:
        """Return whether the name is known.

        A session keeps the name of an id whose topic was deleted. An empty name means that the id
        was never known.
        """
        return bool(name) or self._context.version < _TOPIC_IDS_SINCE

    def _refuse(self, errors: Iterable[tuple[TopicIdPartition, ErrorCode]]) -> None:
        for key, error in errors:
            failed = self.refused[key] = failed_fetch(error)
            # Send an empty list and not null, because the partition was not looked up.
            failed.aborted_transactions = []

    # The response.

    def on_fetched(self, results: list[PartitionResult]) -> None:
        """Send the response. In a session it has only the partitions that have changed."""
        self.run(self._respond(results))

    def run(self, steps: Steps) -> None:
        """Run steps that may send the response."""
        try:
            if self.is_wide:
                self._context.respond_in_slices(steps)
            else:
                for _ in steps:
                    pass
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001 - other requests are completed by the same call
            self._context.give_up(error)

    def _respond(self, results: list[PartitionResult], *, is_converted: bool = False) -> Steps:
        """Send the response to a fetch with these results.

        Args:
            results: the results of partitions that were read.
            is_converted: whether the results are the changed ones, in the form of an old version.
        """
        session, is_wide = self._session, self.is_wide
        changed = results
        if not is_converted:
            if self.refused:
                # Refused partitions come last, as in Kafka.
                results = [*results, *self.refused.items()]
            if self._context.quotas.is_active and not self.is_exempt:
                sized = yield from self._size(results)
                if self._maybe_respond_throttled(sized):
                    return
            if is_wide:
                changed = yield from answer_in_steps(session, results)
            else:
                changed = session.update(results)
            if self.old is not None:
                yield from self._adapt(self.old, changed)
                return
        response = FetchResponse(
            error_code=session.error, session_id=session.session_id, responses=[]
        )
        is_clean = session.error is _NONE
        for part in in_parts(changed, _AT_ONCE) if is_wide else (changed,):
            self._add_topics(response, part)
            is_clean = self._count(part) and is_clean
            if is_wide:
                yield
        if is_wide and len(changed) > _AT_ONCE:
            # Encode in a turn of its own, because it takes as long as two slices.
            self._context.complete_in_slices(self._encode(response, is_clean=is_clean))
        else:
            self._context.respond(response, EXEMPT if self.is_exempt else 0, is_clean=is_clean)

    def _size(self, results: list[PartitionResult]) -> Generator[None, None, FetchResponse]:
        """Return a response with all results that have records."""
        sized = FetchResponse(responses=[])
        for part in in_parts(results, _AT_ONCE):
            self._add_topics(sized, [each for each in part if len(each[1].records) > 0])
            yield
        return sized

    def _adapt(self, old: OldFetch, changed: list[PartitionResult]) -> Steps:
        """Respond with the results in the form of an old version."""
        replaced: list[PartitionResult] = []
        for part in in_parts(changed, _AT_ONCE):
            replaced += old.replace_errors(self._context.version, part)
            yield
        if self._context.version < FETCH_MAGIC_2_SINCE:
            old.convert(self._context, replaced, self.requested, self._send_converted)
        else:
            yield from self._respond(replaced, is_converted=True)

    def _send_converted(self, converted: list[PartitionResult]) -> None:
        self.run(self._respond(converted, is_converted=True))

    def _encode(self, response: FetchResponse, *, is_clean: bool) -> Steps:
        self._context.respond(response, EXEMPT if self.is_exempt else 0, is_clean=is_clean)
        yield

    def _count(self, changed: list[PartitionResult]) -> bool:
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

    def _maybe_respond_throttled(self, sized: FetchResponse) -> bool:
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
            self._session.update([])
        response = FetchResponse(
            error_code=self._session.error, session_id=self._session.session_id, responses=[]
        )
        context.respond(response, throttle_ms)
        return True

    def _add_topics(self, response: FetchResponse, changed: list[PartitionResult]) -> None:
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
        # Consumers ignore this field, which Kafka has for the metadata log only.
        snapshot_id=SnapshotId(end_offset=result.truncations, epoch=0)
        if result.truncations
        else _NO_SNAPSHOT,
        aborted_transactions=None
        if aborted is None
        else [
            AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in aborted
        ],
        preferred_read_replica=result.preferred_read_replica,
        records=result.records,
    )
