"""The contract of all networks: real and simulated, with and without TLS."""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from barnabas.runtime import loop, loop_sockets
from barnabas.runtime.disk import File, FileSlice
from barnabas.runtime.loop_stream import RECEIVE_MAX_BYTES, LoopStream
from barnabas.runtime.sockets import USUAL_OPTIONS, ListenOptions, Stream
from barnabas.runtime.stepper import LoopStepper
from barnabas.runtime.transport_stream import TransportStream
from unit.runtime.streams import LIMIT_MS, Place, Recorder, real_place, sim_place, tls_place

# The usual loop and stream, asyncio's own loop, and the stream of Windows.
REAL = ("real", "asyncio", "transport")
KINDS = (*REAL, "sim 1", "sim 2")


@pytest.fixture(params=[*KINDS, *(f"tls {kind}" for kind in KINDS)])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    kind = request.param.removeprefix("tls ")
    if kind in ("asyncio", "transport"):
        monkeypatch.setattr(loop, "_uvloop", None)
    if kind == "transport":
        monkeypatch.setattr(loop_sockets, "_STREAM", TransportStream)
    stepper = LoopStepper() if kind in REAL else None
    place = sim_place(int(kind[-1])) if stepper is None else real_place(stepper)
    yield tls_place(place) if request.param.startswith("tls") else place
    if stepper is not None:
        stepper.close()


class Collector(Recorder):
    """Receives a number of bytes, and after the first ones only the rest."""

    def __init__(self, wanted_bytes: int) -> None:
        super().__init__()
        self.wanted_bytes = wanted_bytes

    def on_received(self, count: int) -> None:
        super().on_received(count)
        assert self.stream is not None
        self.stream.receive_at_least(self.wanted_bytes - len(self.data))


class Paused(Recorder):
    """Stops reading as soon as it is connected."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def on_connected(self, stream: Stream) -> None:
        super().on_connected(stream)
        stream.pause_reading()

    def on_received(self, count: int) -> None:
        super().on_received(count)
        self.reads += 1


class Pair:
    """Both ends of one connection."""

    def __init__(
        self,
        place: Place,
        new_server: Callable[[], Recorder] = Recorder,
        options: ListenOptions = USUAL_OPTIONS,
    ) -> None:
        accepted: list[Recorder] = []

        def accept() -> Recorder:
            accepted.append(new_server())
            return accepted[-1]

        self.listening = place.runtime.sockets.listen("127.0.0.1", 0, accept, options)
        self.client = Recorder()
        place.runtime.sockets.connect(
            "127.0.0.1", self.listening.port, self.client, lambda e: pytest.fail(str(e)), LIMIT_MS
        )
        place.until(lambda: self.client.stream is not None and bool(accepted))
        self.server = accepted[0]
        place.until(lambda: self.server.stream is not None)

    @property
    def near(self) -> Stream:
        assert self.client.stream is not None
        return self.client.stream

    @property
    def far(self) -> Stream:
        assert self.server.stream is not None
        return self.server.stream


def file_of(place: Place, tmp_path: Path, data: bytes) -> File:
    place.runtime.disk.make_directory(str(tmp_path))
    file = place.runtime.disk.open(f"{tmp_path}/f")
    file.append(data)
    return file


def test_a_listener_has_a_port_immediately(place: Place) -> None:
    listening = place.runtime.sockets.listen("127.0.0.1", 0, Recorder)
    assert listening.port > 0
    listening.close()


def test_a_taken_port_is_an_error(place: Place) -> None:
    listening = place.runtime.sockets.listen("127.0.0.1", 0, Recorder)
    with pytest.raises(OSError, match="in use"):
        place.runtime.sockets.listen("127.0.0.1", listening.port, Recorder)
    listening.close()


def test_both_ends_know_both_addresses(place: Place) -> None:
    pair = Pair(place)
    assert pair.near.peer == pair.far.local
    assert pair.near.local == pair.far.peer
    assert pair.near.peer.endswith(f":{pair.listening.port}")


def test_bytes_arrive_in_order_both_ways(place: Place) -> None:
    pair = Pair(place)
    pair.near.write([b"a", bytearray(b"b")])
    pair.near.write([memoryview(b"c")])
    pair.far.write([b"d"])
    place.until(lambda: pair.server.data == b"abc" and pair.client.data == b"d")


def test_file_slices_keep_their_place_among_bytes(place: Place, tmp_path: Path) -> None:
    pair = Pair(place)
    content = bytes(range(256)) * 20_000
    file = file_of(place, tmp_path, content)
    pair.near.write([b"head", FileSlice(file, 0, len(content)), b"tail", FileSlice(file, 1, 3)])
    pair.near.write([b"more", FileSlice(file, 100, 20_000)])
    expected = b"head" + content + b"tail" + content[1:4] + b"more" + content[100:20_100]
    place.until(lambda: len(pair.server.data) == len(expected))
    assert pair.server.data == expected
    assert pair.near.buffered_bytes == 0


def test_small_slices_arrive_in_order_if_a_part_of_them_waits(place: Place, tmp_path: Path) -> None:
    pair = Pair(place)
    content = bytes(range(256)) * 40_000
    file = file_of(place, tmp_path, content)
    pair.far.pause_reading()
    place.settle()
    starts = range(0, len(content), 10_240)
    assert not pair.near.write([FileSlice(file, start, 10_240) for start in starts])
    assert pair.near.buffered_bytes > 0
    pair.near.write([b"behind"])
    pair.far.resume_reading()
    place.until(lambda: len(pair.server.data) == len(content) + 6)
    assert pair.server.data == content + b"behind"
    assert pair.near.buffered_bytes == 0


@pytest.mark.parametrize("size", [100, 100_000])
def test_a_truncated_slice_closes_the_connection(place: Place, tmp_path: Path, size: int) -> None:
    pair = Pair(place)
    file = file_of(place, tmp_path, bytes(size))
    file.truncate(size // 2)
    pair.near.write([b"head", FileSlice(file, 0, size)])
    place.until(lambda: pair.client.closed and pair.server.closed)
    assert isinstance(pair.client.error, OSError)


def test_close_sends_the_buffered_output(place: Place) -> None:
    pair = Pair(place)
    data = bytes(8_000_000)
    pair.near.write([data, b"end"])
    assert pair.near.buffered_bytes > 0
    pair.near.close()
    assert pair.near.is_closing
    pair.near.write([b"late"])
    place.until(lambda: pair.server.closed and pair.client.closed)
    assert pair.server.data == data + b"end"
    assert (pair.server.error, pair.client.error) == (None, None)


def test_the_address_of_the_peer_is_known_at_the_end(place: Place) -> None:
    pair = Pair(place)
    address = pair.far.peer
    pair.near.abort()
    place.until(lambda: pair.server.closed)
    assert pair.server.peer_at_end == address


def test_abort_ends_both_sides(place: Place) -> None:
    pair = Pair(place)
    pair.near.write([bytes(8_000_000)])
    pair.near.abort()
    place.until(lambda: pair.server.closed and pair.client.closed)
    assert len(pair.server.data) < 8_000_000


def test_a_peer_that_does_not_read_causes_backpressure_until_it_reads(place: Place) -> None:
    pair = Pair(place)
    pair.far.pause_reading()
    place.settle()
    pair.near.write([bytes(10_000_000)])
    assert pair.client.writable == [False]
    place.settle()
    assert len(pair.server.data) < 10_000_000
    pair.far.resume_reading()
    place.until(lambda: len(pair.server.data) == 10_000_000)
    place.until(lambda: pair.client.writable == [False, True])


def test_a_closed_peer_is_detected_while_reading_is_paused(place: Place) -> None:
    pair = Pair(place)
    pair.far.pause_reading()
    pair.near.write([b"unread"])
    place.settle()
    assert not pair.far.has_peer_ended
    pair.near.close()
    place.until(lambda: pair.far.has_peer_ended)


def test_a_stream_that_is_paused_from_the_start_reads_when_it_is_resumed(place: Place) -> None:
    server, client = Paused(), Recorder()
    sockets = place.runtime.sockets
    listening = sockets.listen("127.0.0.1", 0, lambda: server)
    sockets.connect("127.0.0.1", listening.port, client, lambda e: pytest.fail(str(e)), LIMIT_MS)
    place.until(lambda: server.stream is not None)
    sent = b""
    for number in range(4):
        place.settle()
        # With TLS, there is no connection before the server has read.
        if client.stream is not None:
            client.stream.write([bytes([number]) * 54])
            sent += bytes([number]) * 54
    place.settle()
    # Event loops may read once before the pause applies.
    assert server.reads <= 1
    assert server.stream is not None
    server.stream.resume_reading()
    place.until(lambda: client.stream is not None)
    assert client.stream is not None
    client.stream.write([b"end"])
    place.until(lambda: len(server.data) == len(sent) + 3)
    assert server.data == sent + b"end"


def test_connecting_to_a_closed_port_fails(place: Place) -> None:
    listening = place.runtime.sockets.listen("127.0.0.1", 0, Recorder)
    listening.close()
    place.settle()
    failures: list[OSError] = []
    handler = Recorder()
    place.runtime.sockets.connect("127.0.0.1", listening.port, handler, failures.append, LIMIT_MS)
    place.until(lambda: bool(failures))
    assert isinstance(failures[0], ConnectionRefusedError)
    assert handler.stream is None


def test_a_cancelled_attempt_calls_no_callback(place: Place) -> None:
    listening = place.runtime.sockets.listen("127.0.0.1", 0, Recorder)
    handler = Recorder()
    attempt = place.runtime.sockets.connect(
        "127.0.0.1", listening.port, handler, lambda e: pytest.fail(str(e)), LIMIT_MS
    )
    attempt.cancel()
    place.settle()
    assert handler.stream is None
    assert not handler.closed
    listening.close()


def test_a_connection_attempt_with_timeout_zero_fails(place: Place) -> None:
    listening = place.runtime.sockets.listen("127.0.0.1", 0, Recorder)
    failures: list[OSError] = []
    handler = Recorder()
    place.runtime.sockets.connect("127.0.0.1", listening.port, handler, failures.append, 0)
    place.until(lambda: bool(failures))
    place.settle()
    assert isinstance(failures[0], TimeoutError)
    assert handler.stream is None
    listening.close()


def test_accepted_connections_have_the_buffers_of_their_listener() -> None:
    stepper = LoopStepper()
    place = real_place(stepper)
    accepted: list[Recorder] = []

    def accept() -> Recorder:
        accepted.append(Recorder())
        return accepted[-1]

    options = ListenOptions(backlog=5, send_buffer_bytes=20_000, receive_buffer_bytes=30_000)
    listening = place.runtime.sockets.listen("127.0.0.1", 0, accept, options)
    client = Recorder()
    place.runtime.sockets.connect("127.0.0.1", listening.port, client, lambda _: None, LIMIT_MS)
    place.until(lambda: bool(accepted and accepted[0].stream is not None))
    stream = accepted[0].stream
    assert isinstance(stream, LoopStream)
    assert stream._transport is not None
    end = stream._transport.get_extra_info("socket")
    # Linux doubles the requested size.
    assert end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (20_000, 40_000)
    assert end.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (30_000, 60_000)
    stepper.close()


def test_a_buffer_is_as_large_as_the_kernel_accepts() -> None:
    class Bound:
        """The part of a socket of macOS that sets a buffer."""

        size = 0

        def setsockopt(self, _level: int, _option: int, size: int) -> None:
            if size > 8_000_000:
                raise OSError(errno.ENOBUFS, "no buffer space available")
            self.size = size

    bound = Bound()
    loop_sockets._set_buffer_size(cast("socket.socket", bound), socket.SO_SNDBUF, 100_000_000)
    assert bound.size == 6_250_000


def test_a_response_keeps_the_loop_awake_if_the_listener_wants_it() -> None:
    stepper = LoopStepper()
    place = real_place(stepper)
    pair = Pair(place, options=ListenOptions(busy_poll_us=1_000_000))
    assert isinstance(pair.far, LoopStream)
    poll = pair.far._busy_poll
    assert poll is not None
    pair.near.write([b"request"])
    place.until(lambda: bool(pair.server.data))
    assert not poll._is_polling
    pair.far.write([b"response"])
    place.until(lambda: bool(pair.client.data))
    assert poll._is_polling
    stepper.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux is asked to wait for more bytes")
def test_bytes_are_reported_when_the_wanted_number_has_arrived(place: Place) -> None:
    pair = Pair(place, lambda: Collector(5000))
    for _ in range(8):
        pair.near.write([bytes(500)])
        place.settle()
        assert 0 < len(pair.server.data) <= 500
    pair.near.write([bytes(1500)])
    place.until(lambda: len(pair.server.data) == 5500)
    pair.near.write([b"x"])
    place.until(lambda: len(pair.server.data) == 5501)


def test_fewer_bytes_than_wanted_are_reported_at_the_end(place: Place) -> None:
    pair = Pair(place, lambda: Collector(5000))
    for _ in range(2):
        pair.near.write([bytes(500)])
        place.settle()
    assert not pair.server.closed
    pair.near.close()
    place.until(lambda: pair.server.closed)
    assert len(pair.server.data) == 1000
    assert pair.server.error is None


@pytest.mark.parametrize("piece", [1, 100_000])
@pytest.mark.parametrize("receive_buffer_bytes", [-1, 1, 20_000])
def test_more_bytes_than_the_kernel_holds_may_be_wanted(
    receive_buffer_bytes: int, piece: int
) -> None:
    stepper = LoopStepper()
    place = real_place(stepper)
    options = ListenOptions(receive_buffer_bytes=receive_buffer_bytes)
    pair = Pair(place, lambda: Collector(10_000_000), options)
    pair.near.write([b"x"])
    place.until(lambda: len(pair.server.data) == 1)
    for _ in range(100_000 // piece):
        pair.near.write([bytes(piece)])
    place.until(lambda: len(pair.server.data) > RECEIVE_MAX_BYTES)
    stepper.close()


def test_a_write_returns_whether_all_of_it_was_sent(place: Place) -> None:
    pair = Pair(place)
    buffered: list[int] = []
    assert pair.near.write([b"small"])
    pair.near.watch_output(lambda: buffered.append(pair.near.buffered_bytes))
    pair.far.pause_reading()
    place.settle()
    assert not pair.near.write([bytes(10_000_000)])
    assert not pair.near.write([b"behind it"])
    pair.near.watch_output(lambda: buffered.append(pair.near.buffered_bytes))
    place.settle()
    assert 0 not in buffered
    pair.far.resume_reading()
    place.until(lambda: 0 in buffered)
    assert buffered == sorted(buffered, reverse=True)
    count = len(buffered)
    assert pair.near.write([b"small"])
    place.until(lambda: pair.server.data.endswith(b"it" + b"small"))
    assert len(buffered) == count
