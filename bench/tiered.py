"""`python -m bench.tiered`: a broker with a remote tier: copies, reads from the tier, and memory.

A topic is filled while it has no tier, and read. Then it gets one, a directory. The processor time
of the broker until all closed segments are copied is that of the copies, and of the deletion of the
local segments. The row *floor* has the processor time of a loop that copies files of that size.

Then many clients read the tier from different offsets at once, and the memory of the broker is
watched. Last, the tier is read with a fixed speed, and then from its beginning as fast as
librdkafka can. Before each reading and beside it, another client measures round trips of acks=1 on
another topic.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import socket
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import psutil

from barnabas import Client
from bench import loads
from bench.brokers import Broker, running
from bench.budgets import OURS
from bench.cases import add_rounds, new_parser
from bench.figures import Figures, show
from bench.raw_load import FETCH_BYTES, fetch_request
from bench.report import new_console, write_figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RECORD_BYTES = 1_000
SEGMENT_BYTES = 64 << 20
READERS, READS = 200, 5
# Speed of the reader that is held back, a little more than the goal; and its time in seconds.
PACE_MB, PACED_S = 160, 8.0
CACHE_MB = 128
ROUND_TRIPS = 4_000
LIMIT_S = 600.0
T = TypeVar("T")
TOPIC, OTHER = "tiered", "other"
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "100",
    "log.segment.bytes": str(SEGMENT_BYTES),
    "barnabas.remote.read.cache.max.bytes": str(CACHE_MB << 20),
    "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
}


class Tier(NamedTuple):
    """A broker with a remote tier."""

    broker: Broker
    # Directory of the store.
    store: Path
    client: Client

    def stored_bytes(self) -> int:
        """Return the size of all segments in the store."""
        return sum(path.stat().st_size for path in self.store.rglob("*.log"))

    def offsets(self, spec: str) -> list[int]:
        """Return one of the offsets of ListOffsets for each partition of the topic."""
        partitions = range(loads.PARTITIONS)
        found = self.client.list_offsets({(TOPIC, each): spec for each in partitions})
        return [found[TOPIC, each].offset for each in partitions]

    @property
    def is_copied(self) -> bool:
        """Whether only the active segments are on the disk of the broker."""
        local, tiered = self.offsets("earliest-local"), self.offsets("latest-tiered")
        return all(0 < start == end + 1 for start, end in zip(local, tiered, strict=True))


@contextlib.contextmanager
def tier() -> Iterator[Tier]:
    """Run a broker with a directory as its store."""
    with tempfile.TemporaryDirectory(prefix="bench-store-") as directory:
        settings = {**SETTINGS, "barnabas.remote.storage": f"file://{directory}"}
        with running(OURS, settings) as broker, Client(broker.address) as client:
            yield Tier(broker, Path(directory), client)


def copy(tiered: Tier, total: int) -> dict[str, float]:
    """Measure how the topic moves to the tier."""
    broker, client = tiered.broker, tiered.client
    floor = _floor(total)
    before, started = broker.cpu_seconds(), time.perf_counter()
    configs = {"remote.storage.enable": "true", "local.retention.bytes": "1"}
    client.alter_topic_configs(TOPIC, configs)
    _wait_until(lambda: tiered.is_copied)
    seconds, spent = time.perf_counter() - started, broker.cpu_seconds() - before
    copied = tiered.stored_bytes()
    return {
        "copy to the tier: CPU s/GB": spent * 1e9 / copied,
        "copy to the tier, floor: CPU s/GB": floor,
        "copy to the tier: MB/s": copied / 1e6 / seconds,
    }


def _floor(total: int) -> float:
    """Return the processor time, s/GB, of a loop that copies files of the segments' size."""
    with tempfile.TemporaryDirectory(prefix="bench-floor-") as directory:
        source, target = Path(directory, "source"), Path(directory, "target")
        source.write_bytes(os.urandom(min(total, SEGMENT_BYTES)))
        size = source.stat().st_size
        before = time.process_time()
        for _ in range(count := max(1, total // size)):
            shutil.copyfile(source, target)
            with target.open("rb+") as file:
                os.fsync(file.fileno())
        return (time.process_time() - before) * 1e9 / (count * size)


def read(tiered: Tier, total: int, place: str) -> dict[str, float]:
    """Read the topic from its beginning, as fast as librdkafka can.

    Args:
        tiered: the broker.
        total: bytes of the records.
        place: where the records are, for the names of the rows.
    """
    pid = tiered.broker.process.pid
    figure, others = beside(tiered, f"from the {place}", _read_all, (pid, total))
    return {
        f"read from the {place}: CPU s/GB": figure.cpu_seconds_per_gb,
        f"read from the {place}: MB/s": figure.mb_per_second,
        **others,
    }


def read_at_pace(tiered: Tier) -> dict[str, float]:
    """Read the tier with the speed of the goal, and leave the rest of the time to others."""
    name = f"with {PACE_MB} MB/s from the tier"
    ends = tiered.offsets("latest-tiered")
    reached, others = beside(tiered, name, _read_at_pace, (ends,))
    return {f"read {name}: MB/s": reached, **others}


def beside(
    tiered: Tier, name: str, work: Callable[..., T], arguments: tuple[object, ...]
) -> tuple[T, dict[str, float]]:
    """Run work in a process, and measure the round trips of another client before and beside it.

    Args:
        tiered: the broker.
        name: what the work reads, for the names of the rows.
        work: gets the address of the broker, and the arguments.
        arguments: arguments of the work.
    """
    broker = tiered.broker
    with (
        loads.temporary_topic(broker, OTHER, 1) as topic,
        ProcessPoolExecutor(1, get_context("spawn")) as pool,
    ):
        # Starts the process.
        pool.submit(int).result()
        alone = loads.round_trip(broker, topic, round_trips=ROUND_TRIPS)
        times = []
        working = pool.submit(work, broker.address, *arguments)
        while not working.done():
            times.append(loads.round_trip(broker, topic, round_trips=ROUND_TRIPS // 10))
        result = working.result()
    p99 = sorted(each.p99 for each in times)[len(times) // 2]
    return result, {
        f"before reads {name}: p99 of others, µs": alone.p99,
        f"beside reads {name}: p99 of others, µs": p99,
        f"reads {name}: p99 of others, times": p99 / alone.p99,
    }


def _read_all(address: str, pid: int, total: int) -> loads.Figure:
    """Read the topic in a process of its own; the last segments are not in the tier."""
    return loads.consume(Broker(OURS, address, psutil.Process(pid), 0), TOPIC, RECORD_BYTES, total)


def _read_at_pace(address: str, ends: list[int]) -> float:
    """Send a Fetch of 1 MB whenever it is due, for some seconds; return the MB/s."""
    broker = Broker(OURS, address, psutil.Process(), 0)
    offsets = [0] * len(ends)
    received, started = 0, time.perf_counter()
    with broker.connect() as connection:
        while (passed := time.perf_counter() - started) < PACED_S:
            if received > PACE_MB * 1e6 * passed:
                time.sleep(0.0005)
                continue
            partition = received // FETCH_BYTES % len(ends)
            connection.sendall(_fetch(partition, offsets[partition]))
            received += _discard_response(connection)
            offsets[partition] += FETCH_BYTES // RECORD_BYTES
            offsets[partition] %= ends[partition]
        return received / 1e6 / passed


def read_by_many(tiered: Tier) -> dict[str, float]:
    """Read the tier by many clients at once, and return the memory of the broker, MB."""
    ends = tiered.offsets("latest-tiered")
    before = highest = tiered.broker.resident_mb()
    # Descriptor: the connection, its partition, its next offset, and its requests that are left.
    readers: dict[int, list[int]] = {}
    poll = select.epoll()
    with contextlib.ExitStack() as stack:
        connections = {}
        for number in range(READERS):
            connection = stack.enter_context(tiered.broker.connect())
            partition = number % loads.PARTITIONS
            offset = ends[partition] * number // READERS
            connections[connection.fileno()] = connection
            readers[connection.fileno()] = [partition, offset, READS]
            connection.sendall(_fetch(partition, offset))
            poll.register(connection, select.EPOLLIN)
        deadline = time.monotonic() + LIMIT_S
        while readers:
            for descriptor, _ in poll.poll(1):
                highest = max(highest, tiered.broker.resident_mb())
                _discard_response(connections[descriptor])
                reader = readers[descriptor]
                reader[2] -= 1
                if not reader[2]:
                    poll.unregister(descriptor)
                    del readers[descriptor]
                    continue
                reader[1] = (reader[1] + FETCH_BYTES // RECORD_BYTES) % ends[reader[0]]
                connections[descriptor].sendall(_fetch(reader[0], reader[1]))
            if time.monotonic() > deadline:
                raise SystemExit(f"{len(readers)} readers had no response within {LIMIT_S:.0f} s")
    return {
        f"{READERS} readers: memory more than before, MB": highest - before,
        f"{READERS} readers: memory, MB": highest,
    }


def _fetch(partition: int, offset: int) -> bytes:
    return fetch_request(TOPIC, partition, offset, FETCH_BYTES)


def _discard_response(connection: socket.socket) -> int:
    """Receive a response, and return its size."""
    connection.settimeout(LIMIT_S)
    missing = size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL))
    buffer = bytearray(FETCH_BYTES)
    while missing:
        received = connection.recv_into(buffer, min(missing, len(buffer)), socket.MSG_TRUNC)
        if not received:
            raise SystemExit("the broker has closed a connection")
        missing -= received
    return size


def _wait_until(is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_done():
        if time.monotonic() > deadline:
            raise SystemExit(f"the segments were not copied within {LIMIT_S:.0f} s")
        time.sleep(0.2)


def main() -> None:
    """Run the rounds, each with a new broker, and print the table of the best figures."""
    parser = new_parser(__doc__)
    add_rounds(parser)
    parser.add_argument("--megabytes", type=int, default=2_000, help="MB of records in a round")
    options = parser.parse_args()
    console, figures, total = new_console(), Figures(), options.megabytes * 1_000_000
    for number in range(1, options.rounds + 1):
        with tier() as tiered:
            console.print(f"  round {number}: read from the disk")
            loads.create_topic(tiered.broker, TOPIC)
            loads.produce(tiered.broker, TOPIC, RECORD_BYTES, total)
            figures.note(OURS, read(tiered, total, "disk"))
            console.print(f"  round {number}: copy")
            figures.note(OURS, copy(tiered, total))
            console.print(f"  round {number}: {READERS} readers")
            figures.note(OURS, read_by_many(tiered))
            console.print(f"  round {number}: read from the tier")
            figures.note(OURS, read_at_pace(tiered))
            figures.note(OURS, read(tiered, total, "tier"))
    show(figures, [OURS], console)
    write_figures(options.json, figures.rows)


if __name__ == "__main__":
    main()
