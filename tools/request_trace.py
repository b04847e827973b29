"""Traces the functions that a real broker calls for a request, for `tools.document_requests`.

Broker and client share this process and its event loop. The client sends the bytes of a request on
a socket. While the broker serves it, the profile hook of the interpreter reports each call. The
client's own code is outside `src/barnabas` and therefore not in the trace.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import barnabas
from barnabas.protocol.codec import decode_response, encode_request
from barnabas.runtime.loop import ProcessControl, Runtime, run
from barnabas.server.configs.configuration import read_configuration
from barnabas.server.process.node import Node

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import FrameType

    from barnabas.protocol.schema import Message

SOURCES = Path(barnabas.__file__).parent
_PREFIX = f"{SOURCES}/"
# Requests that are traced. A timer of the broker can interrupt one of them, but not most.
SAMPLES = 9
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    # New members do not wait for others.
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    # Fewer timers interrupt the requests.
    "metadata.max.idle.interval.ms": "600000",
    "log.retention.check.interval.ms": "600000",
}


class Step(NamedTuple):
    """The first call into a file."""

    file: str
    function: str
    # Whether the client has the response already.
    is_after: bool


class Trace:
    """Records the first call into each source file of the broker during one request."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._files: set[str] = set()
        self.steps: list[Step] = []

    def on_event(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Record a call. The interpreter calls this method."""
        code = frame.f_code
        name = code.co_filename
        if event != "call" or name in self._files or not name.startswith(_PREFIX):
            return
        self._files.add(name)
        function = code.co_qualname.partition(".<locals>")[0]
        self.steps.append(Step(name.removeprefix(_PREFIX), function, self._has_response()))

    def _has_response(self) -> bool:
        try:
            return bool(self._connection.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return False


class Client:
    """A connection to the broker on the running loop."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setblocking(False)
        # Steps of the last request.
        self.steps: list[Step] = []

    async def send(self, request: Message, version: int) -> Any:
        """Send a request with this version, trace it, and return the response."""
        chunks: list[Any] = encode_request(1, "map", request, version)
        frame = b"".join(chunks)
        loop, trace = asyncio.get_running_loop(), Trace(self._socket)
        sys.setprofile(trace.on_event)
        try:
            await loop.sock_sendall(self._socket, frame)
            received = await loop.sock_recv(self._socket, 1 << 20)
        finally:
            sys.setprofile(None)
        while len(received) < 4 + int.from_bytes(received[:4]):
            received += await loop.sock_recv(self._socket, 1 << 20)
        self.steps = trace.steps
        return decode_response(type(request), version, received[4:])[1]

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


async def usual_steps(client: Client, send: Callable[[], Awaitable[None]]) -> list[Step]:
    """Call `send` repeatedly, and return the steps that most of its last requests have."""
    await send()
    samples = []
    for _ in range(SAMPLES):
        await send()
        samples.append(client.steps)
    return most_frequent(samples)


def most_frequent(samples: list[list[Step]]) -> list[Step]:
    """Return the most frequent order of the files that most samples contain."""
    counts = Counter(step.file for steps in samples for step in steps)
    usual = {file for file, count in counts.items() if count > len(samples) / 2}
    orders = Counter(tuple(step for step in steps if step.file in usual) for steps in samples)
    return list(orders.most_common(1)[0][0])


def with_broker(main: Callable[[Client], Awaitable[None]]) -> None:
    """Run a broker in this process, and `main` as its client on the same loop."""

    def start(runtime: Runtime, control: ProcessControl) -> None:
        async def serve(address: str) -> None:
            # It measures a turn only now and then.
            runtime.watch.end()
            client = Client(address)
            try:
                await main(client)
            except BaseException as error:
                control.fail(error)
                raise
            finally:
                client.close()
            node.stop(control.finish)

        tasks: list[asyncio.Task[None]] = []

        def on_ready(address: str) -> None:
            tasks.append(asyncio.get_running_loop().create_task(serve(address)))

        node = Node(read_configuration(settings), runtime, on_ready, control.fail)
        node.start()

    # In memory, no sync takes so long that timers interrupt most requests.
    folder = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="request-map-", dir=folder) as directory:
        settings = {**SETTINGS, "log.dirs": directory}
        run(start)
