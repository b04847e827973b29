"""A simulated server with a connected client, and the frames of both."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from barnabas.network.connection import Connection, ResponseSlot
from barnabas.network.connection_limits import ConnectionDependencies, ConnectionLimits
from barnabas.network.framed_protocol import new_receive_buffer
from barnabas.sim.world import SimWorld
from unit.runtime.streams import Recorder


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def produce(body: bytes) -> bytes:
    """Return a frame with the API key of Produce, which needs no response to an earlier one."""
    return frame(b"\0\0" + body)


class Server:
    """Accepts on host "s"; keeps the slots of the requests, and copies of the requests."""

    def __init__(self, world: SimWorld, limits: ConnectionLimits, buffer_bytes: int = 4096) -> None:
        runtime = world.host("s").runtime
        self.dependencies = ConnectionDependencies(
            runtime.clock, runtime.timer, new_receive_buffer(buffer_bytes)
        )
        self.limits = limits
        self.connections: list[Connection] = []
        self.requests: list[bytes] = []
        self.slots: list[ResponseSlot] = []
        self.closed: list[Exception | None] = []
        self.handle: Callable[[Connection, memoryview], None] = self.park
        self.port = runtime.sockets.listen("", 0, self.accept).port

    def accept(self) -> Connection:
        connection = Connection(
            len(self.connections),
            self.dependencies,
            self.limits,
            self.take,
            lambda _, error: self.closed.append(error),
        )
        self.connections.append(connection)
        return connection

    def take(self, connection: Connection, view: memoryview) -> None:
        self.handle(connection, view)

    def park(self, connection: Connection, view: memoryview) -> None:
        self.requests.append(bytes(view))
        self.slots.append(connection.reserve())

    def echo(self, connection: Connection, view: memoryview) -> None:
        self.requests.append(bytes(view))
        connection.reserve().complete([frame(bytes(view))])


def connected(
    seed: int, limits: ConnectionLimits | None = None
) -> tuple[SimWorld, Server, Recorder]:
    world = SimWorld(seed)
    server = Server(world, limits or ConnectionLimits())
    client = Recorder()
    world.host("c").runtime.sockets.connect("s", server.port, client, pytest.fail, 1000)
    assert world.run_until(lambda: client.stream is not None)
    return world, server, client
