"""A closed connection leaves no objects that only the garbage collector can free.

A hostile client may open and close thousands of connections a second. Freeing the reference cycles
of all of them at once blocked the event loop for 200 ms.
"""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from unit.network.connected_server import connected, frame, produce
from unit.network.recorded_times import LARGE, Times

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.network.connection import Connection
    from barnabas.network.request_order import ResponseSlot


@pytest.fixture(autouse=True)
def without_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class SlotTimes(Times):
    """References its slot, as the context of a request does."""

    def __init__(self, slot: ResponseSlot) -> None:
        super().__init__()
        self.slot = slot


@pytest.mark.parametrize("is_released", [True, False])
def test_a_delayed_response_leaves_no_reference_cycle(is_released: bool) -> None:
    world, server, client = connected(1)
    client.stream.write([produce(b"a"), produce(b"b")])
    assert world.run_until(lambda: len(server.slots) == 2)
    first, second = server.slots
    times = SlotTimes(second)
    second.complete([frame(b"x")], times)
    if is_released:
        first.complete([frame(b"x")])
        world.run_for(100)
    else:
        client.stream.abort()
        assert world.run_until(lambda: bool(server.closed))
    watched = weakref.ref(times)
    server.slots.clear()
    del first, second, times
    assert watched() is None


def test_unsent_responses_are_freed_with_their_connection() -> None:
    world, server, client = connected(1)
    client.stream.pause_reading()
    client.stream.write([produce(b"a"), produce(b"b")])
    assert world.run_until(lambda: len(server.slots) == 2)
    watched = []
    for slot in server.slots:
        times = SlotTimes(slot)
        watched.append(weakref.ref(times))
        slot.complete([frame(LARGE)], times)
    server.connections[0].abort()
    world.run_for(100)
    server.slots.clear()
    del slot, times
    assert [each() for each in watched] == [None, None]


def test_a_response_before_a_malformed_frame_is_freed() -> None:
    world, server, _ = connected(1)
    made: list[weakref.ref[SlotTimes]] = []

    def answer(connection: Connection, _: memoryview) -> None:
        slot = connection.reserve()
        times = SlotTimes(slot)
        made.append(weakref.ref(times))
        slot.complete([frame(b"x")], times)

    server.handle = answer
    (connection,) = server.connections
    data = frame(b"a") + b"\xff\xff\xff\xff"
    connection.get_buffer()[: len(data)] = data
    connection.on_received(len(data))
    assert world.run_until(lambda: bool(server.closed))
    assert [each() for each in made] == [None]


def test_the_error_of_a_malformed_frame_has_no_traceback() -> None:
    world, server, client = connected(1)
    client.stream.write([b"\xff\xff\xff\xff"])
    assert world.run_until(lambda: bool(server.closed))
    assert server.connections[0].malformed == (
        "the length of a frame is -1 bytes; at most 104857600 are allowed"
    )
