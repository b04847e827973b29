"""A broker whose responses the test writes."""

from __future__ import annotations

from barnabas.network.connection import Connection
from barnabas.network.connection_limits import ConnectionDependencies, ConnectionLimits
from barnabas.network.framed_protocol import new_receive_buffer
from barnabas.protocol.codec import decode_request_header, encode_response
from barnabas.protocol.messages.connection import ApiVersionsResponse
from barnabas.sim.world import SimWorld


class Broker:
    """Answers every request with an ApiVersions response, when `answer` says so."""

    def __init__(self, world: SimWorld, name: str = "b", port: int = 9092) -> None:
        self.world = world
        self.name = name
        self.port = port
        self.answering = True
        self.accepted = 0
        self.requests = 0
        self.start()

    def start(self) -> None:
        runtime = self.world.host(self.name).runtime
        dependencies = ConnectionDependencies(
            runtime.clock, runtime.timer, new_receive_buffer(4096)
        )

        def accept() -> Connection:
            self.accepted += 1
            return Connection(1, dependencies, ConnectionLimits(), self.answer, lambda *_: None)

        runtime.sockets.listen("", self.port, accept)

    def answer(self, connection: Connection, view: memoryview) -> None:
        self.requests += 1
        slot = connection.reserve()
        if self.answering:
            correlation_id = decode_request_header(view)[2]
            response = ApiVersionsResponse(error_code=35, api_keys=[])
            slot.complete(encode_response(correlation_id, response, 0))
