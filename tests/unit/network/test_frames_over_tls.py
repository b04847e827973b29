"""Frames over TLS: the stream waits for the missing bytes of a frame, and never too long."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator

import pytest

from barnabas.network.connection import Connection
from barnabas.network.connection_limits import ConnectionDependencies, ConnectionLimits
from barnabas.network.framed_protocol import new_receive_buffer
from barnabas.network.request_order import ResponseSlot
from barnabas.runtime.stepper import LoopStepper
from unit.runtime.streams import LIMIT_MS, Place, Recorder, real_place, sim_place, tls_place


class Counted(Connection):
    """Counts the calls of its stream, and responds to each request with its size."""

    __slots__ = ("reads",)

    def __init__(self, place: Place, buffer_bytes: int) -> None:
        runtime = place.runtime
        dependencies = ConnectionDependencies(
            runtime.clock, runtime.timer, new_receive_buffer(buffer_bytes)
        )
        super().__init__(
            1,
            dependencies,
            ConnectionLimits(),
            lambda _, frame: self.reserve().complete([struct.pack(">i", len(frame))]),
            lambda _, error: None,
        )
        self.reads = 0

    def on_received(self, count: int) -> None:
        self.reads += 1
        super().on_received(count)


class Pair:
    """A server connection, and a client that sends bytes to it, each piece in a record."""

    def __init__(self, place: Place, buffer_bytes: int = 1 << 19) -> None:
        self.place = place
        self.server = Counted(place, buffer_bytes)
        self.client = Recorder()
        sockets = place.runtime.sockets
        port = sockets.listen("127.0.0.1", 0, lambda: self.server).port
        sockets.connect(
            "127.0.0.1", port, self.client, lambda error: pytest.fail(str(error)), LIMIT_MS
        )
        place.until(lambda: self.client.stream is not None and self.server.is_open)

    def send(self, data: bytes, piece: int) -> None:
        assert self.client.stream is not None
        for start in range(0, len(data), piece):
            self.client.stream.write([data[start : start + piece]])


@pytest.fixture
def real() -> Iterator[Place]:
    stepper = LoopStepper()
    yield tls_place(real_place(stepper))
    stepper.close()


def frame(size: int) -> bytes:
    return struct.pack(">i", size) + bytes(size)


@pytest.mark.parametrize("piece", [9, 1000, 16_384, 1_000_000])
@pytest.mark.parametrize("seed", range(6))
def test_frames_arrive_complete_whatever_the_records_and_reads(seed: int, piece: int) -> None:
    pair = Pair(tls_place(sim_place(seed)), 4096 if seed % 2 else 1 << 19)
    sizes = [number * number % 9001 for number in range(60)]
    sizes += [50_000, 300_000, 5] if piece > 9 else []
    pair.send(b"".join(map(frame, sizes)), piece)
    pair.place.until(lambda: len(pair.client.data) == 4 * len(sizes))
    assert [size for (size,) in struct.iter_unpack(">i", pair.client.data)] == sizes


@pytest.mark.skipif(sys.platform != "linux", reason="only its kernel waits for so many bytes")
@pytest.mark.parametrize(("size", "reads_max"), [(16_000, 4), (60_000, 8)])
def test_a_frame_of_many_records_is_read_in_few_calls(
    real: Place, size: int, reads_max: int
) -> None:
    pair = Pair(real)
    data = frame(size)
    for start in range(0, len(data), 1000):
        pair.send(data[start : start + 1000], 1000)
        real.run_until(lambda: False, 1.0)
    real.until(lambda: len(pair.client.data) == 4)
    assert 2 <= pair.server.reads <= reads_max


@pytest.mark.parametrize("piece", [100, 16_384])
@pytest.mark.parametrize("seed", range(4))
def test_a_request_behind_a_waiting_one_is_processed_after_its_response(
    seed: int, piece: int
) -> None:
    """Paused connections leave bytes in the kernel, in OpenSSL, and in deferred requests."""
    pair = Pair(tls_place(sim_place(seed)), 1 << 15)
    slots: list[ResponseSlot] = []
    pair.server.on_request = lambda connection, _: slots.append(connection.reserve())
    sizes = [10, 3_000, 3_000, 100_000, 10, 10]
    # The API key is that of no group.
    pair.send(b"".join(struct.pack(">i", size) + b"\xff" * size for size in sizes), piece)
    for number in range(len(sizes)):
        pair.place.until(lambda number=number: len(slots) > number)
        assert len(slots) == number + 1
        slots[-1].complete([b"done"])
    pair.place.until(lambda: len(pair.client.data) == 4 * len(sizes))
