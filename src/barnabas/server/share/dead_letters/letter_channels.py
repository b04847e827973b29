"""Channels for the requests with dead-letter records: to other brokers, and to this one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas.storage.results import AppendOrigin
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from barnabas.protocol.schema import Message
    from barnabas.replication.fetcher.leader_channels import (
        LeaderChannel,
        LeaderChannels,
        OnResponse,
    )
    from barnabas.replication.partition.results import ProduceResult
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.runtime.clock import Timer


class LetterChannels:
    """Opens a channel to any broker, also to this one."""

    __slots__ = ("_channels", "_node_id", "_replicas", "_timer")

    def __init__(
        self,
        node_id: int,
        replicas: ReplicaManager,
        timer: Timer,
        channels: LeaderChannels | None,
    ) -> None:
        """Create the channels.

        Args:
            node_id: this broker.
            replicas: the partitions of this broker.
            timer: delays the responses of this broker to the next turn.
            channels: opens connections to other brokers; None in a cluster of one node.
        """
        self._node_id = node_id
        self._replicas = replicas
        self._timer = timer
        self._channels = channels

    def open(self, broker_id: int, client_id: str) -> LeaderChannel:
        """Return a channel to a broker."""
        if broker_id == self._node_id or self._channels is None:
            return OwnBrokerChannel(self._replicas, self._timer)
        return self._channels.open(broker_id, client_id)


class OwnBrokerChannel:
    """Serves Produce requests of this broker to itself, without the network."""

    __slots__ = ("_replicas", "_timer", "connections_created", "is_connected")

    def __init__(self, replicas: ReplicaManager, timer: Timer) -> None:
        self._replicas = replicas
        self._timer = timer
        self.is_connected = False
        self.connections_created = 0

    def send(
        self, request: Message, _version: int, on_response: OnResponse, _timeout_ms: float
    ) -> None:
        """Append the batches of a request, see `LeaderChannel`."""
        assert isinstance(request, ProduceRequest), type(request)
        batches: dict[TopicPartition, memoryview] = {}
        for topic in request.topic_data:
            for each in topic.partition_data:
                assert isinstance(each.records, bytearray), type(each.records)
                batches[TopicPartition(topic.name, each.index)] = memoryview(each.records)

        def on_appended(results: dict[TopicPartition, ProduceResult]) -> None:
            self._timer.call_soon(partial(on_response, _response(request, results), None))

        self._replicas.append_records(
            request.timeout_ms, request.acks, batches, AppendOrigin.CLIENT, on_appended
        )

    def close(self) -> None:
        """Do nothing: there is no connection."""


def _response(
    request: ProduceRequest, results: dict[TopicPartition, ProduceResult]
) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    _partition_response(each.index, results[TopicPartition(topic.name, each.index)])
                    for each in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _partition_response(index: int, result: ProduceResult) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index, error_code=result.error, base_offset=result.base_offset
    )
