"""`python -m bench.compaction`: compacts a topic while a client produces to another one.

It prints the throughput and the cost of the compaction, and the round trips of the client (one 100
byte record, acks=1, no pipelining) before and during it. `--bootstrap HOST:PORT --data DIR
--pid PID` measures another broker, for example Apache Kafka.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import threading
import time
from pathlib import Path

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from barnabas.testing.broker_process import BrokerProcess
from bench.loads import produce_request

VALUE_BYTES = 200
SEGMENT_BYTES = 64 << 20
# Records of each key.
REPEATS = 5
BASELINE_S = 5.0
TIMEOUT_S = 600.0


class RoundTrips:
    """A client that sends a record, waits for the response, and pauses."""

    def __init__(self, bootstrap: str, topic: str, pause_s: float) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._request = produce_request(topic)
        self._pause_s = pause_s
        self._connection = socket.create_connection((host, int(port)))
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self, duration_s: float) -> list[float]:
        """Return the time of each round trip, µs."""
        times = []
        end = time.perf_counter() + duration_s
        while time.perf_counter() < end:
            started = time.perf_counter_ns()
            self._connection.sendall(self._request)
            response = self._connection.recv(4096)
            times.append((time.perf_counter_ns() - started) / 1000)
            assert int.from_bytes(response[:4], "big") == len(response) - 4
            if self._pause_s:
                time.sleep(self._pause_s)
        return times


def fill(bootstrap: str, topic: str, size: int, compression: str) -> int:
    """Write `size` bytes of values, and return the number of records."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "compression.type": compression,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    count = size // VALUE_BYTES
    keys = max(1, count // REPEATS)
    value = bytes(range(VALUE_BYTES))
    for number in range(count):
        # Mix the keys, so that compaction removes a part of the records of nearly every batch.
        key = number * 7919 % keys
        while True:
            try:
                producer.produce(topic, value, b"%010d" % key, partition=0)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    return count


def set_backoff(bootstrap: str, value: int) -> None:
    """Set the backoff of the log cleaner."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (broker,) = admin.list_topics(timeout=10).brokers
    entry = ConfigEntry(
        "log.cleaner.backoff.ms", str(value), incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result(10)


def cpu_seconds(process: psutil.Process) -> tuple[float, float]:
    """Return the processor time of the broker, and of its live child processes."""
    own = process.cpu_times()
    children = 0.0
    for child in process.children():
        try:
            times = child.cpu_times()
            children += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return own.user + own.system, children


def quantiles(times_us: list[float]) -> str:
    """Return median, 99th and 99.9th percentile as text."""
    cuts = statistics.quantiles(times_us, n=1000)
    return f"p50 {cuts[499]:.0f} µs, p99 {cuts[989]:.0f} µs, p99.9 {cuts[998]:.0f} µs"


def measure(
    bootstrap: str, data: Path, process: psutil.Process, arguments: argparse.Namespace
) -> None:
    """Run the benchmark on a broker whose log cleaner is waiting."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(SEGMENT_BYTES),
        "min.cleanable.dirty.ratio": "0.01",
    }
    topic = f"compacted-{int(time.time())}"
    created = admin.create_topics([NewTopic(topic, 1, 1, config=config), NewTopic("other", 1, 1)])
    for future in created.values():
        future.result(10)
    records = fill(bootstrap, topic, arguments.mb * 1_000_000, arguments.compression)
    directory = data / f"{topic}-0"
    before = sum(each.stat().st_size for each in directory.glob("*.log"))
    print(
        f"{records} records, {before / 1e6:.0f} MB in {len(list(directory.glob('*.log')))} segments"
    )
    trips = RoundTrips(bootstrap, "other", arguments.rest_ms / 1000)
    print(f"round trips before:    {quantiles(trips.run(BASELINE_S))}")
    checkpoint = data / "cleaner-offset-checkpoint"
    done = threading.Event()
    meanwhile: list[float] = []

    def run() -> None:
        while not done.is_set():
            meanwhile.extend(trips.run(0.2))

    own, children = cpu_seconds(process)
    set_backoff(bootstrap, 100)
    started = time.perf_counter()
    thread = threading.Thread(target=run)
    thread.start()
    deadline = started + TIMEOUT_S
    while not (checkpoint.exists() and f"{topic} 0 " in checkpoint.read_text()):
        assert time.perf_counter() < deadline
        time.sleep(0.05)
    elapsed = time.perf_counter() - started
    own_after, children_after = cpu_seconds(process)
    done.set()
    thread.join()
    after = sum(each.stat().st_size for each in directory.glob("*.log"))
    print(f"round trips meanwhile: {quantiles(meanwhile)}, {len(meanwhile)} of them")
    print(
        f"compacted to {after / 1e6:.0f} MB in {elapsed:.1f} s: {before / 1e6 / elapsed:.0f} MB/s; "
        f"processor time: children {children_after - children:.1f} s, "
        f"broker with the round trips {own_after - own:.1f} s"
    )


def main() -> None:
    """Parse the arguments and measure."""
    parser = argparse.ArgumentParser(prog="python -m bench.compaction", description=__doc__)
    parser.add_argument("--mb", type=int, default=500, help="bytes of values, in MB")
    parser.add_argument("--compression", default="none")
    parser.add_argument("--rest-ms", type=float, default=1.0, help="pause between two round trips")
    parser.add_argument("--bootstrap", help="another broker, whose log.cleaner.backoff.ms is high")
    parser.add_argument("--data", type=Path, help="log directory of that broker")
    parser.add_argument("--pid", type=int)
    arguments = parser.parse_args()
    if arguments.bootstrap:
        process = psutil.Process(arguments.pid)
        measure(arguments.bootstrap, arguments.data, process, arguments)
        return
    with BrokerProcess(settings={"log.cleaner.backoff.ms": "100000000"}) as broker:
        process = psutil.Process(broker.pid)
        measure(broker.bootstrap, broker.data_directory, process, arguments)


if __name__ == "__main__":
    main()
