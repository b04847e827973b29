"""Handshakes are bounded: stalled and forged handshakes only lose their connection."""

from __future__ import annotations

import ssl

import pytest

from barnabas.runtime.loop import Runtime
from barnabas.runtime.sockets import Stream
from barnabas.runtime.stepper import LoopStepper
from barnabas.runtime.tls.contexts import TlsContext, client_context, server_context
from barnabas.runtime.tls.handshakes import Handshake, HandshakeLimits, Handshakes
from barnabas.runtime.tls.tls_session import TlsSession
from barnabas.runtime.tls.tls_sockets import TlsSockets
from barnabas.runtime.tls.tls_stream import TlsDependencies
from barnabas.sim.world import SimWorld
from unit.runtime.streams import LIMIT_MS, Place, Recorder, real_place
from unit.runtime.tls.handshaking import client_options, server_options

LIMITS = HandshakeLimits(started_max=10, time_limit_ms=5_000.0, started_ms_min=500.0)


class Server:
    """A TLS listener, and plain and encrypted connections to it."""

    def __init__(self, place: Place, limits: HandshakeLimits = LIMITS) -> None:
        runtime = place.runtime
        self.place = place
        self.runtime: Runtime = runtime
        self.handshakes = Handshakes(runtime.clock, runtime.timer, runtime.executor, limits)
        self.server_context = server_context(server_options())
        client = client_context(client_options())
        self.sockets = TlsSockets(
            runtime.sockets,
            TlsDependencies(runtime.timer, self.handshakes),
            lambda: self.server_context,
            lambda: client,
        )
        self.accepted: list[Recorder] = []
        self.listening = self.sockets.listen("127.0.0.1", 0, self._accept)
        self.failures: list[OSError] = []

    def _accept(self) -> Recorder:
        self.accepted.append(Recorder(4096))
        return self.accepted[-1]

    def connect_plain(self) -> Recorder:
        """A client that sends the bytes that the test writes."""
        client = Recorder(4096)
        self.runtime.sockets.connect(
            "127.0.0.1", self.listening.port, client, self.failures.append, LIMIT_MS
        )
        self.place.until(lambda: client.stream is not None)
        return client

    def connect(self) -> Recorder:
        """A client with TLS, which may not be connected yet."""
        client = Recorder()
        self.sockets.connect(
            "127.0.0.1", self.listening.port, client, self.failures.append, LIMIT_MS
        )
        return client


def hello() -> bytes:
    """The first message of a client."""
    session = TlsSession(client_context(client_options()), "localhost")
    assert not session.step()
    return session.take_output()


def stream_of(recorder: Recorder) -> Stream:
    assert recorder.stream is not None
    return recorder.stream


@pytest.fixture
def server() -> Server:
    world = SimWorld(1)
    return Server(Place(world.host("a").runtime, world.run_until))


def test_a_silent_connection_uses_no_place_and_is_closed(server: Server) -> None:
    client = server.connect_plain()
    server.place.settle()
    assert server.handshakes.statistics().started == 0
    start_ms = server.runtime.clock.monotonic_ms()
    server.place.until(lambda: client.closed)
    assert server.runtime.clock.monotonic_ms() - start_ms == pytest.approx(5_000, abs=100)
    assert "in time" in str(server.accepted[0].error)


def test_a_client_that_stops_in_the_middle_loses_its_connection(server: Server) -> None:
    client = server.connect_plain()
    stream_of(client).write([hello()])
    server.place.until(lambda: bool(client.data))
    assert server.handshakes.statistics().started == 1
    server.place.until(lambda: client.closed)
    assert server.handshakes.statistics().started == 0


def test_time_before_admission_is_not_counted(server: Server) -> None:
    client = server.connect_plain()
    server.place.until(lambda: bool(server.accepted and server.accepted[0].stream))
    muted = stream_of(server.accepted[0])
    muted.pause_reading()
    server.place.run_until(lambda: client.closed, 60_000)
    assert not client.closed
    muted.resume_reading()
    server.place.until(lambda: client.closed)


def test_more_handshakes_than_places_are_queued_with_their_first_bytes(server: Server) -> None:
    first = hello()
    clients = [server.connect_plain() for _ in range(50)]
    for client in clients:
        stream_of(client).write([first])
    server.place.settle()
    found = server.handshakes.statistics()
    assert (found.started, found.queued) == (10, 40)


def test_a_good_client_connects_despite_stalled_handshakes(server: Server) -> None:
    first = hello()
    for _ in range(100):
        stream_of(server.connect_plain()).write([first])
    server.place.settle()
    client = server.connect()
    start_ms = server.runtime.clock.monotonic_ms()
    server.place.until(lambda: client.stream is not None)
    # Ten places are freed each 500 ms.
    assert server.runtime.clock.monotonic_ms() - start_ms < 7_000
    stream_of(client).write([b"hello"])
    server.place.until(lambda: any(each.data == b"hello" for each in server.accepted))


def test_stalled_handshakes_keep_their_places_while_the_queue_is_empty(server: Server) -> None:
    clients = [server.connect_plain() for _ in range(10)]
    for client in clients:
        stream_of(client).write([hello()])
    server.place.run_until(lambda: False, 4_000)
    assert not any(client.closed for client in clients)


def test_a_client_that_disconnects_frees_its_place(server: Server) -> None:
    clients = [server.connect_plain() for _ in range(20)]
    for client in clients:
        stream_of(client).write([hello()])
    server.place.settle()
    for client in clients:
        stream_of(client).abort()
    server.place.until(lambda: server.handshakes.statistics().queued == 0)
    server.place.until(lambda: server.handshakes.statistics().started == 0)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\0\0\0\x20\0\x12\0\3", "security.protocol=PLAINTEXT"),
        (b"GET / HTTP/1.1\r\n\r\n", "speaks HTTP"),
        (b"\xff" * 100, "does not speak TLS"),
        (b"\x16\x03\x01\xff\xff" + b"\0" * 3000, ""),
        (b"\x16\x03\x01\x00\x10" + b"\xff" * 16, ""),
    ],
)
def test_a_forged_start_ends_the_connection_with_a_reason(
    server: Server, data: bytes, reason: str
) -> None:
    client = server.connect_plain()
    stream_of(client).write([data])
    server.place.until(lambda: client.closed and server.accepted[0].closed)
    assert reason in str(server.accepted[0].error)
    # The beginning of a TLS alert: the client learns that the listener wants TLS.
    assert client.data[:2] == b"\x15\x03"
    assert server.handshakes.statistics().started == 0


def test_garbage_in_the_middle_ends_the_connection(server: Server) -> None:
    client = server.connect_plain()
    stream_of(client).write([hello()])
    server.place.until(lambda: bool(client.data))
    stream_of(client).write([b"\x16\x03\x03\x00\x20" + b"\xee" * 32])
    server.place.until(lambda: client.closed)
    assert server.accepted[0].error is not None


def test_a_context_that_fails_ends_all_queued_connections(server: Server) -> None:
    broken = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    clients = [server.connect_plain() for _ in range(200)]
    server.server_context = TlsContext(broken)
    for client in clients:
        stream_of(client).write([hello()])
    server.place.until(lambda: all(client.closed for client in clients))


def test_few_computations_run_at_the_same_time(server: Server) -> None:
    clients = [server.connect_plain() for _ in range(10)]
    for client in clients:
        stream_of(client).write([hello()])
    running: list[int] = []

    def all_answered() -> bool:
        running.append(server.handshakes.statistics().running)
        return all(client.data for client in clients)

    server.place.until(all_answered)
    assert max(running) == 2


@pytest.mark.slow
def test_ten_thousand_half_done_handshakes_take_bounded_memory() -> None:
    """The clients here are handshakes without streams, because of the limit on descriptors."""
    stepper = LoopStepper()
    place = real_place(stepper)
    limits = HandshakeLimits(started_max=200, started_ms_min=100.0)
    server = Server(place, limits)
    first = memoryview(hello())

    class Owner:
        def __init__(self) -> None:
            self.failed = False

        def read_for_handshake(self, wanted: bool) -> None: ...
        def send_for_handshake(self, data: bytes) -> None: ...
        def on_handshake_done(self, session: TlsSession) -> None: ...
        def on_handshake_failed(self, error: Exception) -> None:
            self.failed = True

    owners = [Owner() for _ in range(10_000)]
    for owner in owners:
        handshake = Handshake(
            owner,
            server.handshakes,
            lambda: TlsSession(server.server_context, None),
            is_outgoing=False,
        )
        handshake.expect()
        handshake.receive(first)
    most = 0

    def watch() -> bool:
        nonlocal most
        most = max(most, server.handshakes.statistics().started)
        return client.stream is not None

    client = server.connect()
    place.until(watch)
    assert most <= 200
    assert sum(owner.failed for owner in owners) >= 9_700
    stepper.close()
