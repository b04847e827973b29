"""Sends requests to the responsible broker of a cluster, such as a leader or coordinator.

There is no cache between requests, so that no response comes from a former leader.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import OffsetCommitRequest, OffsetFetchRequest
from barnabas.protocol.messages.configs import (
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.describe_transactions import DescribeProducersRequest
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.groups import DeleteGroupsRequest
from barnabas.protocol.messages.log_offsets import (
    DeleteRecordsRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
)
from barnabas.protocol.messages.metadata import (
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.protocol.schema import Struct
from conformance.raw_client import RawClient
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.protocol.schema import Message


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


# The partition that a request for one partition names.
_PARTITIONS: dict[type[Message], Callable[[Any], Place]] = {
    ProduceRequest: lambda requested: Place(
        requested.topic_data[0].name, requested.topic_data[0].partition_data[0].index
    ),
    FetchRequest: lambda requested: Place(
        requested.topics[0].topic, requested.topics[0].partitions[0].partition
    ),
    ListOffsetsRequest: lambda requested: Place(
        requested.topics[0].name, requested.topics[0].partitions[0].partition_index
    ),
    OffsetForLeaderEpochRequest: lambda requested: Place(
        requested.topics[0].topic, requested.topics[0].partitions[0].partition
    ),
    DescribeProducersRequest: lambda requested: Place(
        requested.topics[0].name, requested.topics[0].partition_indexes[0]
    ),
    DeleteRecordsRequest: lambda requested: Place(
        requested.topics[0].name, requested.topics[0].partitions[0].partition_index
    ),
}
_GROUPS: dict[type[Message], Callable[[Any], str]] = {
    OffsetCommitRequest: lambda requested: requested.group_id,
    OffsetFetchRequest: lambda requested: requested.groups[0].group_id,
    DeleteGroupsRequest: lambda requested: requested.groups_names[0],
}
_BROKER = 4


class RequestRouter:
    """Sends requests to the responsible brokers; a call returns the response.

    Args:
        bootstrap: addresses of all brokers.
    """

    def __init__(self, bootstrap: str) -> None:
        self._clients = {each: RawClient(each) for each in bootstrap.split(",")}
        self._first = next(iter(self._clients.values()))

    def __call__(self, request: Message, version: int) -> Any:
        """Return the response of the responsible broker.

        The request is repeated while leaders and coordinators change, as in all clients.
        """
        return eventually(lambda: self._final(request, version), f"no final response to {request}")

    def to_each(self, request: Message, version: int) -> list[Any]:
        """Return the responses of all brokers, in their order."""
        return [client.ask(request, version) for client in self._clients.values()]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _final(self, request: Message, version: int) -> Any:
        response = self._responsible_broker(request).ask(request, version)
        return None if any(code.retriable for code in _errors(response)) else response

    def _responsible_broker(self, request: Message) -> RawClient:
        if len(self._clients) == 1:
            return self._first
        if place := _PARTITIONS.get(type(request)):
            return self._leader(place(request))
        if group := _GROUPS.get(type(request)):
            found: Any = self._first.ask(FindCoordinatorRequest(key=group(request)), 2)
            return self._clients.get(f"{found.host}:{found.port}", self._first)
        if isinstance(request, DescribeConfigsRequest | IncrementalAlterConfigsRequest):
            resource = request.resources[0]
            if resource.resource_type == _BROKER and resource.resource_name:
                return self._node(int(resource.resource_name))
        return self._first

    def _leader(self, place: Place) -> RawClient:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=place.topic)], allow_auto_topic_creation=False
        )
        (topic,) = self._metadata(request).topics
        led = {each.partition_index: each.leader_id for each in topic.partitions}
        # Any broker reports a missing leader.
        leader = led.get(place.partition, -1)
        return self._first if leader < 0 else self._node(leader)

    def _node(self, node_id: int) -> RawClient:
        brokers = self._metadata(MetadataRequest(topics=[])).brokers
        at = {each.node_id: f"{each.host}:{each.port}" for each in brokers}
        return self._clients[at[node_id]] if node_id in at else self._first

    def _metadata(self, request: MetadataRequest) -> Any:
        return self._first.ask(request, 9)


def _errors(response: object) -> Iterator[ErrorCode]:
    """Yield all error codes of a response and of its parts."""
    if isinstance(response, list):
        for each in response:
            yield from _errors(each)
    elif isinstance(response, Struct):
        for each in response.__fields__:
            value = getattr(response, each.name)
            if each.name == "error_code":
                yield ErrorCode(value)
            else:
                yield from _errors(value)


@contextmanager
def request_router(bootstrap: str) -> Iterator[RequestRouter]:
    """Open connections for requests, and close them at the end."""
    send = RequestRouter(bootstrap)
    try:
        yield send
    finally:
        send.close()
