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
from typing import TYPE_CHECKING

import psutil
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.protocol.codec import encode_request
from barnabas.protocol.messages.connection import ApiVersionsRequest
from barnabas.testing.broker_process import BrokerProcess
from bench.brokers import Broker
from bench.cases import add_rounds
from bench.figures import Figures, show
from bench.loads import round_trip, temporary_topic
from bench.report import new_console

if TYPE_CHECKING:
    from collections.abc import Callable

CONNECTS_AT_ONCE = 40
PARTITIONS_PER_TOPIC = 500
IDLE_S = 5.0

NAME = "barnabas"


def view(process: BrokerProcess) -> Broker:
    """Return the broker in the form that the loads need."""
    return Broker(NAME, process.bootstrap, psutil.Process(process.pid), 0.0)


def busy_client(broker: Broker, beside: str) -> dict[str, float]:
    """Return the round trip of an active client."""
    with temporary_topic(broker, "busy", 1) as topic:
        trip = round_trip(broker, topic)
    row = f"round trip beside {beside}"
    return {f"{row}, p50, µs": trip.p50, f"{row}, p99, µs": trip.p99}


def idle_share(broker: Broker) -> float:
    """Return the processor time of a broker without requests, % of a core."""
    before = broker.cpu_seconds()
    time.sleep(IDLE_S)
    return 100 * (broker.cpu_seconds() - before) / IDLE_S


def measure_connections(count: int, directory: Path) -> dict[str, float]:
    """Measure connections that are idle after one ApiVersions request."""
    with BrokerProcess(directory / "connections") as process:
        broker = view(process)
        found = busy_client(broker, "no connection")
        return found | asyncio.run(_hold(broker, count))


async def _hold(broker: Broker, count: int) -> dict[str, float]:
    host, port = broker.host_and_port
    hello = b"".join(bytes(chunk) for chunk in encode_request(1, "idle", ApiVersionsRequest(), 3))
    gate = asyncio.Semaphore(CONNECTS_AT_ONCE)
    before = broker.process.memory_info().rss
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
    found = {
        f"{count:,} connections open, each answered once, s": seconds,
        "memory of an idle connection, KB": used / count / 1000,
        "processor with the connections, % of a core": await asyncio.to_thread(idle_share, broker),
    }
    found |= await asyncio.to_thread(busy_client, broker, "the connections")
    for writer in held:
        writer.close()
    return found


def measure_partitions(count: int, directory: Path) -> dict[str, float]:
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
        found = {f"{count:,} partitions made, s": time.perf_counter() - started}
        used = broker.process.memory_info().rss
        found["memory with the partitions, MB"] = used / 1e6
        found["memory of a partition, KB"] = (used - before) / count / 1000
        found["processor with the partitions, % of a core"] = idle_share(broker)
        found |= busy_client(broker, "the partitions")
        found["clean stop with the partitions, s"] = _seconds(lambda: process.stop(60))
        found["start after it, to ready, s"] = _seconds(lambda: process.start(120))
        process.kill()
        found["start after kill -9, to ready, s"] = _seconds(lambda: process.start(120))
        return found


def _seconds(step: Callable[[], object]) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    # Client and server need a file descriptor each, and many machines allow 20,000 in total.
    parser.add_argument("--connections", type=int, default=9_500)
    parser.add_argument("--partitions", type=int, default=10_000)
    add_rounds(parser)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    figures = Figures()
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="bench-scale-") as directory:
            if options.connections:
                figures.note(NAME, measure_connections(options.connections, Path(directory)))
            if options.partitions:
                figures.note(NAME, measure_partitions(options.partitions, Path(directory)))
        print(f"  round {number + 1} of {options.rounds} is done")
    show(figures, [NAME], new_console())


if __name__ == "__main__":
    main()
