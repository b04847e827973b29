"""Sends requests to a broker, or to the responsible broker of a cluster: leader or coordinator.

Nothing is cached between requests, so no response comes from a former leader.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.protocol.messages.delete_records import DeleteRecordsRequest
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest
from barnabas.protocol.messages.describe_producers import DescribeProducersRequest
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest
from barnabas.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
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
    ProduceRequest: lambda asked: Place(
        asked.topic_data[0].name, asked.topic_data[0].partition_data[0].index
    ),
    FetchRequest: lambda asked: Place(
        asked.topics[0].topic, asked.topics[0].partitions[0].partition
    ),
    ListOffsetsRequest: lambda asked: Place(
        asked.topics[0].name, asked.topics[0].partitions[0].partition_index
    ),
    OffsetForLeaderEpochRequest: lambda asked: Place(
        asked.topics[0].topic, asked.topics[0].partitions[0].partition
    ),
    DescribeProducersRequest: lambda asked: Place(
        asked.topics[0].name, asked.topics[0].partition_indexes[0]
    ),
    DeleteRecordsRequest: lambda asked: Place(
        asked.topics[0].name, asked.topics[0].partitions[0].partition_index
    ),
}
_GROUPS: dict[type[Message], Callable[[Any], str]] = {
    OffsetCommitRequest: lambda asked: asked.group_id,
    OffsetFetchRequest: lambda asked: asked.groups[0].group_id,
    DeleteGroupsRequest: lambda asked: asked.groups_names[0],
}
_BROKER = 4


class Ask:
    """Gives the answer to a request of a version.

    Args:
        bootstrap: addresses of all brokers.
    """

    def __init__(self, bootstrap: str) -> None:
        self._clients = {each: RawClient(each) for each in bootstrap.split(",")}
        self._any = next(iter(self._clients.values()))

    def __call__(self, request: Message, version: int) -> Any:
        """The answer of the broker that has it.

        Asked again, as every client does, while leaders and coordinators are changing.
        """
        return eventually(lambda: self._final(request, version), f"no final answer to {request}")

    def each(self, request: Message, version: int) -> list[Any]:
        """The answers of all brokers, in their order."""
        return [client.ask(request, version) for client in self._clients.values()]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _final(self, request: Message, version: int) -> Any:
        answer = self._whom(request).ask(request, version)
        return None if any(code.retriable for code in _errors(answer)) else answer

    def _whom(self, request: Message) -> RawClient:
        if len(self._clients) == 1:
            return self._any
        if place := _PARTITIONS.get(type(request)):
            return self._leader(place(request))
        if group := _GROUPS.get(type(request)):
            found: Any = self._any.ask(FindCoordinatorRequest(key=group(request)), 2)
            return self._clients.get(f"{found.host}:{found.port}", self._any)
        if isinstance(request, DescribeConfigsRequest | IncrementalAlterConfigsRequest):
            resource = request.resources[0]
            if resource.resource_type == _BROKER and resource.resource_name:
                return self._node(int(resource.resource_name))
        return self._any

    def _leader(self, place: Place) -> RawClient:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=place.topic)], allow_auto_topic_creation=False
        )
        (topic,) = self._metadata(request).topics
        led = {each.partition_index: each.leader_id for each in topic.partitions}
        # Each broker reports that the partition has no leader.
        leader = led.get(place.partition, -1)
        return self._any if leader < 0 else self._node(leader)

    def _node(self, node_id: int) -> RawClient:
        brokers = self._metadata(MetadataRequest(topics=[])).brokers
        at = {each.node_id: f"{each.host}:{each.port}" for each in brokers}
        return self._clients[at[node_id]] if node_id in at else self._any

    def _metadata(self, request: MetadataRequest) -> Any:
        return self._any.ask(request, 9)


def _errors(answer: object) -> Iterator[ErrorCode]:
    """All error codes of an answer, of its parts too."""
    if isinstance(answer, list):
        for each in answer:
            yield from _errors(each)
    elif isinstance(answer, Struct):
        for each in answer.__fields__:
            value = getattr(answer, each.name)
            if each.name == "error_code":
                yield ErrorCode(value)
            else:
                yield from _errors(value)


@contextmanager
def asking(bootstrap: str) -> Iterator[Ask]:
    """Connections of its own: what gives the answer to a request."""
    ask = Ask(bootstrap)
    try:
        yield ask
    finally:
        ask.close()
