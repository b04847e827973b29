"""DescribeProducers (key 61, v0): list producers and open transactions of partitions (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.topic_names import problem_of
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from barnabas.server.handlers.repetitions import Repetitions
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies
    from barnabas.storage.producers.producer_entry import ProducerEntry


# Producers between two points where the work may continue in another turn.
_STEP = 500


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that lists the producers of partitions."""
    return DescribeProducersHandler(dependencies).handle_describe_producers


class DescribeProducersHandler:
    """Builds responses from the producer state of partitions that this broker leads."""

    __slots__ = ("_cluster", "_replicas")

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._cluster = dependencies.cluster
        self._replicas = dependencies.replicas

    def handle_describe_producers(
        self,
        context: RequestContext,
        request: DescribeProducersRequest,
    ) -> DescribeProducersResponse | None:
        """List the producers of each partition."""
        return context.in_slices(self._build_response(request))

    def _build_response(
        self, request: DescribeProducersRequest
    ) -> Generator[None, None, DescribeProducersResponse]:
        described: dict[TopicPartition, PartitionResponse] = {}
        repetitions = Repetitions()
        topics: list[TopicResponse] = []
        for topic in request.topics:
            partitions: list[PartitionResponse] = []
            for index in topic.partition_indexes:
                key = TopicPartition(topic.name, index)
                known = described.get(key)
                if known is None:
                    known = described[key] = yield from self._partition(key)
                elif not repetitions.allow(len(known.active_producers)):
                    known = _failed(key, ErrorCode.INVALID_REQUEST, "Repeated too often")
                partitions.append(known)
                yield
            topics.append(TopicResponse(name=topic.name, partitions=partitions))
            yield
        return DescribeProducersResponse(topics=topics)

    def _partition(self, key: TopicPartition) -> Generator[None, None, PartitionResponse]:
        if self._cluster.topic_id(key.topic) is None:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if problem_of(key.topic) is not None:
                unknown = ErrorCode.INVALID_TOPIC_EXCEPTION
            return _failed(key, unknown, unknown.message)
        partition = self._replicas.partition(key)
        if isinstance(partition, ErrorCode):
            return _failed(key, partition)
        if not partition.is_leader:
            return _failed(key, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        producers: list[ProducerState] = []
        for number, entry in enumerate(list(partition.log.producer_state.entries.values()), 1):
            producers.append(_producer(entry))
            if number % _STEP == 0:
                yield
        return PartitionResponse(
            partition_index=key.partition, error_code=ErrorCode.NONE, active_producers=producers
        )


def _failed(key: TopicPartition, error: ErrorCode, message: str | None = None) -> PartitionResponse:
    return PartitionResponse(
        partition_index=key.partition, error_code=error, error_message=message, active_producers=[]
    )


def _producer(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.txn_first_offset,
    )
