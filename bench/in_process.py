"""`python -m bench.in_process`: processor time of a request in the broker, without a network.

A broker and its client share this process. The bytes of a request are put into the receive buffer,
and the response is written to /dev/null. Everything between is the broker's own code: frames,
dispatch, handler, log and encoding. The log's directory should be in memory (`--directory`).

The smallest sample is a loop with warm caches. Use it to compare interpreters or forms of the same
code, in alternating runs. In a real broker a request costs about twice as much.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import statistics
import tempfile
import time
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from barnabas.protocol.codec import encode_request
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from barnabas.record.builder import BatchBuilder
from barnabas.runtime.loop import ProcessControl, Runtime, run
from barnabas.runtime.loop_stream import LoopStream
from barnabas.server.configs.configuration import read_configuration
from barnabas.server.process.node import Node
from bench.flame import TOPIC, fetch_request
from bench.loads import produce_request
from bench.report import machine

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.sockets import StreamHandler

REQUESTS = 20
PARTITIONS = 4
RECORDS = 16
WARM_UP = 300
# Time (ms) in which the partition gets its leader.
CREATED_MS = 1_000.0


class FakeSocket:
    """The transport and the socket of a connection that writes to `descriptor`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def fileno(self) -> int:
        """Return the descriptor that the stream writes to."""
        return self._descriptor

    def get_extra_info(self, name: str) -> Any:
        """Return this object as the socket, else an address."""
        return self if name == "socket" else ("127.0.0.1", 9)

    def close(self) -> None:
        """Do nothing: the descriptor outlives the stream."""

    abort = pause_reading = resume_reading = close


class FakeSockets:
    """Sockets of a node; `factory` creates the handler of a connection to its listener."""

    host, port = "127.0.0.1", 9
    factory: Callable[[], StreamHandler]

    def listen(self, _host: str, _port: int, factory: Any, _options: Any = None) -> FakeSockets:
        """Store the factory of the listener."""
        self.factory = factory
        return self

    def close(self) -> None:
        """Do nothing: no socket is open."""


class Client:
    """A connection whose requests are served during `send`."""

    def __init__(self, sockets: FakeSockets, output: int) -> None:
        transport: Any = FakeSocket(output)
        self._stream = LoopStream(asyncio.get_running_loop(), sockets.factory())
        self._stream.connection_made(transport)

    def send(self, request: bytes) -> None:
        """Receive the bytes as the transport does."""
        size = len(request)
        self._stream.get_buffer(-1)[:size] = request
        self._stream.buffer_updated(size)

    def sample(self, request: bytes) -> float:
        """Return the processor time of a request in µs, the mean of some."""
        started = time.thread_time_ns()
        for _ in range(REQUESTS):
            self.send(request)
        return (time.thread_time_ns() - started) / REQUESTS / 1e3


def create_topic_request() -> bytes:
    """Return the request that creates the topic."""
    topic = CreatableTopic(
        name=TOPIC, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[]
    )
    chunks = encode_request(1, "bench", CreateTopicsRequest(topics=[topic]), 5)
    return b"".join(bytes(chunk) for chunk in chunks)


def wide_produce_request() -> bytes:
    """Return a Produce v9 request with a batch of several records for each partition."""
    builder = BatchBuilder()
    for _ in range(RECORDS):
        builder.append(int(time.time() * 1000), None, os.urandom(100))
    records = bytes(builder.build())
    data = [PartitionProduceData(index=index, records=records) for index in range(PARTITIONS)]
    topics = [TopicProduceData(name=TOPIC, partition_data=data)]
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics)
    return b"".join(bytes(chunk) for chunk in encode_request(1, "bench", request, 9))


def measure(client: Client, samples: int) -> None:
    """Print the processor time of each kind of request."""
    print(machine())
    requests = {
        "Produce": produce_request(TOPIC),
        "Fetch": fetch_request(),
        f"Produce to {PARTITIONS} partitions": wide_produce_request(),
    }
    for request in requests.values():
        for _ in range(WARM_UP):
            client.send(request)
    gc.collect()
    gc.freeze()
    for name, request in requests.items():
        found = [client.sample(request) for _ in range(samples)]
        print(f"{name}: {min(found):.1f} µs at least, median {statistics.median(found):.1f} µs")


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=250)
    parser.add_argument("--directory", help="where the log is, for example /dev/shm")
    options = parser.parse_args()
    sockets = FakeSockets()
    output = os.open(os.devnull, os.O_WRONLY)

    def start(runtime: Runtime, control: ProcessControl) -> None:
        def on_ready(_: str) -> None:
            client = Client(sockets, output)
            client.send(create_topic_request())
            runtime.timer.call_later(CREATED_MS, lambda: finish(client))

        def finish(client: Client) -> None:
            measure(client, options.samples)
            control.request_stop()

        parts: Any = {"sockets": sockets}
        settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": directory}
        node = Node(read_configuration(settings), replace(runtime, **parts), on_ready, control.fail)
        node.start()

    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        run(start)
    os.close(output)


if __name__ == "__main__":
    main()
