"""Times that users' tests wait for: brokers, the first acknowledged message, many topics.

Starts `barnabas start --temporary --port 0 --topic orders` repeatedly, sends one record as soon as
the broker is ready, and waits for the acknowledgement. The client is already imported, and the
files are already read, as in the second test of a run. Compiled modules (`__pycache__`) are used
even if PYTHONDONTWRITEBYTECODE is set, as after an installation by pip. Then a hundred topics are
created in one request. `on_loop` is the start of a broker in this process, after a first one.

`python -m bench.first_message --count 20`. On a busy machine, only the CPU seconds and the
fastest run are meaningful: the other times include waiting for a core.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from typing import NamedTuple

from barnabas import Producer
from barnabas.testing import running_broker
from barnabas.testing.admin_requests import AdminEndpoint, AdminRequests

COMMAND = ["-m", "barnabas.cli.main", "start", "--temporary", "--port", "0", "--topic", "orders"]


class Run(NamedTuple):
    """Times of one start, in seconds."""

    ready: float
    first_message: float
    # CPU time of the broker until the acknowledgement, user and system.
    broker_cpu: float
    hundred_topics: float
    on_loop: float


def measure() -> Run:
    """Start a broker, send a record, create topics, and stop the broker."""
    variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, *COMMAND], stdout=subprocess.PIPE, env=variables
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().decode().removeprefix("ready ").strip()
        ready = time.perf_counter() - began
        with Producer(address) as producer:
            producer.send("orders", b"one order").result(60)
            first_message = time.perf_counter() - began
            cpu = _cpu_seconds(process.pid)
        host, _, port = address.rpartition(":")
        began = time.perf_counter()
        with AdminRequests(AdminEndpoint(host, int(port))) as requests:
            requests.create_topics([f"topic-{number}" for number in range(100)])
        hundred_topics = time.perf_counter() - began
        process.terminate()
    return Run(ready, first_message, cpu, hundred_topics, asyncio.run(_start_on_loop()))


async def _start_on_loop() -> float:
    began = time.perf_counter()
    async with running_broker():
        return time.perf_counter() - began


def _cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        words = file.read().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the fastest and the median run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20)
    count = parser.parse_args().count
    # Warm-up: the first run reads the files from the disk.
    measure()
    runs = [measure() for _ in range(count)]
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, {count} starts")
    for name in Run._fields:
        values = sorted(getattr(run, name) for run in runs)
        print(f"{name:15} fastest {values[0]:.3f} s   median {values[len(values) // 2]:.3f} s")


if __name__ == "__main__":
    main()
