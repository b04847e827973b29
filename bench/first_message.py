"""Time from the start of a broker to the first acknowledged message, as in users' tests.

Starts `barnabas start --temporary --port 0 --topic orders` repeatedly, sends one record as soon as
the broker is ready, and waits for the acknowledgement. The client is already imported, and the
files are already read, as in the second test of a run. Compiled modules (`__pycache__`) are used
even if PYTHONDONTWRITEBYTECODE is set, as after an installation by pip.

`python -m bench.first_message --count 20`. On a busy machine, only the CPU seconds and the
fastest run are meaningful: the other times include waiting for a core.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from typing import NamedTuple

from barnabas import Producer

COMMAND = ["-m", "barnabas.cli.main", "start", "--temporary", "--port", "0", "--topic", "orders"]


class Run(NamedTuple):
    """Times of one start, in seconds."""

    ready: float
    first_message: float
    # CPU time of the broker until the acknowledgement, user and system.
    broker_cpu: float


def measure() -> Run:
    """Start a broker, send a record, kill the broker."""
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
        process.terminate()
    return Run(ready, first_message, cpu)


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
