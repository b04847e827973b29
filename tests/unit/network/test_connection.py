"""The server's side of a connection, over a simulated network that cuts bytes anywhere."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from barnabas.network.connection import (
    Connection,
    ConnectionDoors,
    ConnectionLimits,
    ResponseSlot,
)
from barnabas.network.framed_protocol import new_receive_buffer
from barnabas.sim.world import SimWorld
from unit.runtime.streams import Recorder


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Server:
    """Accepts on host "s"; keeps the slots of the requests, and copies of these."""

    def __init__(self, world: SimWorld, limits: ConnectionLimits, buffer_bytes: int = 4096) -> None:
        runtime = world.host("s").runtime
        self.doors = ConnectionDoors(runtime.clock, runtime.timer, new_receive_buffer(buffer_bytes))
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
            self.doors,
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


@pytest.mark.parametrize("seed", range(10))
def test_frames_of_any_size_come_whole_however_the_bytes_are_cut(seed: int) -> None:
    world, server, client = connected(seed)
    server.handle = server.echo
    bodies = [bytes([n % 251]) * (n * n % 9001) for n in range(60)]
    client.stream.write([frame(body) for body in bodies])
    assert world.run_until(lambda: len(server.requests) == 60)
    assert server.requests == bodies
    expected = b"".join(frame(body) for body in bodies)
    assert world.run_until(lambda: len(client.data) == len(expected))
    assert client.data == expected


def test_answers_leave_in_the_order_of_the_requests() -> None:
    world, server, client = connected(1)
    client.stream.write([frame(b"1") + frame(b"2") + frame(b"3")])
    assert world.run_until(lambda: len(server.slots) == 3)
    server.slots[2].complete([b"C"])
    server.slots[1].skip()
    world.run_for(100)
    assert client.data == b""
    server.slots[0].complete([b"A"])
    world.run_for(100)
    assert client.data == b"AC"
    assert server.connections[0].statistics().in_flight == 0


def test_a_request_is_answered_once() -> None:
    world, server, client = connected(1)
    client.stream.write([frame(b"1")])
    assert world.run_until(lambda: bool(server.slots))
    server.slots[0].complete([b"A"])
    with pytest.raises(AssertionError):
        server.slots[0].complete([b"B"])


def test_a_view_that_is_kept_raises_when_used_late() -> None:
    world, server, client = connected(1)
    views: list[memoryview] = []
    server.handle = lambda _, view: views.append(view)
    client.stream.write([frame(b"12345")])
    assert world.run_until(lambda: bool(views))
    with pytest.raises(ValueError, match="released"):
        views[0][0]


def test_views_are_writable() -> None:
    world, server, client = connected(1)
    seen: list[bytes] = []

    def patch(_: Connection, view: memoryview) -> None:
        view[0:1] = b"X"
        seen.append(bytes(view))

    server.handle = patch
    client.stream.write([frame(b"12345")])
    assert world.run_until(lambda: bool(seen))
    assert seen == [b"X2345"]


def test_too_many_requests_in_flight_stop_the_reading() -> None:
    limits = ConnectionLimits(in_flight_max=4)
    world, server, client = connected(3, limits)
    for _ in range(40):
        client.stream.write([frame(bytes(3000))])
    world.run_for(1000)
    taken = len(server.slots)
    # One more receive buffer full may have been cut already.
    assert 4 <= taken <= 6
    assert server.connections[0].statistics().paused
    for index in range(40):
        assert world.run_until(lambda index=index: len(server.slots) > index)
        server.slots[index].complete([frame(b"ok")])
    assert world.run_until(lambda: len(client.data) == 40 * 6)
    assert not server.connections[0].statistics().paused


def test_held_back_answers_stop_the_reading() -> None:
    world, server, client = connected(3, ConnectionLimits(held_bytes_max=1000))
    client.stream.write([frame(b"1") + frame(b"2")])
    assert world.run_until(lambda: len(server.slots) == 2)
    server.slots[1].complete([bytes(2000)])
    assert server.connections[0].statistics().paused
    server.slots[0].complete([b"A"])
    assert not server.connections[0].statistics().paused
    assert world.run_until(lambda: len(client.data) == 2001)


def test_an_absurd_length_costs_the_peer_its_connection() -> None:
    world, server, client = connected(1, ConnectionLimits(frame_bytes_max=100))
    client.stream.write([struct.pack(">i", 101)])
    assert world.run_until(lambda: client.closed and bool(server.closed))
    assert server.connections[0].malformed is not None
    assert server.requests == []


def test_a_graceful_close_answers_what_was_taken_up() -> None:
    world, server, client = connected(1)
    client.stream.write([frame(b"1")])
    assert world.run_until(lambda: bool(server.slots))
    server.connections[0].close()
    client.stream.write([frame(b"2")])
    world.run_for(100)
    assert not client.closed
    server.slots[0].complete([b"A"])
    assert world.run_until(lambda: client.closed)
    assert client.data == b"A"
    assert len(server.requests) == 1


def test_answers_after_the_connection_went_are_dropped() -> None:
    world, server, client = connected(1)
    client.stream.write([frame(b"1")])
    assert world.run_until(lambda: bool(server.slots))
    client.stream.close()
    assert world.run_until(lambda: bool(server.closed))
    server.slots[0].complete([b"A"])
    world.run_for(10)
    assert client.data == b""


def test_idle_time_counts_from_the_last_request_and_not_while_one_waits() -> None:
    world, server, client = connected(1)
    connection = server.connections[0]
    world.run_for(500)
    assert connection.idle_ms() >= 500
    client.stream.write([frame(b"1")])
    assert world.run_until(lambda: bool(server.slots))
    world.run_for(500)
    assert connection.idle_ms() == 0
    server.slots[0].complete([b"A"])
    assert connection.idle_ms() >= 500


def test_a_muted_connection_is_not_read() -> None:
    world, server, client = connected(1)
    server.connections[0].mute()
    client.stream.write([frame(b"1")])
    world.run_for(100)
    assert server.requests == []
    server.connections[0].unmute()
    world.run_for(100)
    assert server.requests == [b"1"]


def test_the_last_answer_of_a_read_leaves_before_its_handler_is_done() -> None:
    _, server, _ = connected(1)
    sent: list[int] = []

    def answer(connection: Connection, view: memoryview) -> None:
        server.echo(connection, view)
        sent.append(connection.bytes_out)

    server.handle = answer
    (connection,) = server.connections
    for data in (frame(b"a"), frame(b"b") + frame(b"c")):
        connection.get_buffer()[: len(data)] = data
        connection.on_received(len(data))
    assert sent == [5, 5, 15]
