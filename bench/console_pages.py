"""`python -m bench.console_pages`: times of the console's pages with many topics and groups.

One broker has `--topics` topics of one partition, one topic of 1,000 partitions, and `--groups`
groups with committed offsets. The console runs in this process and gets requests without HTTP. For
each page, the table has the time to the response and the processor time of all threads, each the
best of `--rounds`. The last row is a sample of rates, lags and health, which no page waits for.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.table import Table

from barnabas import Client
from barnabas.client.admin.topics import NewTopic
from barnabas.console.frame import Announcements
from barnabas.console.serving import collect_rarely, make_application
from barnabas.console.settings import ConsoleSettings
from barnabas.console.site import Site
from barnabas.runtime.loop import new_loop
from barnabas.testing.broker_process import BrokerProcess
from bench.report import machine, new_console, write_figures

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from starlette.applications import Starlette

    from barnabas.console.console import Console

TOPICS_AT_ONCE = 1000
PROGRESS = 1000
# Topics with records, which the groups read.
READ_TOPICS = 100
RECORDS = 50
PAGE_S_MAX = 600.0
FIRST_SAMPLE_S = 600.0
POLL_S = 0.1
# A topic of many partitions.
WIDE = "wide"
WIDE_PARTITIONS = 1000
HOST = b"127.0.0.1"
PAGES = (
    ("Cluster", "/", ""),
    ("Topics", "/topics", ""),
    ("Topics, sorted by size", "/topics", "sort=-size"),
    ("Topics, filtered", "/topics", "q=topic-0042"),
    ("Topics, sorted by records", "/topics", "sort=-count"),
    ("Topics, page 50", "/topics", "page=50"),
    ("Groups", "/groups", ""),
    ("Groups, sorted by lag", "/groups", "sort=-lag"),
    ("Topic", "/topic", "name=topic-00000"),
    ("Topic of 1,000 partitions", "/topic", f"name={WIDE}"),
    ("Group", "/group", "id=group-00000"),
    ("Broker", "/broker", "id=1"),
    ("Log directories", "/log-dirs", ""),
    ("Plan moves", "/reassignments/plan", ""),
)


class Cost(NamedTuple):
    """What one page or one sample took."""

    wall_s: float
    # Of all threads of this process.
    cpu_s: float
    size: int = 0


def topic_name(number: int) -> str:
    """Return the name of a topic."""
    return f"topic-{number:05}"


def fill(bootstrap: str, topics: int, groups: int) -> None:
    """Create the topics and the groups, with records and lags in some of them."""
    console = new_console(100)
    with Client(bootstrap, default_api_timeout_ms=600_000, request_timeout_ms=600_000) as client:
        names = [topic_name(number) for number in range(topics)]
        for first in range(0, topics, TOPICS_AT_ONCE):
            part = names[first : first + TOPICS_AT_ONCE]
            client.create_topics([NewTopic(name, 1, 1) for name in part])
            console.print(f"{first + len(part):,} topics")
        client.create_topics([NewTopic(WIDE, WIDE_PARTITIONS, 1)])
        with client.producer() as producer:
            for name in names[:READ_TOPICS]:
                for _ in range(RECORDS):
                    producer.send(name, b"value")
        for number in range(groups):
            read = names[number % min(READ_TOPICS, topics)]
            client.commit_offsets(f"group-{number:05}", {(read, 0): number % RECORDS})
            if (number + 1) % PROGRESS == 0:
                console.print(f"{number + 1:,} groups")


async def respond(application: Starlette, path: str, query: str) -> int:
    """Request a page, and return its size.

    Raises:
        RuntimeError: The status is not 200.
    """
    found: dict[str, Any] = {"status": 0, "body": b""}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", HOST)],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8080),
    }
    never = asyncio.Event()
    sent = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict[str, Any]:
        if sent:
            return sent.pop()
        await never.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        found["status"] = message.get("status", found["status"])
        found["body"] += message.get("body", b"")

    async with asyncio.timeout(PAGE_S_MAX):
        await application(scope, receive, send)
    if found["status"] != 200:
        raise RuntimeError(f"{path}?{query} has status {found['status']}: {found['body'][:2000]!r}")
    return len(found["body"])


async def cost_of(act: Callable[[], Awaitable[int | None]], rounds: int) -> Cost:
    """Return the best times of several rounds."""
    costs = []
    for _ in range(rounds):
        wall, cpu = time.perf_counter(), time.process_time()
        size = await act()
        costs.append(Cost(time.perf_counter() - wall, time.process_time() - cpu, size or 0))
    return Cost(
        min(each.wall_s for each in costs), min(each.cpu_s for each in costs), costs[-1].size
    )


async def measure(bootstrap: str, rounds: int) -> dict[str, Cost]:
    """Return the costs of all pages, and that of a sample."""
    settings = ConsoleSettings(
        bootstrap, {}, interval=3600.0, timeout=PAGE_S_MAX, costly_per_minute=0
    )
    site = Site(settings, Announcements(lambda _password: None))
    application = make_application(site)
    collect_rarely()
    async with site.running(application):
        console = site.consoles[0]
        await first_sample(console)
        found = {"A sample": await cost_of(console.history.sample, rounds)}
        for name, path, query in PAGES:
            found[name] = await cost_of(lambda p=path, q=query: respond(application, p, q), rounds)
    return {**{name: found[name] for name, _, _ in PAGES}, "A sample": found["A sample"]}


async def first_sample(console: Console) -> None:
    """Wait until the pages have figures.

    Raises:
        TimeoutError: No sample was taken; the text has its error.
    """
    deadline = time.monotonic() + FIRST_SAMPLE_S
    while console.history.latest is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no sample: {console.history.error}")
        await asyncio.sleep(POLL_S)


@contextmanager
def broker_of(bootstrap: str, topics: int, groups: int) -> Iterator[str]:
    """Yield the address of a broker with the topics and the groups."""
    if bootstrap:
        fill(bootstrap, topics, groups)
        yield bootstrap
        return
    with BrokerProcess() as broker:
        fill(broker.bootstrap, topics, groups)
        yield broker.bootstrap


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", default="", help="an empty broker, in place of a new one")
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    with (
        broker_of(options.bootstrap, options.topics, options.groups) as bootstrap,
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        found = runner.run(measure(bootstrap, options.rounds))
    table = Table(
        title=f"{options.topics:,} topics, {options.groups:,} groups, best of {options.rounds}; "
        f"{machine()}"
    )
    for column in ("", "response, s", "CPU, s", "KiB"):
        table.add_column(column, justify="right" if column else "left")
    for name, cost in found.items():
        size = f"{cost.size / 1024:.0f}" if cost.size else ""
        table.add_row(name, f"{cost.wall_s:.3f}", f"{cost.cpu_s:.3f}", size)
    new_console(100).print(table)
    figures = {name: cost._asdict() for name, cost in found.items()}
    write_figures(options.json, {"pages": figures})


if __name__ == "__main__":
    main()
