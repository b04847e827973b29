"""Channels to any broker, also to this one, which serves its own requests without the network.

So a sender of requests to leaders needs no second way for the partitions that this broker leads.
The broker serves itself Produce, Fetch, and ListOffsets for the special timestamps.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from barnabas.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.replication.partition.fetch_params import (
    CONSUMER_REPLICA_ID,
    FetchParams,
    FetchPartitionData,
    fetch_isolation,
)
from barnabas.storage.results import AppendOrigin, content_of
from barnabas.storage.topic_partition import TopicPartition, made_topic_id_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from typing import Any

    from barnabas.protocol.schema import Message
    from barnabas.replication.fetcher.leader_channels import LeaderChannel, OnResponse
    from barnabas.replication.partition.results import FetchResult, ListOffsetResult, ProduceResult
    from barnabas.runtime.clock import Timer
    from barnabas.server.peers.peer_queues import PeerDependencies
    from barnabas.storage.results import FetchIsolation
    from barnabas.storage.topic_partition import TopicIdPartition
    from barnabas.waiting.steps import OffLoop

    OnFetched = Callable[[list[tuple[TopicIdPartition, FetchResult]]], None]


class OwnReplicas(Protocol):
    """The partitions of this broker. `ReplicaManager` implements it."""

    def append_records(
        self,
        timeout_ms: int,
        required_acks: int,
        entries: Mapping[TopicPartition, memoryview],
        origin: AppendOrigin,
        on_done: Callable[[dict[TopicPartition, ProduceResult]], None],
    ) -> object:
        """Append batches, see `ReplicaAppends`."""
        ...

    def fetch(
        self,
        params: FetchParams,
        partitions: list[tuple[TopicIdPartition, FetchPartitionData]],
        on_done: OnFetched,
    ) -> object:
        """Read batches, see `ReplicaReads`."""
        ...

    def list_offset(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        isolation: FetchIsolation,
        current_leader_epoch: int,
    ) -> Generator[OffLoop | None, Any, ListOffsetResult]:
        """Return an offset, see `ReplicaManager`."""
        ...


class AnyBrokerChannels:
    """Opens a channel to any broker, also to this one. It implements `LeaderChannels`."""

    def __init__(self, replicas: Callable[[], OwnReplicas], peers: PeerDependencies) -> None:
        """Create the factory.

        Args:
            replicas: returns the partitions of this broker. It is not called before a request.
            peers: this broker, and the channels to other brokers.
        """
        self._replicas = replicas
        self._peers = peers

    def open(self, broker_id: int, client_id: str) -> LeaderChannel:
        """Return a channel to a broker."""
        peers = self._peers
        if broker_id == peers.node_id or peers.channels is None:
            return OwnBrokerChannel(self._replicas, peers.timer)
        return peers.channels.open(broker_id, client_id)


class OwnBrokerChannel:
    """Serves requests of this broker to itself."""

    def __init__(self, replicas: Callable[[], OwnReplicas], timer: Timer) -> None:
        self._replicas = replicas
        self._timer = timer
        self.is_connected = False
        self.connections_created = 0

    def send(
        self, request: Message, version: int, on_response: OnResponse, _timeout_ms: float
    ) -> None:
        """Serve a request, see `LeaderChannel`."""
        if isinstance(request, ProduceRequest):
            self._produce(request, on_response)
        elif isinstance(request, FetchRequest):
            self._fetch(request, version, on_response)
        else:
            assert isinstance(request, ListOffsetsRequest), type(request)
            self._respond(on_response, _listed(self._replicas(), request))

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def _respond(self, on_response: OnResponse, response: Message) -> None:
        self._timer.call_soon(partial(on_response, response, None))

    def _produce(self, request: ProduceRequest, on_response: OnResponse) -> None:
        batches: dict[TopicPartition, memoryview] = {}
        for topic in request.topic_data:
            for each in topic.partition_data:
                assert isinstance(each.records, bytearray), type(each.records)
                batches[TopicPartition(topic.name, each.index)] = memoryview(each.records)

        def on_appended(results: dict[TopicPartition, ProduceResult]) -> None:
            self._respond(on_response, _produced(request, results))

        self._replicas().append_records(
            request.timeout_ms, request.acks, batches, AppendOrigin.CLIENT, on_appended
        )

    def _fetch(self, request: FetchRequest, version: int, on_response: OnResponse) -> None:
        params = FetchParams(
            version=version,
            replica_id=CONSUMER_REPLICA_ID,
            replica_epoch=-1,
            max_wait_ms=request.max_wait_ms,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            isolation=fetch_isolation(CONSUMER_REPLICA_ID, request.isolation_level),
        )
        partitions = [
            (
                made_topic_id_partition((topic.topic_id, topic.topic, each.partition)),
                FetchPartitionData(
                    each.fetch_offset,
                    each.partition_max_bytes,
                    current_leader_epoch=each.current_leader_epoch,
                ),
            )
            for topic in request.topics
            for each in topic.partitions
        ]

        def on_fetched(results: list[tuple[TopicIdPartition, FetchResult]]) -> None:
            self._respond(on_response, _fetched(results))

        self._replicas().fetch(params, partitions, on_fetched)


def _produced(
    request: ProduceRequest, results: dict[TopicPartition, ProduceResult]
) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    _produced_partition(each.index, results[TopicPartition(topic.name, each.index)])
                    for each in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _produced_partition(index: int, result: ProduceResult) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index, error_code=result.error, base_offset=result.base_offset
    )


def _fetched(results: list[tuple[TopicIdPartition, FetchResult]]) -> FetchResponse:
    topics: dict[bytes, FetchableTopicResponse] = {}
    for where, result in results:
        topic = topics.get(where.topic_id)
        if topic is None:
            topic = topics[where.topic_id] = FetchableTopicResponse(
                topic=where.topic, topic_id=where.topic_id, partitions=[]
            )
        topic.partitions.append(
            PartitionData(
                partition_index=where.partition,
                error_code=result.error,
                high_watermark=result.high_watermark,
                last_stable_offset=result.last_stable_offset,
                log_start_offset=result.log_start_offset,
                records=content_of(result.records),
            )
        )
    return FetchResponse(responses=list(topics.values()))


def _listed(replicas: OwnReplicas, request: ListOffsetsRequest) -> ListOffsetsResponse:
    isolation = fetch_isolation(CONSUMER_REPLICA_ID, request.isolation_level)
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    _listed_partition(
                        each.partition_index,
                        offset_without_reading(
                            replicas,
                            TopicPartition(topic.name, each.partition_index),
                            (each.timestamp, each.current_leader_epoch),
                            isolation,
                        ),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _listed_partition(index: int, result: ListOffsetResult) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=result.error,
        timestamp=result.timestamp,
        offset=result.offset,
        leader_epoch=result.leader_epoch,
    )


def offset_without_reading(
    replicas: OwnReplicas,
    where: TopicPartition,
    of: tuple[int, int],
    isolation: FetchIsolation,
) -> ListOffsetResult:
    """Return the result of ListOffsets for a special timestamp, which needs no records.

    Args:
        replicas: the partitions of this broker.
        where: the partition.
        of: the special timestamp, and the leader epoch that the client knows (-1: any).
        isolation: the isolation of the lookup.
    """
    timestamp, leader_epoch = of
    steps = replicas.list_offset(where, timestamp, isolation, leader_epoch)
    try:
        next(steps)
    except StopIteration as end:
        result: ListOffsetResult = end.value
        return result
    raise AssertionError(f"the lookup of offset {timestamp} of {where} read records")
