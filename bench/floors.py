"""The least processor time that a broker can need on a machine: bare loops with the same bytes.

The loop for Produce receives each request, writes it to a file and sends a response of some bytes.
Small requests are received and written together, up to 256 KiB, which a broker does at best.
The loop for Fetch waits for a request, then sends headers and slices of the file by `sendfile`. No
byte is looked at, so the time is that of the kernel and of one Python call per system call. A row
whose floor is high is decided by the kernel: its sockets, its page cache and its file system.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from typing import TYPE_CHECKING, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

FLOOR = "floor"
# Sizes of Fetch responses as librdkafka's defaults ask for them: slices of 1 MiB of 4 partitions.
SLICE_BYTES, SLICES, HEADER_BYTES = 1 << 20, 4, 60
REQUEST_BYTES, RESPONSE_BYTES = 120, 60
# Smaller requests are received together, up to this size.
TOGETHER_BYTES = 256 * 1024
# Bytes that a client has sent and that are not acknowledged, at most.
IN_FLIGHT_BYTES = 4 << 20


class Shape(NamedTuple):
    """What librdkafka sends for a load."""

    # Bytes of a Produce request, and the share of values in them.
    request_bytes: int
    value_share: float

    @property
    def message_bytes(self) -> int:
        """Bytes that are received and written together."""
        return self.request_bytes * max(1, TOGETHER_BYTES // self.request_bytes)


def _receive(connection: socket.socket, view: memoryview) -> bool:
    """Fill a buffer; return whether it was filled."""
    position = 0
    while position < len(view):
        count = connection.recv_into(view[position:])
        if not count:
            return False
        position += count
    return True


def _serve_produce(connection: socket.socket, file: int, message_bytes: int) -> None:
    view, response = memoryview(bytearray(message_bytes)), bytes(RESPONSE_BYTES)
    while _receive(connection, view):
        os.write(file, view)
        connection.sendall(response)


def _serve_fetch(connection: socket.socket, file: int, slices: int) -> None:
    request, header = memoryview(bytearray(REQUEST_BYTES)), bytes(HEADER_BYTES)
    position = 0
    while _receive(connection, request):
        for _ in range(slices):
            connection.sendall(header)
            end = position + SLICE_BYTES
            while position < end:
                position += os.sendfile(connection.fileno(), file, position, end - position)


def _produce(connection: socket.socket, message_bytes: int, count: int) -> None:
    request, response = os.urandom(message_bytes), memoryview(bytearray(RESPONSE_BYTES))
    in_flight_max = max(2, IN_FLIGHT_BYTES // message_bytes)
    for number in range(count + in_flight_max):
        if number < count:
            connection.sendall(request)
        if number >= in_flight_max:
            _receive(connection, response)


def _fetch(connection: socket.socket, slices: int, count: int) -> None:
    request = bytes(REQUEST_BYTES)
    buffer = bytearray(SLICE_BYTES)
    for _ in range(count):
        connection.sendall(request)
        missing = slices * (HEADER_BYTES + SLICE_BYTES)
        while missing:
            missing -= connection.recv_into(buffer, min(missing, SLICE_BYTES), socket.MSG_TRUNC)


def connected_pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    for each in (client, accepted):
        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client, accepted


def _run_server(serve: Callable[[], None], report: int) -> NoReturn:
    status = 1
    try:
        before = time.process_time()
        serve()
        os.write(report, str(time.process_time() - before).encode())
        status = 0
    finally:
        os._exit(status)


def _cpu_seconds(
    serve: Callable[[socket.socket], None], use: Callable[[socket.socket], None]
) -> float:
    """Return the processor time of a bare server, in a process of its own, for one client."""
    client, accepted = connected_pair()
    source, sink = os.pipe()
    pid = os.fork()
    if pid == 0:
        client.close()
        _run_server(lambda: serve(accepted), sink)
    accepted.close()
    os.close(sink)
    with client:
        use(client)
    with os.fdopen(source, "rb") as report:
        text = report.read()
    os.waitpid(pid, 0)
    if not text:
        raise SystemExit("the bare loop has failed")
    return float(text)


def produce_and_consume(shape: Shape, total: int) -> tuple[float, float]:
    """Return the processor seconds of bare loops per GB of values, produced and consumed.

    Args:
        shape: the requests.
        total: bytes of values.
    """
    size = shape.message_bytes
    with tempfile.TemporaryFile() as log:
        file = log.fileno()
        count = max(1, round(total / shape.value_share / size))
        produced = _cpu_seconds(
            lambda connection: _serve_produce(connection, file, size),
            lambda connection: _produce(connection, size, count),
        )
        written = count * size
        slices = max(1, min(SLICES, written // SLICE_BYTES))
        responses = max(1, written // (slices * SLICE_BYTES))
        os.ftruncate(file, max(written, responses * slices * SLICE_BYTES))
        consumed = _cpu_seconds(
            lambda connection: _serve_fetch(connection, file, slices),
            lambda connection: _fetch(connection, slices, responses),
        )
    sent_values = responses * slices * SLICE_BYTES * shape.value_share
    return produced * 1e9 / (written * shape.value_share), consumed * 1e9 / sent_values
