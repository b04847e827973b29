"""Produce: key 0, v0-13. Appends record sets; one answer per partition, none fails its neighbours.

v0-2 carry magic 0 and 1, which `old_produce` converts. v3 is magic 2, exactly one batch per
partition; v7 allows zstd (KIP-110); v8 names the faulty records (KIP-467); v10 tells of a new
leader (KIP-951); v13 has topic ids (KIP-516).
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
from barnabas.replication.delayed_produce import DelayedProduce
from barnabas.server.old_produce import MAGIC_2_SINCE, OldProduce
from barnabas.server.produced_records import Refusal, checked_records
from barnabas.storage.append_info import AppendOrigin
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from barnabas.replication.put_off_append import PutOffAppend
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
        # One batch each; of old versions whatever the field had.
        entries: dict[TopicPartition, Any] = {}
        topics = request.topic_data
        for topic in topics if len(topics) == 1 else _each_once(topics):
            self._take_topic(pending, entries, request, topic)
        if pending.refusal:
            pending.refuse_all(pending.refusal)
            pending.on_appended({})
        elif entries and context.version < MAGIC_2_SINCE:
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
        if entries:
            operation = self._replicas.append_records(
                request.timeout_ms, request.acks, entries, _CLIENT, pending.on_appended
            )
            if operation is not None:
                pending.wait_for(operation)
        else:
            pending.on_appended({})

    def _take_topic(
        self,
        pending: PendingProduce,
        entries: dict[TopicPartition, Any],
        request: ProduceRequest,
        topic: TopicProduceData,
    ) -> None:
        """Begin the answer, and add what is to be appended, or first to be converted."""
        asked = topic.partition_data
        if not asked:
            return
        named_twice: dict[int, Refusal] | None = None
        if len(asked) > 1:
            asked, named_twice = pending.each_once(asked)
        answers: list[PartitionProduceResponse] = []
        pending.response.responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=answers
            )
        )
        version = pending.context.version
        name, refused = self._resolve(pending.context, topic)
        for data in asked:
            answer = PartitionProduceResponse(index=data.index, error_code=refused, base_offset=-1)
            answers.append(answer)
            if refused is not _NONE:
                pending.has_failed = True
                if version >= MAGIC_2_SINCE:
                    pending.look_at(data)
                continue
            key = TopicPartition(name, data.index)
            pending.answers[key] = answer
            if version < MAGIC_2_SINCE:
                entries[key] = data.records
                continue
            records = checked_records(data.records, version, request.transactional_id is not None)
            if isinstance(records, tuple):
                if not records.of_request and not self._cluster.has_partition(name, data.index):
                    # That comes before what is wrong with the records.
                    records = Refusal(_UNKNOWN_TOPIC_OR_PARTITION)
                pending.refuse_one(answer, records)
            else:
                entries[key] = records
        if named_twice:
            for index, refusal in named_twice.items():
                key = TopicPartition(name, index)
                if key in entries and self._cluster.has_partition(*key):
                    pending.overrule(key, refusal)

    def _resolve(self, context: RequestContext, topic: TopicProduceData) -> tuple[str, ErrorCode]:
        """The topic's name, and why nobody may write to it."""
        name = topic.name
        if context.version >= _TOPIC_IDS_SINCE:
            named = self._cluster.topic_name(topic.topic_id)
            if named is None:
                return "", ErrorCode.UNKNOWN_TOPIC_ID
            name = named
        elif self._cluster.image.topics.by_name(name) is None:
            return name, _UNKNOWN_TOPIC_OR_PARTITION
        if name in INTERNAL_TOPICS and context.client_id != _ADMIN_CLIENT_ID:
            return name, ErrorCode.INVALID_TOPIC_EXCEPTION
        return name, _NONE


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

    __slots__ = (
        "_acks",
        "_cluster",
        "_is_working",
        "answers",
        "context",
        "has_failed",
        "refusal",
        "response",
    )

    def __init__(self, context: RequestContext, acks: int, cluster: ClusterView) -> None:
        self.context = context
        self._acks = acks
        self._cluster = cluster
        # In the order of the request.
        self.response = ProduceResponse(responses=[])
        # Of partitions that there are, as far as anybody knows yet: parts of the response.
        self.answers: dict[TopicPartition, PartitionProduceResponse] = {}
        # Whether any answer has an error.
        self.has_failed = False
        # Why nothing of the request is appended, by the first batch that says so: it belongs to a
        # transaction that the request does not name, or is none.
        self.refusal: Refusal | None = None
        # Whether the connection waits until records were looked into.
        self._is_working = False

    def each_once(
        self, asked: list[PartitionProduceData]
    ) -> tuple[list[PartitionProduceData], dict[int, Refusal]]:
        """As Kafka: of a partition that is named twice the last records that can be are taken.

        Returns:
            What is taken of each partition, and by partition what is wrong with other records for
            it, which it is answered with although some are taken.
        """
        once = {data.index: data for data in asked}
        refused: dict[int, Refusal] = {}
        if len(once) < len(asked) and self.context.version >= MAGIC_2_SINCE:
            for data in asked:
                found = self.look_at(data)
                if found is None:
                    once[data.index] = data
                else:
                    refused[data.index] = found
        return list(once.values()), refused

    def overrule(self, key: TopicPartition, refusal: Refusal) -> None:
        """Answer for a partition with what is wrong, whatever becomes of the records taken."""
        self.refuse_one(self.answers[key], refusal)
        self.answers[key] = PartitionProduceResponse(
            index=key.partition, error_code=_NONE, base_offset=-1
        )

    def look_at(self, data: PartitionProduceData) -> Refusal | None:
        """What is wrong with records that may not be taken; perhaps nothing of the request is."""
        found = checked_records(data.records, self.context.version)
        if not isinstance(found, tuple):
            return None
        self._note(found)
        return found

    def refuse_one(self, answer: PartitionProduceResponse, refusal: Refusal) -> None:
        """Say why one partition's records are not taken."""
        self.has_failed = True
        answer.error_code = refusal.error
        self._note(refusal)

    def _note(self, refusal: Refusal) -> None:
        if refusal.of_request and self.refusal is None:
            self.refusal = refusal

    def refuse(self, refused: dict[TopicPartition, Refusal]) -> bool:
        """Say why these partitions' records are not taken; returns whether no other's are."""
        for key, refusal in refused.items():
            self.refuse_one(self.answers[key], refusal)
        if self.refusal is not None:
            self.refuse_all(self.refusal)
        return self.refusal is not None

    def refuse_all(self, refusal: Refusal) -> None:
        """Nothing of the request is taken."""
        self.has_failed = True
        for topic in self.response.responses:
            for answer in topic.partition_responses:
                answer.error_code = refusal.error
                answer.error_message = refusal.words or None

    def wait_for(self, operation: DelayedProduce | PutOffAppend) -> None:
        """The answer comes later.

        While records are looked into, no later request of the connection is taken, as by Kafka: a
        batch must not overtake the one before it.
        """
        if isinstance(operation, DelayedProduce):
            self.context.on_client_gone(operation.cancel)
        else:
            self._is_working = True
            self.context.connection.begin_work()

    def on_appended(self, results: dict[TopicPartition, ProduceResult]) -> None:
        """Answer with what became of each partition."""
        try:
            self._on_appended(results)
        except AssertionError:
            raise
        except Exception as error:  # noqa: BLE001 - other requests are completed by the same call
            self.context.give_up(error)

    def _on_appended(self, results: dict[TopicPartition, ProduceResult]) -> None:
        answers = self.answers
        for key, result in results.items():
            answer = answers[key]
            answer.base_offset = result.base_offset
            answer.log_append_time_ms = result.log_append_time
            answer.log_start_offset = result.log_start_offset
            if result.error is not _NONE:
                self.has_failed = True
                _fill_error(answer, result)
                self._maybe_name_leader(key.topic, answer)
        if self._is_working:
            self.context.connection.end_work()
        if self._acks != 0:
            self.context.respond(self.response, is_clean=not self.has_failed)
        elif self.has_failed:
            self.context.close_connection()
        else:
            self.context.respond_nothing()

    def _maybe_name_leader(self, topic: str, answer: PartitionProduceResponse) -> None:
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
            self.response.node_endpoints.append(
                NodeEndpoint(node_id=partition.leader, host=endpoint.host, port=endpoint.port)
            )


def _fill_error(answer: PartitionProduceResponse, result: ProduceResult) -> None:
    answer.error_code = result.error
    answer.error_message = result.error_message
    answer.record_errors = [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
        for index, message in result.record_errors
    ]
