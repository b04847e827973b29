"""`python -m bench.console_paint`: when Chromium paints the console's pages, and their sizes.

One broker has `--topics` topics, some with records, and groups with committed offsets. The table
has the time from the begin of the navigation to the first contentful paint, the best of `--rounds`,
and the bytes of the page with its style sheet and scripts. `--idle N` opens N connections before;
every second one has sent half of a request.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from rich.table import Table

from barnabas.testing.broker_process import BrokerProcess
from bench.console_pages import PAGES, fill, topic_name
from bench.report import machine, new_console, write_figures
from tools.chromium import Chromium
from tools.console_output import READY, console_output, read_line

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTH, HEIGHT = 1280, 900
HALF_REQUEST = b"GET /topics HTTP/1.1\r\nHost: "
_RECORD = f"topic={topic_name(0)}&partition=0&offset=1"
MORE_PAGES = (
    ("Messages", "/messages", f"topic={topic_name(0)}"),
    ("Message", "/message", _RECORD),
    ("Transactions", "/transactions", ""),
    ("Quorum", "/quorum", ""),
    ("Security", "/security", ""),
)
# Of the paint, and of all files that the page loaded, which may come from the browser's cache.
_FIGURES = """(() => {
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  const files = [...performance.getEntriesByType("navigation"),
                 ...performance.getEntriesByType("resource")];
  const bytes = files.reduce((sum, each) => sum + each.encodedBodySize, 0);
  return paint ? [paint.startTime, bytes] : null;
})()"""


class Paint(NamedTuple):
    """The first contentful paint of a page."""

    ms: float
    size: int


def measure(url: str, rounds: int) -> dict[str, Paint]:
    """Return the best paint of each page."""
    found: dict[str, Paint] = {}
    with Chromium() as browser:
        browser.shape(WIDTH, HEIGHT, dark=False)
        for name, path, query in (*PAGES, *MORE_PAGES):
            paints = []
            for _ in range(rounds):
                browser.open(f"{url}{path}?{query}" if query else f"{url}{path}")
                ms, size = browser.wait(_FIGURES)
                paints.append(Paint(ms, size))
            found[name] = min(paints)
    return found


@contextlib.contextmanager
def idle_connections(url: str, count: int) -> Iterator[None]:
    """Open connections that send nothing more; the console may close them."""
    host, _, port = urlsplit(url).netloc.partition(":")
    with contextlib.ExitStack() as opened:
        for number in range(count):
            connection = opened.enter_context(socket.create_connection((host, int(port))))
            if number % 2:
                connection.sendall(HALF_REQUEST)
        yield


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=2_000)
    parser.add_argument("--groups", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle", type=int, default=0, help="connections that are opened before")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    with BrokerProcess() as broker:
        fill(broker.bootstrap, options.topics, options.groups)
        with console_output("-b", broker.bootstrap) as output:
            url = read_line(output, READY)
            with idle_connections(url, options.idle):
                found = measure(url, options.rounds)
    title = (
        f"{options.topics:,} topics, {options.idle:,} idle connections, best of {options.rounds}"
    )
    table = Table(title=f"{title}; {machine()}")
    for column in ("", "first paint, ms", "KiB"):
        table.add_column(column, justify="right" if column else "left")
    for name, paint in found.items():
        table.add_row(name, f"{paint.ms:.0f}", f"{paint.size / 1024:.0f}")
    new_console(100).print(table)
    write_figures(options.json, {"paints": {name: each._asdict() for name, each in found.items()}})


if __name__ == "__main__":
    main()
