"""Send times of responses, which are measured only for responses that are delayed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from unit.network.connected_server import connected, frame, produce
from unit.network.recorded_times import LARGE, Times

if TYPE_CHECKING:
    from barnabas.network.connection import Connection


@pytest.mark.parametrize("is_parked", [False, True])
def test_the_send_time_ends_when_the_kernel_has_the_last_byte(is_parked: bool) -> None:
    world, server, client = connected(1)
    times = Times()

    def answer(connection: Connection, _: memoryview) -> None:
        connection.reserve().complete([frame(LARGE)], times)

    if not is_parked:
        server.handle = answer
    client.stream.pause_reading()
    client.stream.write([frame(b"a")])
    world.run_for(100)
    if is_parked:
        server.slots[0].complete([frame(LARGE)], times)
    world.run_for(500)
    assert times.sent == []
    client.stream.resume_reading()
    assert world.run_until(lambda: bool(times.sent))
    assert len(client.data) >= len(LARGE) - 512 * 1024
    assert times.sent[0] >= 500
    assert (len(times.sent), times.held) == (1, [])


def test_an_immediately_sent_response_is_not_measured() -> None:
    world, server, client = connected(1)
    times = Times()
    server.handle = lambda connection, _: connection.reserve().complete([frame(b"x")], times)
    client.stream.write([produce(b"a"), produce(b"b")])
    assert world.run_until(lambda: len(client.data) == 10)
    server.handle = server.park
    client.stream.write([frame(b"c")])
    assert world.run_until(lambda: bool(server.slots))
    server.slots[0].complete([frame(b"x")], times)
    assert world.run_until(lambda: len(client.data) == 15)
    server.connections[0].abort()
    world.run_for(100)
    assert (times.sent, times.held) == ([], [])


def test_a_small_response_after_a_large_one_has_the_same_send_time() -> None:
    world, server, client = connected(1)
    client.stream.pause_reading()
    client.stream.write([produce(b"a"), produce(b"b"), produce(b"c")])
    assert world.run_until(lambda: len(server.slots) == 3)
    first, second, third = Times(), Times(), Times()
    server.slots[1].complete([frame(b"x")], second)
    world.run_for(200)
    server.slots[0].complete([frame(LARGE)], first)
    world.run_for(300)
    server.slots[2].complete([frame(LARGE)], third)
    world.run_for(400)
    client.stream.resume_reading()
    assert world.run_until(lambda: bool(third.sent))
    assert second.held == [pytest.approx(200, abs=5)]
    assert first.sent == second.sent
    assert first.sent[0] >= 700
    assert 400 <= third.sent[0] < first.sent[0] + 300


def test_a_closed_connection_ends_the_send_time() -> None:
    world, server, client = connected(1)
    client.stream.pause_reading()
    client.stream.write([frame(b"a")])
    assert world.run_until(lambda: bool(server.slots))
    times = Times()
    server.slots[0].complete([frame(LARGE)], times)
    world.run_for(250)
    client.stream.abort()
    assert world.run_until(lambda: bool(server.closed))
    assert times.sent == [pytest.approx(250, abs=50)]
