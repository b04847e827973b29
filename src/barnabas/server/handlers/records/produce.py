"""Produce (key 0, v0-13): append records, with an independent result for each partition.

v0-2 carry magic 0 and 1, which `OldProduce` converts. v3 has magic 2, exactly one batch per
partition. v7 allows zstd (KIP-110). v8 reports the invalid records (KIP-467). v10 reports a new
leader (KIP-951). v13 has topic ids (KIP-516).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.controller.topic_names import INTERNAL_TOPICS
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.protocol.resources import AclOperation, AclResourceType
from barnabas.record.batch import HEADER_SIZE
from barnabas.replication.requests.delayed_writes import DelayedProduce
from barnabas.server.conversion.old_versions import PRODUCE_MAGIC_2_SINCE, OldProduce
from barnabas.server.conversion.produced_records import Refusal, checked_records
from barnabas.server.dispatch.dispatcher import check_width
from barnabas.server.handlers.records.pending_produce import PendingProduce
from barnabas.server.peers.transaction_verification import ProducedTransactions
from barnabas.storage.results import AppendOrigin
from barnabas.storage.topic_partition import TopicPartition, made_topic_partition
from barnabas.waiting.purgatory import CanceledTogether
from barnabas.waiting.steps import in_parts

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.protocol.encoding import Records
    from barnabas.replication.partition.results import ProduceResult
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.conversion.conversion_queue import ConversionQueue
    from barnabas.server.conversion.old_versions import Converted
    from barnabas.server.dispatch.request import RequestContext
    from barnabas.server.handlers.records.pending_produce import Steps
    from barnabas.server.peers.transaction_verification import TransactionVerification
    from barnabas.server.security.authorizer.guard import Guard


_TOPIC_IDS_SINCE = 13
_ADMIN_CLIENT_ID = "__admin_client"
# A request with records for more partitions is appended in slices.
_AT_ONCE = 20
# Partitions that one step appends to. The first append to a log after a start takes 0.3 ms, and up
# to 5 ms on a slow or busy machine.
_APPENDED_AT_ONCE = 4
# Limit for the partitions of a request. A megabyte, which is the default limit of Kafka's producer,
# has fewer batches.
PARTITIONS_MAX = 20_000
# A request with more topics and partitions is served in slices.
NARROW_PARTITIONS_MAX = 1_000
# Shorter requests have at most a few thousand topics and partitions.
NARROW_BYTES_MAX = 16 * 1024
# Partitions that one step collects.
_COLLECTED_AT_ONCE = 200
# Cached members: access to an enum member costs 100 ns, as much as a function call.
_NONE = ErrorCode.NONE
_CLIENT = AppendOrigin.CLIENT
_UNKNOWN_TOPIC_OR_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_WRITE = int(AclOperation.WRITE)
_TOPIC, _TRANSACTIONAL_ID = int(AclResourceType.TOPIC), int(AclResourceType.TRANSACTIONAL_ID)
# Position of the lower byte of a batch's attributes, and its bit for transactions.
_ATTRIBUTES_POSITION = 22
_MAGIC_POSITION = 16
_MAGIC = 2
_TRANSACTIONAL_BIT = 0x10


class ProduceHandler:
    """Passes the records of a request to the replica manager, as views into the receive buffer."""

    __slots__ = ("_cluster", "_is_guarded", "_old", "_replicas", "_transactions")

    def __init__(
        self,
        cluster: ClusterView,
        replicas: ReplicaManager,
        conversions: ConversionQueue,
        verification: TransactionVerification,
        guard: Guard | None,
    ) -> None:
        self._cluster = cluster
        self._replicas = replicas
        self._old = OldProduce(replicas, conversions)
        self._transactions = ProducedTransactions(verification)
        # Whether clients need rights: WRITE on each topic, and on the id of a transaction.
        self._is_guarded = guard is not None

    def handle_produce(self, context: RequestContext, request: ProduceRequest) -> None:
        """Append the records. The response follows when `acks` is met, perhaps immediately."""
        pending = PendingProduce(
            context,
            request.acks,
            self._cluster,
            has_transactional_id=request.transactional_id is not None,
        )
        topics = request.topic_data
        if context.request_bytes > NARROW_BYTES_MAX and _is_wide(topics):
            check_width(topics, (topic.partition_data for topic in topics), PARTITIONS_MAX)
            pending.is_wide = True
            if not context.is_large:
                _copy_records(topics)
        pending.run(self._serve(pending, request))

    def _serve(self, pending: PendingProduce, request: ProduceRequest) -> Steps:
        # Records by partition: one batch each. For old versions, the unchecked bytes of the field.
        entries: dict[TopicPartition, Any] = {}
        topics = request.topic_data
        if len(topics) > 1:
            topics = yield from _merge_topics(topics)
        for topic in topics:
            yield from self._collect_topic(pending, entries, topic)
        if pending.refusal:
            pending.refuse_all(pending.refusal)
            pending.on_appended({})
        elif entries and pending.context.version < PRODUCE_MAGIC_2_SINCE:
            self._old.convert(
                pending.context.connection,
                entries,
                lambda converted: pending.run(self._append_converted(pending, request, converted)),
            )
        else:
            self._append(pending, request, entries)

    def _append_converted(
        self,
        pending: PendingProduce,
        request: ProduceRequest,
        converted: dict[TopicPartition, Converted],
    ) -> Steps:
        entries: dict[TopicPartition, memoryview] = {}
        for number, (key, records) in enumerate(converted.items()):
            if isinstance(records, tuple):
                pending.refuse_one(pending.partition_responses[key], records)
            elif records is not None:
                entries[key] = records
            if number % _COLLECTED_AT_ONCE == 0:
                yield
        if pending.refusal is not None:
            pending.refuse_all(pending.refusal)
            entries.clear()
        self._append(pending, request, entries)

    def _append(
        self,
        pending: PendingProduce,
        request: ProduceRequest,
        entries: dict[TopicPartition, memoryview],
    ) -> None:
        transactional_id = request.transactional_id
        if transactional_id is not None and self._is_guarded and _is_transactional(request):
            access = pending.context.access
            assert access is not None, "the node has an authorizer"
            if not access.allows(_WRITE, _TRANSACTIONAL_ID, transactional_id):
                pending.refuse_all(Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
                entries = {}
        if not entries:
            pending.on_appended({})
        elif transactional_id is None:
            self._append_now(pending, request, entries)
        else:
            # The first batch of a transaction must be in the log before the next one is verified.
            pending.context.connection.do_collected()
            verify = self._transactions.verify
            if pending.is_wide:
                verify = self._transactions.verify_in_parts
            verify(pending, request, entries, self._append_now)

    def _append_now(
        self,
        pending: PendingProduce,
        request: ProduceRequest,
        entries: dict[TopicPartition, memoryview],
    ) -> None:
        if pending.context.connection.is_pipelined and self._maybe_join(pending, request, entries):
            return
        if len(entries) > _AT_ONCE:
            owned = list(entries.items())
            if not pending.is_wide:
                # The records are views into the receive buffer, which the next request overwrites.
                owned = [(key, memoryview(bytearray(each))) for key, each in owned]
            pending.context.complete_in_slices(self._append_in_steps(pending, request, owned))
            return
        operation = self._replicas.append_records(
            request.timeout_ms, request.acks, entries, _CLIENT, pending.on_appended
        )
        if operation is not None:
            pending.wait_for(operation)

    def _maybe_join(
        self,
        pending: PendingProduce,
        request: ProduceRequest,
        entries: dict[TopicPartition, memoryview],
    ) -> bool:
        """Append the records with those of other requests of the read, if possible.

        If not, append those of the earlier requests now, because the order counts. A quota may
        throttle the client after each request, so no request is executed before the response to
        the previous one.
        """
        context, joint = pending.context, self._replicas.joint_appends
        connection = context.connection
        if len(entries) <= _AT_ONCE and not context.quotas.is_active:
            context.is_joint = True
            if joint.join(request.timeout_ms, request.acks, entries, pending):
                connection.collected = joint.finish
                return True
            context.is_joint = False
        connection.do_collected()
        return False

    def _append_in_steps(
        self,
        pending: PendingProduce,
        request: ProduceRequest,
        entries: list[tuple[TopicPartition, memoryview]],
    ) -> Generator[None, None, None]:
        """Append to many partitions, and respond when all appends are complete."""
        results: dict[TopicPartition, ProduceResult] = {}
        operations = CanceledTogether()

        def on_some(some: dict[TopicPartition, ProduceResult]) -> None:
            results.update(some)
            if len(results) == len(entries):
                pending.on_appended(results)

        pending.context.on_client_gone(operations.cancel)
        for some in in_parts(entries, _APPENDED_AT_ONCE):
            operation = self._replicas.append_records(
                request.timeout_ms, request.acks, dict(some), _CLIENT, on_some
            )
            if operation is not None:
                operations.add(operation)
                if not isinstance(operation, DelayedProduce):
                    pending.begin_work()
            yield

    def _collect_topic(
        self,
        pending: PendingProduce,
        entries: dict[TopicPartition, Any],
        topic: TopicProduceData,
    ) -> Steps:
        """Create the result entries of a topic, and collect the records to append or convert."""
        yield
        partitions = topic.partition_data
        if not partitions:
            return
        repeated: dict[int, Refusal] | None = None
        if len(partitions) > 1:
            partitions, repeated = yield from pending.merge_partitions(partitions)
        partition_responses: list[PartitionProduceResponse] = []
        pending.response.responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=partition_responses
            )
        )
        version = pending.context.version
        name, refused = self._resolve(pending.context, topic)
        for number, data in enumerate(partitions, 1):
            if number % _COLLECTED_AT_ONCE == 0:
                yield
            partition_response = PartitionProduceResponse(
                index=data.index, error_code=refused, base_offset=-1
            )
            partition_responses.append(partition_response)
            if refused is not _NONE:
                pending.has_failed = True
                if version >= PRODUCE_MAGIC_2_SINCE:
                    pending.validate(data)
                continue
            key = made_topic_partition((name, data.index))
            pending.partition_responses[key] = partition_response
            if version < PRODUCE_MAGIC_2_SINCE:
                # The conversion takes longer than the receive buffer keeps the records.
                entries[key] = _copied(data.records)
                continue
            records = checked_records(data.records, version, pending.has_transactional_id)
            if isinstance(records, tuple):
                if not records.of_request and not self._cluster.has_partition(name, data.index):
                    # A missing partition has precedence over errors in the records.
                    records = Refusal(_UNKNOWN_TOPIC_OR_PARTITION)
                pending.refuse_one(partition_response, records)
            else:
                entries[key] = records
        if repeated:
            for number, (index, refusal) in enumerate(repeated.items(), 1):
                if number % _COLLECTED_AT_ONCE == 0:
                    yield
                key = TopicPartition(name, index)
                if key in entries and self._cluster.has_partition(*key):
                    pending.overrule(key, refusal)

    def _resolve(self, context: RequestContext, topic: TopicProduceData) -> tuple[str, ErrorCode]:
        """Return the topic's name, and the error if the client must not write to the topic."""
        name, has_id = topic.name, context.version >= _TOPIC_IDS_SINCE
        if has_id:
            named = self._cluster.topic_name(topic.topic_id)
            if named is None:
                return "", ErrorCode.UNKNOWN_TOPIC_ID
            name = named
        if self._is_guarded:
            access = context.access
            assert access is not None, "the node has an authorizer"
            if not access.allows(_WRITE, _TOPIC, name):
                return name, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if not has_id and self._cluster.image.topics.by_name(name) is None:
            return name, _UNKNOWN_TOPIC_OR_PARTITION
        if name in INTERNAL_TOPICS and context.client_id != _ADMIN_CLIENT_ID:
            return name, ErrorCode.INVALID_TOPIC_EXCEPTION
        return name, _NONE


def _is_transactional(request: ProduceRequest) -> bool:
    """Return whether any batch of a request belongs to a transaction."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if (
                isinstance(records, memoryview)
                and len(records) >= HEADER_SIZE
                and records[_MAGIC_POSITION] == _MAGIC
                and records[_ATTRIBUTES_POSITION] & _TRANSACTIONAL_BIT
            ):
                return True
    return False


def _is_wide(topics: list[TopicProduceData]) -> bool:
    """Return whether a request has too many topics and partitions for one turn."""
    count = len(topics)
    if count <= NARROW_PARTITIONS_MAX:
        for topic in topics:
            count += len(topic.partition_data)
    return count > NARROW_PARTITIONS_MAX


def _copy_records(topics: list[TopicProduceData]) -> None:
    """Copy the records out of the receive buffer, which the next request overwrites."""
    for topic in topics:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(_copied(data.records))


def _copied(records: Records | None) -> bytearray:
    if records is None:
        return bytearray()
    assert isinstance(records, memoryview)
    return bytearray(records)


def _merge_topics(
    topics: list[TopicProduceData],
) -> Generator[None, None, list[TopicProduceData]]:
    """Merge repeated entries of a topic into one, as Kafka does in its response."""
    merged: dict[tuple[str, bytes], TopicProduceData] = {}
    for topic in topics:
        first = merged.setdefault((topic.name, topic.topic_id), topic)
        if first is not topic:
            first.partition_data += topic.partition_data
        yield
    return list(merged.values())
