"""`python -m bench.scale`: a broker with 10,000 idle connections, then one with 10,000 partitions.

Connections: memory per connection, and the round trip of an active client meanwhile. Partitions:
the time of their creation, memory, the round trip, a clean stop, and the start after it.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from barnabas.protocol.headers import encode_request
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.testing.broker_process import BrokerProcess
from bench.brokers import Broker
from bench.loads import create_topic, round_trip
from bench.report import machine

CONNECTS_AT_ONCE = 40
PARTITIONS_PER_TOPIC = 500

Rows = list[tuple[str, str]]


def view(process: BrokerProcess) -> Broker:
    """Return the broker in the form that the loads need."""
    return Broker("barnabas", process.bootstrap, psutil.Process(process.pid), 0.0)


def busy_client(broker: Broker, rows: Rows, beside: str) -> None:
    """Add the round trip of an active client to the rows."""
    topic = f"busy-{len(rows)}"
    create_topic(broker, topic, 1)
    trip = round_trip(broker, topic)
    rows.append((f"round trip beside {beside}, p50 / p99", f"{trip.p50:.0f} / {trip.p99:.0f} µs"))


def measure_connections(count: int, rows: Rows, directory: Path) -> None:
    """Measure connections that are idle after one ApiVersions request."""
    with BrokerProcess(directory / "connections") as process:
        broker = view(process)
        busy_client(broker, rows, "no connection")
        before = broker.process.memory_info().rss
        asyncio.run(_hold(broker, count, before, rows))


async def _hold(broker: Broker, count: int, before: int, rows: Rows) -> None:
    host, port = broker.host_and_port
    hello = b"".join(bytes(chunk) for chunk in encode_request(1, "idle", ApiVersionsRequest(), 3))
    gate = asyncio.Semaphore(CONNECTS_AT_ONCE)
    started = time.perf_counter()

    async def connect() -> asyncio.StreamWriter:
        async with gate:
            reader, writer = await asyncio.open_connection(host, port, limit=4096)
            writer.write(hello)
            await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
            return writer

    held = await asyncio.gather(*(connect() for _ in range(count)))
    seconds = time.perf_counter() - started
    used = broker.process.memory_info().rss - before
    rows.append((f"{count:,} connections open, each answered once", f"{seconds:.1f} s"))
    rows.append(("memory of an idle connection", f"{used / count / 1000:.1f} KB"))
    cpu = broker.cpu_seconds()
    await asyncio.sleep(5)
    rows.append(
        (f"processor with {count:,} idle", f"{100 * (broker.cpu_seconds() - cpu) / 5:.1f} % of one")
    )
    await asyncio.to_thread(busy_client, broker, rows, f"{count:,} idle connections")
    for writer in held:
        writer.close()


def measure_partitions(count: int, rows: Rows, directory: Path) -> None:
    """Measure empty partitions, which CreateTopics requests create."""
    with BrokerProcess(directory / "partitions") as process:
        broker = view(process)
        # The client's broker will be stopped, so its errors are not reported.
        admin = AdminClient({"bootstrap.servers": process.bootstrap, "log_level": 0})
        before = broker.process.memory_info().rss
        started = time.perf_counter()
        for number in range(count // PARTITIONS_PER_TOPIC):
            name = f"many-{number}"
            made = admin.create_topics(
                [NewTopic(name, PARTITIONS_PER_TOPIC, 1)], operation_timeout=60, request_timeout=60
            )
            made[name].result(60)
        seconds = time.perf_counter() - started
        used = broker.process.memory_info().rss
        rows.append((f"{count:,} partitions made", f"{seconds:.1f} s"))
        rows.append(
            (
                "memory with them, and of each",
                f"{used / 1e6:.0f} MB, {(used - before) / count / 1000:.1f} KB",
            )
        )
        cpu = broker.cpu_seconds()
        time.sleep(5)
        rows.append(
            (
                f"processor with {count:,} idle partitions",
                f"{100 * (broker.cpu_seconds() - cpu) / 5:.1f} % of one",
            )
        )
        busy_client(broker, rows, f"{count:,} partitions")
        started = time.perf_counter()
        process.stop(60)
        rows.append(("clean stop with them", f"{time.perf_counter() - started:.1f} s"))
        started = time.perf_counter()
        process.start(120)
        rows.append(("start after it, to ready", f"{time.perf_counter() - started:.1f} s"))
        process.kill()
        started = time.perf_counter()
        process.start(120)
        rows.append(("start after kill -9, to ready", f"{time.perf_counter() - started:.1f} s"))
        busy_client(view(process), rows, f"{count:,} partitions after that")


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    # Client and server need a file descriptor each, and many machines allow 20,000 in total.
    parser.add_argument("--connections", type=int, default=9_500)
    parser.add_argument("--partitions", type=int, default=10_000)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    rows: Rows = []
    with tempfile.TemporaryDirectory(prefix="bench-scale-") as directory:
        if options.connections:
            measure_connections(options.connections, rows, Path(directory))
        if options.partitions:
            measure_partitions(options.partitions, rows, Path(directory))
    table = Table(title=machine(), show_header=False)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
