"""Produce (key 0, v0-13): append records, with an independent result for each partition.

v0-2 carry magic 0 and 1, which `OldProduce` converts. v3 has magic 2, exactly one batch per
partition. v7 allows zstd (KIP-110). v8 reports the invalid records (KIP-467). v10 reports a new
leader (KIP-951). v13 has topic ids (KIP-516).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.controller.topic_names import INTERNAL_TOPICS
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.protocol.resources import AclOperation, AclResourceType
from barnabas.record.batch import HEADER_SIZE
from barnabas.replication.requests.delayed_writes import DelayedProduce
from barnabas.server.conversion.old_versions import PRODUCE_MAGIC_2_SINCE, OldProduce
from barnabas.server.conversion.produced_records import Refusal, checked_records
from barnabas.server.dispatch.dispatcher import WIDE_BYTES, check_width
from barnabas.server.peers.transaction_verification import ProducedTransactions
from barnabas.storage.results import AppendOrigin
from barnabas.storage.topic_partition import TopicPartition, made_topic_partition
from barnabas.waiting.purgatory import CanceledTogether
from barnabas.waiting.steps import in_parts

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.replication.partition.results import ProduceResult
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.replication.requests.delayed_writes import DeferredAppend
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.conversion.conversion_queue import ConversionQueue
    from barnabas.server.conversion.old_versions import Converted
    from barnabas.server.dispatch.request import RequestContext
    from barnabas.server.peers.transaction_verification import TransactionVerification
    from barnabas.server.security.authorizer.guard import Guard


_TOPIC_IDS_SINCE = 13
_LEADER_SINCE = 10
_ADMIN_CLIENT_ID = "__admin_client"
# Partitions that one step appends to: the first append to a log after a start takes 0.3 ms.
_AT_ONCE = 20
# Limit for the partitions of a request. A megabyte, which is the default limit of Kafka's producer,
# has fewer batches.
PARTITIONS_MAX = 20_000
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
        if context.request_bytes > WIDE_BYTES:
            check_width((topic.partition_data for topic in request.topic_data), PARTITIONS_MAX)
        pending = PendingProduce(
            context,
            request.acks,
            self._cluster,
            has_transactional_id=request.transactional_id is not None,
        )
        # Records by partition: one batch each. For old versions, the unchecked bytes of the field.
        entries: dict[TopicPartition, Any] = {}
        topics = request.topic_data
        for topic in topics if len(topics) == 1 else _merge_topics(topics):
            self._collect_topic(pending, entries, topic)
        if pending.refusal:
            pending.refuse_all(pending.refusal)
            pending.on_appended({})
        elif entries and context.version < PRODUCE_MAGIC_2_SINCE:
            self._old.convert(
                context.connection, entries, partial(self._append_converted, pending, request)
            )
        else:
            self._append(pending, request, entries)

    def _append_converted(
        self,
        pending: PendingProduce,
        request: ProduceRequest,
        converted: dict[TopicPartition, Converted],
    ) -> None:
        entries: dict[TopicPartition, memoryview] = {}
        refused: dict[TopicPartition, Refusal] = {}
        for key, records in converted.items():
            if isinstance(records, tuple):
                refused[key] = records
            elif records is not None:
                entries[key] = records
        if pending.refuse(refused):
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
            self._transactions.verify(pending, request, entries, self._append_now)

    def _append_now(
        self,
        pending: PendingProduce,
        request: ProduceRequest,
        entries: dict[TopicPartition, memoryview],
    ) -> None:
        if pending.context.connection.is_pipelined and self._maybe_join(pending, request, entries):
            return
        if len(entries) > _AT_ONCE:
            # The records are views into the receive buffer, which the next request overwrites.
            owned = [(key, memoryview(bytearray(each))) for key, each in entries.items()]
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
        for some in in_parts(entries, _AT_ONCE):
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
    ) -> None:
        """Create the result entries of a topic, and collect the records to append or convert."""
        partitions = topic.partition_data
        if not partitions:
            return
        repeated: dict[int, Refusal] | None = None
        if len(partitions) > 1:
            partitions, repeated = pending.merge_partitions(partitions)
        partition_responses: list[PartitionProduceResponse] = []
        pending.response.responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=partition_responses
            )
        )
        version = pending.context.version
        name, refused = self._resolve(pending.context, topic)
        for data in partitions:
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
                entries[key] = data.records
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
            for index, refusal in repeated.items():
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


def _merge_topics(topics: list[TopicProduceData]) -> list[TopicProduceData]:
    """Merge repeated entries of a topic into one, as Kafka does in its response."""
    merged: dict[tuple[str, bytes], TopicProduceData] = {}
    for topic in topics:
        first = merged.setdefault((topic.name, topic.topic_id), topic)
        if first is not topic:
            first.partition_data += topic.partition_data
    return list(merged.values())


class PendingProduce:
    """A pending produce request and its response."""

    __slots__ = (
        "_acks",
        "_cluster",
        "_is_working",
        "context",
        "has_failed",
        "has_transactional_id",
        "partition_responses",
        "refusal",
        "response",
    )

    def __init__(
        self,
        context: RequestContext,
        acks: int,
        cluster: ClusterView,
        *,
        has_transactional_id: bool,
    ) -> None:
        self.context = context
        # Whether the request has a transactional id, without which no batch may be transactional.
        self.has_transactional_id = has_transactional_id
        self._acks = acks
        self._cluster = cluster
        # Results in the order of the request.
        self.response = ProduceResponse(responses=[])
        # Results of the partitions whose topic was found and may be written. The values are parts
        # of `response`, except for partitions whose result `overrule` has replaced.
        self.partition_responses: dict[TopicPartition, PartitionProduceResponse] = {}
        # Whether any partition has an error. Never reset.
        self.has_failed = False
        # First error that rejects the whole request: a batch of a transaction that the request does
        # not name, or bytes that are not a valid batch.
        self.refusal: Refusal | None = None
        # Whether reading from the connection is paused until the records are validated.
        self._is_working = False

    def merge_partitions(
        self, partitions: list[PartitionProduceData]
    ) -> tuple[list[PartitionProduceData], dict[int, Refusal]]:
        """Merge repeated partitions. As in Kafka, the last valid records of a partition count.

        Returns:
            The data to append, and an error for each repeated partition that also has invalid
            records. The response has this error, although the valid records are appended.
        """
        merged = {data.index: data for data in partitions}
        refused: dict[int, Refusal] = {}
        if len(merged) < len(partitions) and self.context.version >= PRODUCE_MAGIC_2_SINCE:
            for data in partitions:
                refusal = self.validate(data)
                if refusal is None:
                    merged[data.index] = data
                else:
                    refused[data.index] = refusal
        return list(merged.values()), refused

    def overrule(self, key: TopicPartition, refusal: Refusal) -> None:
        """Report an error for a partition, regardless of the result of its append."""
        self.refuse_one(self.partition_responses[key], refusal)
        self.partition_responses[key] = PartitionProduceResponse(
            index=key.partition, error_code=_NONE, base_offset=-1
        )

    def validate(self, data: PartitionProduceData) -> Refusal | None:
        """Validate records that are not appended, because they may reject the whole request.

        Returns:
            The error of the records, or None.
        """
        checked = checked_records(data.records, self.context.version, self.has_transactional_id)
        if not isinstance(checked, tuple):
            return None
        self._note_request_refusal(checked)
        return checked

    def refuse_one(self, partition_response: PartitionProduceResponse, refusal: Refusal) -> None:
        """Set the error of a partition whose records are not appended."""
        self.has_failed = True
        partition_response.error_code = refusal.error
        self._note_request_refusal(refusal)

    def _note_request_refusal(self, refusal: Refusal) -> None:
        if refusal.of_request and self.refusal is None:
            self.refusal = refusal

    def refuse(self, refused: dict[TopicPartition, Refusal]) -> bool:
        """Set the errors of these partitions. Return whether the whole request is rejected."""
        for key, refusal in refused.items():
            self.refuse_one(self.partition_responses[key], refusal)
        if self.refusal is not None:
            self.refuse_all(self.refusal)
        return self.refusal is not None

    def refuse_all(self, refusal: Refusal) -> None:
        """Set the error of every partition: no records of the request are appended."""
        self.has_failed = True
        for topic in self.response.responses:
            for partition_response in topic.partition_responses:
                partition_response.error_code = refusal.error
                partition_response.error_message = refusal.message or None

    def fail(self, key: TopicPartition, error: ErrorCode, message: str | None) -> None:
        """Set the error of a partition whose transaction could not be verified."""
        partition_response = self.partition_responses[key]
        self.has_failed = True
        partition_response.error_code = error
        partition_response.error_message = message

    def begin_work(self) -> None:
        """Stop reading from the connection until the records are appended."""
        if not self._is_working:
            self._is_working = True
            self.context.connection.begin_work()

    def wait_for(self, operation: DelayedProduce | DeferredAppend) -> None:
        """Wait for an operation that completes later.

        While the records are validated, no later request of the connection is read, as in Kafka: a
        batch must not overtake an earlier one.
        """
        self.context.on_client_gone(operation.cancel)
        if not isinstance(operation, DelayedProduce):
            self.begin_work()

    def on_joint_append(self, now_ms: float, must_wait: bool) -> None:
        """Count the time until `now_ms`. `on_appended` follows, now or after the wait."""
        self.context.end_joint(now_ms, must_wait)

    def on_appended(self, results: dict[TopicPartition, ProduceResult]) -> None:
        """Send the response with the result of each partition."""
        try:
            partition_responses = self.partition_responses
            for key, result in results.items():
                partition_response = partition_responses[key]
                partition_response.base_offset = result.base_offset
                partition_response.log_append_time_ms = result.log_append_time
                partition_response.log_start_offset = result.log_start_offset
                if result.error is not _NONE:
                    self.has_failed = True
                    _fill_error(partition_response, result)
                    self._maybe_name_leader(key.topic, partition_response)
            if self._is_working:
                self.context.connection.end_work()
            if self._acks != 0:
                self.context.respond(self.response, is_clean=not self.has_failed)
            elif self.has_failed:
                self.context.close_connection()
            else:
                self.context.respond_nothing()
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001 - other requests are completed by the same call
            self.context.give_up(error)

    def _maybe_name_leader(self, topic: str, partition_response: PartitionProduceResponse) -> None:
        moved = partition_response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not moved or self.context.version < _LEADER_SINCE:
            return
        partition = self._cluster.partition(topic, partition_response.index)
        if partition is None:
            return
        partition_response.current_leader = LeaderIdAndEpoch(
            leader_id=partition.leader, leader_epoch=partition.leader_epoch
        )
        endpoint = self._cluster.endpoint(partition.leader, self.context.listener_name)
        if endpoint is not None:
            self.response.node_endpoints.append(
                NodeEndpoint(node_id=partition.leader, host=endpoint.host, port=endpoint.port)
            )


def _fill_error(partition_response: PartitionProduceResponse, result: ProduceResult) -> None:
    partition_response.error_code = result.error
    partition_response.error_message = result.error_message
    partition_response.record_errors = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
        for index, message in result.record_errors
    ]
