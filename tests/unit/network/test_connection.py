"""Server connections over a simulated network that splits bytes anywhere."""

from __future__ import annotations

import struct
from collections.abc import Callable

import msgspec
import pytest

from barnabas.network.connection import Connection, ResponseSlot
from barnabas.network.connection_limits import ConnectionDependencies, ConnectionLimits
from barnabas.network.framed_protocol import new_receive_buffer
from barnabas.runtime.clock import Timer
from barnabas.sim.world import SimWorld
from unit.network.connected_server import Server, connected, frame, produce
from unit.runtime.streams import Recorder


@pytest.mark.parametrize("seed", range(10))
def test_frames_of_any_size_arrive_complete_for_any_split(seed: int) -> None:
    world, server, client = connected(seed)
    server.handle = server.echo
    bodies = [bytes([n % 251]) * (n * n % 9001) for n in range(60)]
    client.stream.write([frame(body) for body in bodies])
    assert world.run_until(lambda: len(server.requests) == 60)
    assert server.requests == bodies
    expected = b"".join(frame(body) for body in bodies)
    assert world.run_until(lambda: len(client.data) == len(expected))
    assert client.data == expected


def test_responses_are_sent_in_the_order_of_the_requests() -> None:
    world, server, client = connected(1)
    client.stream.write([produce(b"1") + produce(b"2") + produce(b"3")])
    assert world.run_until(lambda: len(server.slots) == 3)
    server.slots[2].complete([b"C"])
    server.slots[1].skip()
    world.run_for(100)
    assert client.data == b""
    server.slots[0].complete([b"A"])
    world.run_for(100)
    assert client.data == b"AC"
    assert server.connections[0].statistics().in_flight == 0


def test_a_second_response_to_a_request_is_an_error() -> None:
    world, server, client = connected(1)
    client.stream.write([frame(b"1")])
    assert world.run_until(lambda: bool(server.slots))
    server.slots[0].complete([b"A"])
    with pytest.raises(AssertionError):
        server.slots[0].complete([b"B"])


def test_a_view_raises_after_its_request_ended() -> None:
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


def test_too_many_requests_in_flight_pause_reading() -> None:
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


def test_unsent_responses_pause_reading() -> None:
    world, server, client = connected(3, ConnectionLimits(held_bytes_max=1000))
    client.stream.write([produce(b"1") + produce(b"2")])
    assert world.run_until(lambda: len(server.slots) == 2)
    server.slots[1].complete([bytes(2000)])
    assert server.connections[0].statistics().paused
    server.slots[0].complete([b"A"])
    assert not server.connections[0].statistics().paused
    assert world.run_until(lambda: len(client.data) == 2001)


def test_an_invalid_length_closes_the_connection() -> None:
    world, server, client = connected(1, ConnectionLimits(frame_bytes_max=100))
    client.stream.write([struct.pack(">i", 101)])
    assert world.run_until(lambda: client.closed and bool(server.closed))
    assert server.connections[0].malformed is not None
    assert server.requests == []


def test_a_graceful_close_answers_accepted_requests() -> None:
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


def test_responses_after_the_end_of_the_connection_are_dropped() -> None:
    world, server, client = connected(1)
    client.stream.write([frame(b"1")])
    assert world.run_until(lambda: bool(server.slots))
    client.stream.close()
    assert world.run_until(lambda: bool(server.closed))
    server.slots[0].complete([b"A"])
    world.run_for(10)
    assert client.data == b""


def test_idle_time_counts_from_the_last_request_unless_one_is_pending() -> None:
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


def test_the_last_response_of_a_read_is_sent_before_its_handler_returns() -> None:
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


def test_a_late_response_is_sent_at_once_if_no_other_request_waits() -> None:
    _, server, _ = connected(1)
    (connection,) = server.connections
    requests = produce(b"a") + produce(b"b")
    connection.get_buffer()[: len(requests)] = requests
    connection.on_received(len(requests))
    first, second = server.slots
    first.complete([frame(b"1")])
    assert connection.bytes_out == 0, "the other response may share the write"
    second.complete([frame(b"2")])
    assert connection.bytes_out == len(frame(b"1")) * 2


class CountingTimer:
    """A timer that counts the callbacks of the next turn."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self.call_later = timer.call_later
        self.soon = 0

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon += 1
        self._timer.call_soon(callback)


def test_a_late_response_that_is_sent_at_once_needs_no_callback() -> None:
    world = SimWorld(1)
    server = Server(world, ConnectionLimits())
    timer = CountingTimer(world.host("s").runtime.timer)
    server.dependencies = msgspec.structs.replace(server.dependencies, timer=timer)
    client = Recorder()
    world.host("c").runtime.sockets.connect("s", server.port, client, pytest.fail, 1000)
    assert world.run_until(lambda: client.stream is not None)
    client.stream.write([produce(b"a") + produce(b"b")])
    assert world.run_until(lambda: len(server.slots) == 2)
    before = timer.soon
    server.slots[0].complete([frame(b"1")])
    assert timer.soon == before + 1, "the other response may not come in this turn"
    world.run_for(100)
    assert client.data == frame(b"1")
    server.slots[1].complete([frame(b"2")])
    assert timer.soon == before + 1
    world.run_for(100)
    assert client.data == frame(b"1") + frame(b"2")


class WorkingClock:
    """A clock that advances during the handling of requests, unlike in simulations."""

    def __init__(self, world: SimWorld) -> None:
        self._clock = world.host("s").runtime.clock
        self.worked_ms = 0.0

    def wall_ms(self) -> int:
        return self._clock.wall_ms()

    def monotonic_ms(self) -> float:
        return self._clock.monotonic_ms() + self.worked_ms


def working(each_ms: float) -> tuple[SimWorld, Server, Recorder, list[bytes]]:
    """Return a server whose requests take `each_ms`; the list has a T for each loop turn."""
    world = SimWorld(1)
    server = Server(world, ConnectionLimits(), buffer_bytes=1 << 16)
    clock = WorkingClock(world)
    timer = world.host("s").runtime.timer
    server.dependencies = ConnectionDependencies(clock, timer, new_receive_buffer(1 << 16))
    order: list[bytes] = []

    def work(connection: Connection, view: memoryview) -> None:
        clock.worked_ms += each_ms
        order.append(bytes(view))
        # After the calls of this turn, and before the next share.
        timer.call_soon(lambda: order.append(b"T"))
        server.echo(connection, view)

    server.handle = work
    client = Recorder()
    world.host("c").runtime.sockets.connect("s", server.port, client, pytest.fail, 1000)
    assert world.run_until(lambda: client.stream is not None)
    return world, server, client, order


def in_a_row(order: list[bytes]) -> int:
    """Return the largest number of requests that one turn handled."""
    return max(len(turn.split()) for turn in b" ".join(order).split(b"T"))


def test_requests_of_one_read_get_a_share_of_each_turn() -> None:
    world, server, client, order = working(each_ms=1)
    bodies = [b"%d" % number for number in range(50)]
    client.stream.write([b"".join(map(frame, bodies))])
    answers = b"".join(map(frame, bodies))
    assert world.run_until(lambda: len(client.data) == len(answers))
    assert client.data == answers
    assert server.requests == bodies
    # 2 ms, and the request that goes beyond.
    assert in_a_row(order) == 3


def test_work_of_deferred_requests_is_collected_as_after_a_read() -> None:
    """Requests beyond the share are copied; the copies stay until the collected work is done."""
    world, server, client, _ = working(each_ms=0)
    clock = server.dependencies.clock
    collected: list[tuple[ResponseSlot, memoryview]] = []
    joint: list[int] = []

    def finish() -> None:
        joint.append(len(collected))
        for slot, view in collected:
            server.requests.append(bytes(view))
            slot.complete([frame(bytes(view))])
            view.release()
        collected.clear()

    def collect(connection: Connection, view: memoryview) -> None:
        assert isinstance(clock, WorkingClock)
        clock.worked_ms += 0.5
        if connection.is_pipelined:
            collected.append((connection.reserve(), view[:]))
            connection.collected = finish
        else:
            server.echo(connection, view)

    server.handle = collect
    requests = [produce(b"%d" % number) for number in range(40)]
    client.stream.write([b"".join(requests)])
    assert world.run_until(lambda: len(client.data) == len(b"".join(requests)))
    assert client.data == b"".join(requests)
    # A few pieces of joint work, instead of one for each request.
    assert sum(joint) > 20
    assert len(joint) < 20
    assert max(joint) > 3


def test_requests_of_one_read_have_their_own_queue_time() -> None:
    """It starts when the request was received completely, also if a later turn handles it."""
    world, server, client, _ = working(each_ms=1)
    work, queued = server.handle, []

    def noting(connection: Connection, view: memoryview) -> None:
        queued.append(connection.queued_ms)
        work(connection, view)

    server.handle = noting
    client.stream.write([b"".join(frame(b"%d" % number) for number in range(8))])
    assert world.run_until(lambda: len(queued) == 8)
    # In this world six of them come in one read, and the others in the next.
    assert queued[:6] == pytest.approx(range(6))
    world.run_for(1_000)
    client.stream.write([frame(b"alone")])
    assert world.run_until(lambda: len(queued) == 9)
    assert queued[-1] == 0.0


def test_requests_that_wait_for_others_have_that_queue_time() -> None:
    # With this seed all three come in one read.
    world, server, client = connected(7, ConnectionLimits(in_flight_max=2))
    queued: list[float] = []

    def noting(connection: Connection, view: memoryview) -> None:
        queued.append(connection.queued_ms)
        server.park(connection, view)

    server.handle = noting
    client.stream.write([b"".join(map(produce, (b"1", b"2", b"3")))])
    assert world.run_until(lambda: len(server.slots) == 2)
    world.run_for(100)
    for slot in server.slots[:2]:
        slot.complete([frame(b"ok")])
    assert world.run_until(lambda: len(server.slots) == 3)
    assert queued[0] == queued[1] == 0.0
    assert queued[2] >= 100


def test_a_long_request_has_one_turn_to_itself() -> None:
    world, server, client, order = working(each_ms=1000)
    client.stream.write([b"".join(frame(b"%d" % number) for number in range(5))])
    assert world.run_until(lambda: len(server.requests) == 5)
    assert in_a_row(order) == 1


def test_other_connections_are_served_between_the_requests_of_one_read() -> None:
    world, server, client, _ = working(each_ms=1)
    other = Recorder()
    world.host("o").runtime.sockets.connect("s", server.port, other, pytest.fail, 1000)
    assert world.run_until(lambda: other.stream is not None)
    client.stream.write([b"".join(frame(b"flood") for _ in range(200))])
    assert world.run_until(lambda: len(server.requests) >= 3)
    # Answers leave before all requests are handled.
    assert len(server.requests) < 200
    other.stream.write([frame(b"polite")])
    assert world.run_until(lambda: b"polite" in server.requests)
    assert world.run_until(lambda: len(server.requests) == 201)


def test_requests_wait_for_an_earlier_request_of_their_connection() -> None:
    world, server, client = connected(1)

    def begin(connection: Connection, view: memoryview) -> None:
        server.park(connection, view)
        if bytes(view).endswith(b"long"):
            connection.begin_work()

    server.handle = begin
    client.stream.write([b"".join(map(produce, (b"long", b"next", b"last")))])
    world.run_for(100)
    assert len(server.requests) == 1
    server.slots[0].complete([frame(b"L")])
    server.connections[0].end_work()
    assert world.run_until(lambda: len(server.requests) == 3)


def test_large_pending_requests_pause_reading() -> None:
    limits = ConnectionLimits(waiting_bytes_max=1_000_000)
    world, server, client = connected(3, limits)
    for number in range(6):
        client.stream.write([produce(bytes([number]) * 400_000)])
    world.run_for(1000)
    assert len(server.slots) == 3
    assert server.connections[0].statistics().paused
    for index in range(6):
        assert world.run_until(lambda index=index: len(server.slots) > index)
        server.slots[index].complete([frame(b"ok")])
    assert world.run_until(lambda: len(client.data) == 6 * 6)
    assert [request[2] for request in server.requests] == list(range(6))
    assert not server.connections[0].statistics().paused


def test_a_single_large_request_is_accepted_at_any_size() -> None:
    world, server, client = connected(3, ConnectionLimits(waiting_bytes_max=100_000))
    client.stream.write([frame(bytes(400_000)), frame(b"2")])
    assert world.run_until(lambda: len(server.slots) == 1)
    world.run_for(1000)
    assert len(server.slots) == 1
    server.slots[0].complete([frame(b"ok")])
    assert world.run_until(lambda: len(server.slots) == 2)
