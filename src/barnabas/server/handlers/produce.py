"""Produce: key 0, v0-13. Appends record sets; one answer per partition, none fails its neighbours.

v0-2 carry magic 0 and 1, which `old_produce` converts. v3 is magic 2, exactly one batch per
partition; v7 allows zstd (KIP-110); v8 names the faulty records (KIP-467); v10 tells of a new
leader (KIP-951); v13 has topic ids (KIP-516).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.controller.topic_names import INTERNAL_TOPICS
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.server.old_produce import MAGIC_2_SINCE, OldProduce
from barnabas.server.produced_records import Refusal, checked_records
from barnabas.storage.append_info import AppendOrigin
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from barnabas.protocol.chunks import Records
    from barnabas.replication.results import ProduceResult
    from barnabas.server.cluster_view import ClusterView
    from barnabas.server.old_produce import Converted
    from barnabas.server.parts import ServerParts
    from barnabas.server.request import Handle, RequestContext

_TOPIC_IDS_SINCE = 13
_LEADER_SINCE = 10
_ADMIN_CLIENT_ID = "__admin_client"
# Looking a member up in its enum costs 100 ns, as much as a call.
_NONE = ErrorCode.NONE
_CLIENT = AppendOrigin.CLIENT
_UNKNOWN_TOPIC_OR_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def handler(parts: ServerParts) -> Handle:
    """The handler of this API."""
    return ProduceHandler(parts).handle_produce


class ProduceHandler:
    """Hands the record sets of a request to the replicas, as views into the receive buffer."""

    __slots__ = ("_cluster", "_old", "_replicas")

    def __init__(self, parts: ServerParts) -> None:
        self._cluster = parts.cluster
        self._replicas = parts.replicas
        self._old = OldProduce(parts.replicas, parts.conversions)

    def handle_produce(self, context: RequestContext, request: ProduceRequest) -> None:
        """Append; the answer comes when `acks` is fulfilled, perhaps before this returns."""
        pending = PendingProduce(context, request.acks, self._cluster)
        entries: dict[TopicPartition, memoryview] = {}
        old_sets: dict[TopicPartition, Records | None] = {}
        topics = request.topic_data
        for topic in topics if len(topics) == 1 else _each_once(topics):
            self._take_topic(pending, entries, old_sets, request, topic)
        if old_sets:
            self._old.convert(
                context.connection, old_sets, partial(self._append_converted, pending, request)
            )
        elif pending.is_unauthorized:
            pending.refuse_all(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            pending.on_appended({})
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
        if entries:
            self._replicas.append_records(
                request.timeout_ms,
                request.acks,
                entries,
                _CLIENT,
                pending.on_appended,
            )
        else:
            pending.on_appended({})

    def _take_topic(
        self,
        pending: PendingProduce,
        entries: dict[TopicPartition, memoryview],
        old_sets: dict[TopicPartition, Records | None],
        request: ProduceRequest,
        topic: TopicProduceData,
    ) -> None:
        version = pending.context.version
        name: str | None = topic.name
        unknown = _UNKNOWN_TOPIC_OR_PARTITION
        if version >= _TOPIC_IDS_SINCE:
            name = self._cluster.topic_name(topic.topic_id)
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        refused = _NONE
        if name is None or self._cluster.topic_id(name) is None:
            refused = unknown
        elif name in INTERNAL_TOPICS and pending.context.client_id != _ADMIN_CLIENT_ID:
            refused = ErrorCode.INVALID_TOPIC_EXCEPTION
        asked = topic.partition_data
        if not asked:
            return
        if len(asked) > 1:
            # A partition that is named twice is taken and answered once, as its last time says.
            asked = list({data.index: data for data in asked}.values())
        answers: list[PartitionProduceResponse] = []
        pending.add_topic(name or "", topic, answers)
        names_transaction = request.transactional_id is not None
        for data in asked:
            answer = PartitionProduceResponse(index=data.index, error_code=refused, base_offset=-1)
            answers.append(answer)
            if refused is not _NONE:
                continue
            if version < MAGIC_2_SINCE:
                old_sets[TopicPartition(name or "", data.index)] = data.records
                continue
            records = checked_records(data.records, version, names_transaction)
            if isinstance(records, tuple):
                pending.refuse_one(answer, records)
            else:
                entries[TopicPartition(name or "", data.index)] = records


def _each_once(topics: list[TopicProduceData]) -> list[TopicProduceData]:
    """What is asked of a topic that is named twice stands together, as Kafka answers it."""
    merged: dict[tuple[str, bytes], TopicProduceData] = {}
    for topic in topics:
        first = merged.setdefault((topic.name, topic.topic_id), topic)
        if first is not topic:
            first.partition_data += topic.partition_data
    return list(merged.values())


class PendingProduce:
    """A request whose answer is being put together."""

    __slots__ = ("_acks", "_cluster", "_topics", "context", "is_unauthorized")

    def __init__(self, context: RequestContext, acks: int, cluster: ClusterView) -> None:
        self.context = context
        self._acks = acks
        self._cluster = cluster
        # Name and answers of each topic, in the order of the request.
        self._topics: list[tuple[str, TopicProduceResponse]] = []
        # A batch belongs to a transaction that the request does not name: nothing is appended.
        self.is_unauthorized = False

    def add_topic(
        self, name: str, asked: TopicProduceData, answers: list[PartitionProduceResponse]
    ) -> None:
        """Note a topic; `answers` are filled in later, here for those that were appended."""
        response = TopicProduceResponse(
            name=asked.name, topic_id=asked.topic_id, partition_responses=answers
        )
        self._topics.append((name, response))

    def refuse_one(self, answer: PartitionProduceResponse, refusal: Refusal) -> None:
        """Say why one partition's records are not taken."""
        answer.error_code, words = refusal
        if answer.error_code == ErrorCode.CORRUPT_MESSAGE:
            # For the others clients get no words from Kafka either.
            answer.error_message = words or None
        if refusal[0] is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            self.is_unauthorized = True

    def refuse(self, refused: dict[TopicPartition, Refusal]) -> bool:
        """Say why these partitions' records are not taken; returns whether no other's are."""
        for name, topic in self._topics if refused else ():
            for answer in topic.partition_responses:
                refusal = refused.get(TopicPartition(name, answer.index))
                if refusal is not None:
                    self.refuse_one(answer, refusal)
        if self.is_unauthorized:
            self.refuse_all(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return self.is_unauthorized

    def refuse_all(self, error: ErrorCode) -> None:
        """Nothing of the request is taken."""
        for _, topic in self._topics:
            for answer in topic.partition_responses:
                answer.error_code = error

    def on_appended(self, results: dict[TopicPartition, ProduceResult]) -> None:
        """Answer with what became of each partition."""
        response = ProduceResponse(responses=[topic for _, topic in self._topics])
        failed = False
        for name, topic in self._topics:
            for answer in topic.partition_responses:
                result = results.get(TopicPartition(name, answer.index))
                if result is not None and not answer.error_code:
                    fill_answer(answer, result)
                if answer.error_code:
                    failed = True
                    self._maybe_name_leader(response, name, answer)
        if self._acks != 0:
            self.context.respond(response, is_clean=not failed)
        elif failed:
            self.context.close_connection()
        else:
            self.context.respond_nothing()

    def _maybe_name_leader(
        self, response: ProduceResponse, topic: str, answer: PartitionProduceResponse
    ) -> None:
        moved = answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not moved or self.context.version < _LEADER_SINCE:
            return
        partition = self._cluster.partition(topic, answer.index)
        if partition is None:
            return
        answer.current_leader = LeaderIdAndEpoch(
            leader_id=partition.leader, leader_epoch=partition.leader_epoch
        )
        endpoint = self._cluster.endpoint(partition.leader, self.context.listener_name)
        if endpoint is not None:
            response.node_endpoints.append(
                NodeEndpoint(node_id=partition.leader, host=endpoint.host, port=endpoint.port)
            )


def fill_answer(answer: PartitionProduceResponse, result: ProduceResult) -> None:
    """Put an append's outcome into the answer."""
    answer.error_code = result.error
    answer.base_offset = result.base_offset
    answer.log_append_time_ms = result.log_append_time
    answer.log_start_offset = result.log_start_offset
    answer.error_message = result.error_message
    if result.record_errors:
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in result.record_errors
        ]
