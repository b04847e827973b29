"""Requests behind a request that pauses the connection, or that waits, are deferred."""

from __future__ import annotations

import random
import struct
import tracemalloc
from typing import TYPE_CHECKING

import msgspec
import pytest

from barnabas.network.connection import Connection
from barnabas.network.connection_limits import ConnectionLimits, FrameBudget
from barnabas.sim.network import NetworkConditions
from barnabas.sim.world import SimWorld
from unit.network.connected_server import Server, frame, produce
from unit.runtime.streams import Recorder

if TYPE_CHECKING:
    from barnabas.network.request_order import ResponseSlot
    from barnabas.runtime.sockets import Stream

BURST = b"".join(frame(struct.pack(">i", number)) for number in range(20))


def burst(world: SimWorld, server: Server) -> Recorder:
    """A client that sends twenty requests in one write, which may arrive in one read."""
    world.network.conditions = NetworkConditions(0.1, 0.1, 0.0)
    client = Recorder()
    runtime = world.host("c").runtime
    runtime.sockets.connect("s", server.port, client, lambda _: None, 1000)
    assert world.run_until(lambda: bool(server.connections and client.stream))
    assert client.stream is not None
    client.stream.write([BURST])
    return client


def numbers(server: Server) -> list[int]:
    return [struct.unpack(">i", body)[0] for body in server.requests]


def test_requests_are_limited_and_handled_in_order() -> None:
    world = SimWorld(3)
    server = Server(world, ConnectionLimits(in_flight_max=4))
    burst(world, server)
    world.run_for(100)
    assert numbers(server) == [0, 1, 2, 3]
    for answered in range(20):
        assert world.run_until(lambda n=answered: len(server.slots) > n)  # type: ignore[misc]
        assert len(server.slots) - answered <= 4
        server.slots[answered].complete([frame(b"x")])
    world.run_for(100)
    assert numbers(server) == list(range(20))


def test_a_throttled_connection_handles_no_request_until_the_throttle_ends() -> None:
    world = SimWorld(4)
    server = Server(world, ConnectionLimits())

    def answer_and_throttle(connection: Connection, view: memoryview) -> None:
        server.echo(connection, view)
        connection.throttle(100)

    server.handle = answer_and_throttle
    burst(world, server)
    assert world.run_until(lambda: bool(server.requests))
    world.run_for(90)
    assert numbers(server) == [0]
    world.run_for(1_000)
    assert 10 <= len(server.requests) <= 12
    world.run_for(2_000)
    assert numbers(server) == list(range(20))


def test_the_longest_of_several_throttle_times_applies() -> None:
    world = SimWorld(5)
    server = Server(world, ConnectionLimits())
    burst(world, server)
    assert world.run_until(lambda: len(server.requests) == 20)
    connection = server.connections[0]
    connection.throttle(100)
    connection.throttle(500)
    world.run_for(400)
    assert connection.is_throttled
    world.run_for(200)
    assert not connection.is_throttled


def test_deferred_requests_are_dropped_when_the_connection_closes() -> None:
    world = SimWorld(6)
    server = Server(world, ConnectionLimits(in_flight_max=2))
    client = burst(world, server)
    world.run_for(50)
    assert client.stream is not None
    server.connections[0].abort()
    world.run_for(100)
    server.slots[0].complete([frame(b"x")])
    world.run_for(100)
    assert len(server.requests) == 2


def test_many_small_deferred_requests_take_little_memory_beyond_their_size() -> None:
    world = SimWorld(8)
    world.network.conditions = NetworkConditions(0.1, 0.1, 0.0)
    server = Server(world, ConnectionLimits(in_flight_max=4), 1 << 20)
    client = burst(world, server)
    world.run_for(100)
    connection = server.connections[0]
    count = 20_000
    data = b"".join(frame(struct.pack(">i", 20 + number)) for number in range(count))
    connection.get_buffer()[: len(data)] = data
    tracemalloc.start()
    connection.on_received(len(data))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 3 * len(data)
    assert client.stream is not None
    server.handle = server.echo
    for slot in server.slots[:4]:
        slot.complete([frame(b"x")])
    assert world.run_until(lambda: len(server.requests) == 20 + count)
    assert numbers(server) == list(range(20 + count))


# Sizes of requests: small ones, and those that leave their rest in the kernel.
SIZES = (0, 10, 3_000, 200_000)


def alone(body: bytes) -> bytes:
    """A request that waits for the responses to all earlier ones."""
    return frame(b"\xff\xff" + body)


def request(number: int, size: int = 4) -> bytes:
    """A request with a number, which waits for the responses to all earlier ones."""
    return alone(struct.pack(">i", number).ljust(size, b"x"))


def budgeted(world: SimWorld, megabytes: int) -> tuple[Server, FrameBudget]:
    server = Server(world, ConnectionLimits(), 1 << 19)
    runtime = world.host("s").runtime
    budget = FrameBudget(megabytes << 20, runtime.clock, runtime.timer)
    server.dependencies = msgspec.structs.replace(server.dependencies, frame_budget=budget)
    return server, budget


def connect(world: SimWorld, server: Server, name: str) -> Stream:
    world.network.conditions = NetworkConditions(0.1, 0.1, 0.0)
    client = Recorder()
    sockets = world.host(name).runtime.sockets
    sockets.connect("s", server.port, client, lambda _: None, 1000)
    assert world.run_until(lambda: client.stream is not None)
    assert client.stream is not None
    return client.stream


def test_a_request_is_processed_after_the_response_to_the_previous_one() -> None:
    world = SimWorld(3)
    server = Server(world, ConnectionLimits())
    connect(world, server, "c").write([request(0) + request(1) + request(2)])
    for count in (1, 2, 3):
        world.run_for(100)
        assert len(server.requests) == count
        server.slots[-1].complete([frame(b"x")])


def test_deferred_requests_count_for_the_budget_until_they_are_processed() -> None:
    world = SimWorld(3)
    server, budget = budgeted(world, 10)
    connect(world, server, "c").write([request(0) + request(1, 30_000) + request(2, 30_000)])
    world.run_for(100)
    assert 30_000 <= budget.held_bytes <= 70_000
    server.handle = server.echo
    server.slots[0].complete([frame(b"x")])
    world.run_for(100)
    assert (len(server.requests), budget.held_bytes) == (3, 0)


def test_a_large_request_is_not_received_before_its_turn() -> None:
    world = SimWorld(3)
    server, budget = budgeted(world, 10)
    stream = connect(world, server, "c")
    stream.write([request(0)])
    world.run_for(100)
    stream.write([request(1, 8 << 20)])
    world.run_for(1_000)
    assert budget.held_bytes <= 1 << 20
    assert budget.waiting == 0
    server.handle = server.echo
    server.slots[0].complete([frame(b"x")])
    assert world.run_until(lambda: len(server.requests) == 2)
    assert budget.held_bytes == 0


def test_deferred_requests_are_processed_while_the_budget_is_used_up() -> None:
    """They hold memory, so they must not wait for memory."""
    world = SimWorld(3)
    server, budget = budgeted(world, 1)
    streams = [connect(world, server, f"c{number}") for number in range(8)]
    for stream in streams:
        stream.write([b"".join(request(number, 60_000) for number in range(6))])
    world.run_for(2_000)
    assert len(server.requests) == len(streams)
    assert budget.is_full
    server.handle = server.echo
    for slot in list(server.slots):
        slot.complete([frame(b"x")])
    assert world.run_until(lambda: len(server.requests) == 6 * len(streams), 20_000)
    assert budget.held_bytes == 0


def test_the_requests_of_a_client_that_is_gone_wait_for_no_response() -> None:
    """For example a LeaveGroup behind a JoinGroup that waits for other members."""
    world = SimWorld(3)
    server = Server(world, ConnectionLimits())
    stream = connect(world, server, "c")
    stream.write([b"".join(request(number) for number in range(5))])
    world.run_for(100)
    assert len(server.requests) == 1
    gone: list[int] = []
    server.slots[0].on_client_gone(lambda: gone.append(0))
    stream.close()
    assert world.run_until(lambda: bool(server.closed), 5_000)
    assert gone == [0]
    assert len(server.requests) == 5
    for slot in server.slots:
        slot.complete([frame(b"x")])


@pytest.mark.parametrize("seed", range(30))
def test_requests_are_processed_in_order_and_alone_except_for_those_of_a_group(seed: int) -> None:
    """Random requests, responses and splits of the bytes; a Produce is a request of a group."""
    world, rng = SimWorld(seed), random.Random(seed)
    server, budget = budgeted(world, 1)
    stream = connect(world, server, "c")
    world.network.conditions = NetworkConditions(0.1, 5, 0.0)
    sent = [
        (produce if rng.random() < 0.6 else alone)(b"%04d" % number + bytes(rng.choice(SIZES)))
        for number in range(60)
    ]
    stream.write(sent)
    pending: list[tuple[bytes, ResponseSlot]] = []

    def park(connection: Connection, view: memoryview) -> None:
        is_produce = bytes(view[:2]) == bytes(2)
        assert not pending or is_produce
        assert all(body[:2] == bytes(2) for body, _ in pending)
        server.requests.append(bytes(view))
        slot = connection.reserve()
        if rng.random() < 0.3:
            slot.complete([frame(b"now")])
        else:
            pending.append((server.requests[-1], slot))

    server.handle = park

    def respond() -> bool:
        if pending and rng.random() < 0.5:
            _, slot = pending.pop(rng.randrange(len(pending)))
            slot.complete([frame(b"later")])
        return len(server.requests) == len(sent) and not pending

    assert world.run_until(respond, 60_000)
    assert server.requests == [each[4:] for each in sent]
    assert budget.held_bytes == 0
