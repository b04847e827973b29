"""A broker on the simulated network, whose responses the test defines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.network.connection import Connection
from barnabas.network.connection_limits import ConnectionDependencies, ConnectionLimits
from barnabas.network.framed_protocol import new_receive_buffer
from barnabas.protocol.api_keys import ApiKey, request_class, schema_versions
from barnabas.protocol.codec import decode, decode_request_header, encode_response
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.connection import ApiVersion, ApiVersionsResponse
from barnabas.protocol.messages.metadata import (
    Coordinator,
    FindCoordinatorResponse,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.schema import Message
    from barnabas.sim.world import SimWorld

NODE_ID = 1
PORT = 9092
_SERVED = (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.FIND_COORDINATOR)


class ScriptedCoordinator:
    """Responds to Metadata and FindCoordinator; `answers` has the responses for other APIs."""

    def __init__(self, world: SimWorld, name: str = "b") -> None:
        self._world = world
        self._name = name
        # By API: returns the response to a request, or None for no response.
        self.answers: dict[ApiKey, Callable[[Any], Message | None]] = {}
        # The highest offered version, if it is not the latest.
        self.max_versions: dict[ApiKey, int] = {}
        # Topics by name: id and number of partitions.
        self.topics: dict[str, tuple[bytes, int]] = {}
        # Error code of FindCoordinator; 0 returns this broker.
        self.coordinator_error = 0
        self.coordinator_lookups = 0
        self.connections: list[Connection] = []
        runtime = world.host(name).runtime
        dependencies = ConnectionDependencies(runtime.clock, runtime.timer, new_receive_buffer())

        def accept() -> Connection:
            made = Connection(
                1, dependencies, ConnectionLimits(), self._on_request, lambda *_: None
            )
            self.connections.append(made)
            return made

        runtime.sockets.listen("", PORT, accept)

    @property
    def address(self) -> str:
        return f"{self._name}:{PORT}"

    def drop_connections(self) -> None:
        """Reset every connection."""
        for connection in self.connections:
            connection.abort()
        self.connections.clear()

    def _on_request(self, connection: Connection, view: memoryview) -> None:
        number, version, correlation_id, _client, offset = decode_request_header(view)
        api_key = ApiKey(number)
        request = decode(request_class(api_key), version, bytes(view[offset:]))
        slot = connection.reserve()
        match api_key:
            case ApiKey.API_VERSIONS:
                answer: Message | None = self._versions()
            case ApiKey.METADATA:
                answer = self._metadata(request)
            case ApiKey.FIND_COORDINATOR:
                answer = self._coordinator(request)
            case _:
                answer = self.answers[api_key](request)
        if answer is None:
            # Later requests do not wait for the response that never comes.
            slot.skip()
        else:
            slot.complete(encode_response(correlation_id, answer, version))

    def _versions(self) -> Message:
        keys = []
        for api_key in (*_SERVED, *self.answers):
            low, high = schema_versions(api_key)
            high = self.max_versions.get(api_key, high)
            keys.append(ApiVersion(api_key=api_key, min_version=low, max_version=high))
        return ApiVersionsResponse(error_code=0, api_keys=keys)

    def _metadata(self, request: Any) -> Message:
        names = {topic_id: name for name, (topic_id, _) in self.topics.items()}
        topics = []
        for asked in request.topics or []:
            name = asked.name or names.get(asked.topic_id)
            if name not in self.topics:
                by_id = asked.name is None
                code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                unknown = MetadataResponseTopic(
                    error_code=code, name=asked.name, topic_id=asked.topic_id, partitions=[]
                )
                topics.append(unknown)
                continue
            topic_id, count = self.topics[name]
            partitions = [
                MetadataResponsePartition(
                    error_code=0,
                    partition_index=number,
                    leader_id=NODE_ID,
                    replica_nodes=[NODE_ID],
                    isr_nodes=[NODE_ID],
                )
                for number in range(count)
            ]
            topics.append(
                MetadataResponseTopic(
                    error_code=0, name=name, topic_id=topic_id, partitions=partitions
                )
            )
        broker = MetadataResponseBroker(node_id=NODE_ID, host=self._name, port=PORT)
        return MetadataResponse(brokers=[broker], controller_id=NODE_ID, topics=topics)

    def _coordinator(self, request: Any) -> Message:
        self.coordinator_lookups += 1
        found = Coordinator(
            key=request.coordinator_keys[0],
            node_id=NODE_ID if not self.coordinator_error else -1,
            host=self._name,
            port=PORT,
            error_code=self.coordinator_error,
            error_message=None,
        )
        return FindCoordinatorResponse(coordinators=[found])
