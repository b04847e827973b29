"""Idle connections: memory per connection, and the response time of another client meanwhile.

`python -m bench.connections --count 10000`
"""

from __future__ import annotations

import argparse
import resource
import socket
import time

from bench import brokers
from bench.brokers import Broker

API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 ffff")


def open_idle(broker: Broker, count: int) -> list[socket.socket]:
    """Open connections that send one request each and are idle afterwards."""
    made = []
    for _ in range(count):
        connection = socket.create_connection(broker.host_and_port, timeout=10)
        connection.sendall(API_VERSIONS)
        if len(connection.recv(8)) != 8:
            raise SystemExit(f"{broker.name} did not respond on connection {len(made)}")
        made.append(connection)
    return made


def round_trip_us(broker: Broker, times: int = 300) -> float:
    """Return the median time (µs) of a request on a separate connection."""
    spent = []
    with socket.create_connection(broker.host_and_port) as connection:
        for _ in range(times):
            started = time.perf_counter_ns()
            connection.sendall(API_VERSIONS)
            connection.recv(4096)
            spent.append(time.perf_counter_ns() - started)
    return sorted(spent)[times // 2] / 1000


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--broker", default="barnabas")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with brokers.running(options.broker) as broker:
        before_mb, before_us = broker.resident_mb(), round_trip_us(broker)
        started = time.perf_counter()
        connections = open_idle(broker, options.count)
        seconds = time.perf_counter() - started
        per_kb = (broker.resident_mb() - before_mb) * 1000 / len(connections)
        cpu = broker.cpu_seconds()
        time.sleep(5)
        idle_cpu = (broker.cpu_seconds() - cpu) / 5
        print(f"{len(connections)} connections in {seconds:.1f} s, {per_kb:.1f} KB each")
        print(f"resident {broker.resident_mb():.0f} MB; idle CPU {100 * idle_cpu:.1f} %")
        print(f"round trip {before_us:.0f} us before, {round_trip_us(broker):.0f} us with them")
        for connection in connections:
            connection.close()


if __name__ == "__main__":
    main()
