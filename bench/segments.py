"""`python -m bench.segments`: reads of a partition with 20, 200 and 2,000 segments.

The requests are Fetch at a random old offset (one batch of 8 KiB) with both isolation levels, and
ListOffsets by a random time. The table has the median round trip and the broker's processor time of
each, the first request after a start, the time of a start, and the number of open files.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from barnabas.client.facade import Client
from barnabas.protocol.codec import decode_response, encode_request
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.schema import Message
from barnabas.record.builder import BatchBuilder
from barnabas.testing.broker_process import BrokerProcess
from bench.brokers import compile_sources
from bench.report import machine

TOPIC = "segments"
COUNTS = (20, 200, 2_000)
BATCHES = 16
RECORDS = 8
OFFSETS_PER_SEGMENT = BATCHES * RECORDS
FIRST_MS = 1_600_000_000_000
# Time between segments. segment.ms is far below it, but above the time between batches.
SEGMENT_MS = 1_000_000
BATCH_MS = 10
IN_FLIGHT = 100
READS = 1_500

# By measured operation, one value for each number of segments.
Figures = dict[str, list[str]]


class Connection:
    """A plain socket, with one or more requests in flight."""

    def __init__(self, process: BrokerProcess) -> None:
        self._socket = socket.create_connection((process.host, process.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._responses = self._socket.makefile("rb")

    def send(self, request: Message, version: int) -> None:
        """Send a request without waiting."""
        chunks = encode_request(1, "bench", request, version)
        self._socket.sendall(b"".join(bytes(chunk) for chunk in chunks))

    def receive(self) -> bytes:
        """Return the next response, without its length."""
        return self._responses.read(int.from_bytes(self._responses.read(4)))

    def close(self) -> None:
        """Close the connection."""
        self._responses.close()
        self._socket.close()


def fill(process: BrokerProcess, segments: int) -> None:
    """Write this many segments of 16 batches, rolled by record timestamps."""
    connection = Connection(process)
    value = os.urandom(1000)
    in_flight = 0
    for segment in range(segments):
        for batch in range(BATCHES):
            builder = BatchBuilder()
            at = FIRST_MS + segment * SEGMENT_MS + batch * BATCH_MS
            for _ in range(RECORDS):
                builder.append(at, None, value)
            data = PartitionProduceData(index=0, records=bytes(builder.build()))
            topics = [TopicProduceData(name=TOPIC, partition_data=[data])]
            connection.send(ProduceRequest(acks=1, timeout_ms=9_000, topic_data=topics), 7)
            in_flight += 1
            if in_flight == IN_FLIGHT:
                connection.receive()
                in_flight -= 1
    for _ in range(in_flight):
        connection.receive()
    connection.close()


@dataclass
class Reads:
    """Random reads over one connection, with checks of the responses."""

    process: BrokerProcess
    connection: Connection
    segments: int

    def fetch(self, isolation_level: int) -> None:
        """Fetch one batch at a random offset."""
        offset = random.randrange(self.segments * OFFSETS_PER_SEGMENT)
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            isolation_level=isolation_level,
            topics=[FetchTopic(topic=TOPIC, partitions=[partition])],
        )
        self.connection.send(request, 11)
        _, response = decode_response(FetchRequest, 11, self.connection.receive())
        assert isinstance(response, FetchResponse)
        records = bytes(response.responses[0].partitions[0].records or b"")
        assert int.from_bytes(records[:8]) == offset // RECORDS * RECORDS

    def by_time(self) -> None:
        """Look up the offset of a random time."""
        segment, batch = random.randrange(self.segments), random.randrange(BATCHES)
        at = FIRST_MS + segment * SEGMENT_MS + batch * BATCH_MS
        wanted = ListOffsetsPartition(partition_index=0, timestamp=at)
        topics = [ListOffsetsTopic(name=TOPIC, partitions=[wanted])]
        self.connection.send(ListOffsetsRequest(replica_id=-1, topics=topics), 7)
        _, response = decode_response(ListOffsetsRequest, 7, self.connection.receive())
        assert isinstance(response, ListOffsetsResponse)
        found = response.topics[0].partitions[0].offset
        assert found == segment * OFFSETS_PER_SEGMENT + batch * RECORDS

    def measure(self, name: str, read: Callable[[], None], figures: Figures) -> None:
        """Measure the first read, and many others."""
        note(figures, f"{name}: the first after a start, ms", f"{1000 * _timed(read):.1f}")
        broker = psutil.Process(self.process.pid).cpu_times
        before = broker()
        taken = sorted(_timed(read) for _ in range(READS))
        cpu = sum(broker()[:2]) - sum(before[:2])
        note(figures, f"{name}: round trip p50, µs", f"{1e6 * taken[READS // 2]:.0f}")
        note(figures, f"{name}: CPU of the broker, µs", f"{1e6 * cpu / READS:.0f}")


def _timed(read: Callable[[], None]) -> float:
    started = time.perf_counter()
    read()
    return time.perf_counter() - started


def note(figures: Figures, row: str, value: str) -> None:
    """Add a value to a row."""
    figures.setdefault(row, []).append(value)


def open_files(process: BrokerProcess) -> str:
    """Return the number of open descriptors of the broker."""
    return str(len(list(Path(f"/proc/{process.pid}/fd").iterdir())))


def measure(segments: int, figures: Figures) -> None:
    """Measure one broker with one topic of this number of segments."""
    with BrokerProcess() as process:
        with Client(process.bootstrap) as client:
            client.create_topic(TOPIC, 1, 1, {"retention.ms": "-1", "segment.ms": "1000"})
        fill(process, segments)
        found = len(list(Path(process.data_directory).glob(f"{TOPIC}-0/*.log")))
        assert found == segments, f"{found} segments instead of {segments}"
        process.stop(60)
        for how in ("a clean stop", "kill -9"):
            started = time.perf_counter()
            process.start(120)
            note(figures, f"start after {how}, ms", f"{1000 * (time.perf_counter() - started):.0f}")
            if how == "a clean stop":
                process.kill()
        note(figures, "open files after it", open_files(process))
        reads = Reads(process, Connection(process), segments)
        for name, read in (
            ("Fetch", lambda: reads.fetch(0)),
            ("Fetch, read_committed", lambda: reads.fetch(1)),
            ("ListOffsets", reads.by_time),
        ):
            reads.measure(name, read, figures)
        note(figures, "open files after all reads", open_files(process))
        reads.connection.close()


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--segments", type=int, nargs="+", default=COUNTS)
    options = parser.parse_args()
    compile_sources()
    figures: Figures = {}
    for segments in options.segments:
        measure(segments, figures)
    table = Table("segments", *(f"{count:,}" for count in options.segments), title=machine())
    for row, values in figures.items():
        table.add_row(row, *values)
    Console().print(table)


if __name__ == "__main__":
    main()
