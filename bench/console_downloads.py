"""`python -m bench.console_downloads`: memory of the console during downloads of large values.

Each row has a console of its own, and several downloads at once of a topic with large values. The
memory is that of the console and of its process of messages, resident, in MB: idle after the first
page of messages, and the highest sum while the downloads run. The difference has a goal of 100 MB.

A cell of Parquet has at most 4 MiB, so that its file of larger values ends at the first one.
"""

from __future__ import annotations

import argparse
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.request import urlopen

import psutil
from rich.table import Table

from barnabas import Client
from barnabas.testing.broker_process import BrokerProcess
from bench.report import machine, new_console, write_figures
from tools.console_output import READY, console_output, read_line

if TYPE_CHECKING:
    from collections.abc import Iterator

SAMPLE_S = 0.005
SETTLED_S = 1.0
READ_BYTES = 1 << 20
READ_S = 600.0
TEXT = b'a "quoted" text; '
BYTES = bytes(range(256))


class Values(NamedTuple):
    """The values of a topic."""

    topic: str
    count: int
    size: int
    # What they repeat.
    content: bytes

    @property
    def value(self) -> bytes:
        """One value."""
        return (self.content * (self.size // len(self.content) + 1))[: self.size]


LARGE_TEXT = Values("text-50-mb", 4, 50_000_000, TEXT)
LARGE_BYTES = Values("bytes-50-mb", 4, 50_000_000, BYTES)
CELL_TEXT = Values("text-4-mb", 50, 4_000_000, TEXT)
CELL_BYTES = Values("bytes-4-mb", 50, 4_000_000, BYTES)
TOPICS = (LARGE_TEXT, LARGE_BYTES, CELL_TEXT, CELL_BYTES)
CASES = (
    ("jsonl", LARGE_TEXT),
    ("jsonl", LARGE_BYTES),
    ("csv", LARGE_TEXT),
    ("csv", LARGE_BYTES),
    ("parquet", LARGE_TEXT),
    ("parquet", CELL_TEXT),
    ("parquet", CELL_BYTES),
)


class MemoryPeak:
    """The highest memory of a process and of its children, sampled by a thread."""

    def __init__(self, process_id: int) -> None:
        root = psutil.Process(process_id)
        self._processes = [root, *root.children(recursive=True)]
        self.highest_mb = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def now_mb(self) -> float:
        """Return the memory now."""
        return sum(each.memory_info().rss for each in self._processes) / 1e6

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Take samples within the block."""
        self._thread.start()
        yield
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        with suppress(psutil.NoSuchProcess):
            while not self._ended.wait(SAMPLE_S):
                self.highest_mb = max(self.highest_mb, self.now_mb())


class Figures(NamedTuple):
    """What one row measured."""

    format: str
    topic: str
    idle_mb: float
    peak_mb: float
    after_mb: float
    # Bytes of all files together.
    read_mb: float
    seconds: float

    @property
    def more_mb(self) -> float:
        """The peak beside the idle console."""
        return self.peak_mb - self.idle_mb


def produce(bootstrap: str, values: Values) -> None:
    """Create a topic with its values."""
    with Client(bootstrap) as client:
        client.create_topic(values.topic, 1, 1, {"max.message.bytes": "64000000"})
        with client.producer(max_request_size=64_000_000, buffer_memory=128_000_000) as producer:
            for _ in range(values.count):
                producer.send(values.topic, values.value)
                producer.flush()


def read_all(url: str) -> int:
    """Read a response to its end, and return the number of its bytes."""
    size = 0
    with urlopen(url, timeout=READ_S) as response:
        while data := response.read(READ_BYTES):
            size += len(data)
    return size


def measure(bootstrap: str, name: str, values: Values, at_once: int) -> Figures:
    """Download a topic in a format several times at once."""
    with console_output("-b", bootstrap) as output:
        url = read_line(output, READY)
        # The process of messages starts with its first page.
        read_all(f"{url}/messages?topic={CELL_TEXT.topic}&from=offset&offset=999999")
        time.sleep(SETTLED_S)
        port = int(url.rpartition(":")[2])
        peak = MemoryPeak(process_at(port))
        idle_mb = peak.now_mb()
        address = f"{url}/messages/download?topic={values.topic}&from=beginning&format={name}"
        began = time.perf_counter()
        with peak.watching(), ThreadPoolExecutor(at_once) as threads:
            sizes = list(threads.map(read_all, [address] * at_once))
        seconds = time.perf_counter() - began
        read_mb = sum(sizes) / 1e6
        return Figures(
            name, values.topic, idle_mb, peak.highest_mb, peak.now_mb(), read_mb, seconds
        )


def process_at(port: int) -> int:
    """Return the id of the child of this process that listens on a port."""
    for each in psutil.Process().children():
        for connection in each.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
                return each.pid
    raise RuntimeError(f"no child listens on port {port}")


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at-once", type=int, default=3, metavar="N", help="downloads at once")
    parser.add_argument("--formats", default="jsonl,csv,parquet", help="formats to measure")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    console = new_console(110)
    table = Table(title=f"{options.at_once} downloads at once, MB; {machine()}")
    for column in ("", "values", "idle", "peak", "more", "after", "read", "s"):
        table.add_column(column, justify="left" if column in ("", "values") else "right")
    figures = []
    with BrokerProcess(settings={"socket.request.max.bytes": "128000000"}) as broker:
        for each in TOPICS:
            produce(broker.bootstrap, each)
        for name, values in CASES:
            if name not in options.formats.split(","):
                continue
            found = measure(broker.bootstrap, name, values, options.at_once)
            figures.append({**found._asdict(), "more_mb": found.more_mb})
            cells = (
                *(found.idle_mb, found.peak_mb, found.more_mb, found.after_mb),
                *(found.read_mb, found.seconds),
            )
            table.add_row(name, found.topic, *(f"{cell:.1f}" for cell in cells))
    console.print(table)
    write_figures(options.json, {"rows": figures})


if __name__ == "__main__":
    main()
