"""Scenes of docs/console-pictures.md that need more than an address of the flights' cluster.

These are previews of changes, connectors, and a second cluster: it has a share group and a streams
group, and the flights' cluster mirrors a topic of it. `tools/console_pictures.py` draws them.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas import Client, NewTopic, ShareConsumer
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.testing.broker_process import BROKER_SETTINGS, BrokerProcess
from conformance.console_user import ConsoleUser
from conformance.streams_member import StreamsMember
from tools.console_output import READY, console_output, read_line
from unit.console.connect_server import SINK, ConnectServer, task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tools.chromium import Chromium

# Connectors and their form, of the cluster that `connect_cluster` starts as `local`.
CONNECT_PAGES = (
    "/connect/connector?cluster=local&name=orders-to-table",
    f"/connect/form?cluster=local&plugin={SINK}",
)
LINK_PAGES = ("/link?name=west",)
_TOPIC, _SHARE, _STREAMS = "orders", "shipping", "billing"
_CHANGELOG = "billing-totals-changelog"
_TRACE = "org.example.TableError: no such table\n\tat org.example.Table.open\n"
_SAMPLED_S = 15


class Scene(NamedTuple):
    """What a picture shows."""

    title: str
    # Opens it in a browser that has its window.
    show: Callable[[Chromium], None]


def page_scene(url: str, page: str) -> Scene:
    """Return the scene of a page."""
    return Scene(f"`{page}`", lambda browser: browser.open(url + page))


def preview_scenes(url: str) -> list[Scene]:
    """Return the scenes of previews; the user is logged in."""
    return [
        Scene(title, partial(_as_user, url, act))
        for title, act in (
            ("Preview of changed configs", _change_configs),
            ("Preview of deleted records", _delete_records),
            ("Preview of moves", _move_replicas),
        )
    ]


def _as_user(url: str, act: Callable[[ConsoleUser], None], browser: Chromium) -> None:
    act(ConsoleUser(browser, url))


def _change_configs(user: ConsoleUser) -> None:
    user.open("/topic/edit", name="flights")
    user.type("retention.ms", "7d")
    user.type("segment.bytes", "64MiB")
    user.press("Preview")


def _delete_records(user: ConsoleUser) -> None:
    user.open("/topic", name="flights")
    part = user.part("Delete records")
    part.choose("Which", "all records")
    part.press("Preview")


def _move_replicas(user: ConsoleUser) -> None:
    user.open("/reassignments/plan", plan=1, how="even", replicas=2, topics="flights weather")
    user.type("Limit", "50MB")
    user.press("Preview the moves")


@contextlib.contextmanager
def connect_cluster() -> Iterator[str]:
    """Yield the option that names a Connect cluster with a failed and a paused connector."""
    with ConnectServer() as server:
        server.add("orders-to-table", tasks=[task(0), task(1, _TRACE)], table="orders", pin="1234")
        server.add("weather-to-table", state="PAUSED", table="weather")
        yield f"local={server.url}"


@contextlib.contextmanager
def west_cluster(directory: Path) -> Iterator[str]:
    """Yield the address of a second cluster of one broker, with a topic."""
    with BrokerProcess(directory, BROKER_SETTINGS) as west, Client(west.bootstrap) as client:
        client.create_topics([NewTopic(_TOPIC, 2, 1), NewTopic(_CHANGELOG, 2, 1)])
        with client.producer() as producer:
            for number in range(200):
                producer.send(_TOPIC, b'{"order": %d}' % number, b"%d" % (number % 7))
        client.commit_offsets("accounting", {(_TOPIC, 0): 5, (_TOPIC, 1): 7})
        yield west.bootstrap


def link(east: str, west: str, directory: Path) -> None:
    """Mirror the topic of the second cluster."""
    file = directory / "west.properties"
    file.write_text(f"bootstrap.servers={west}\n")
    words = ["-m", "barnabas", "links", "create", "west", "-b", east, "--config", str(file)]
    words += ["--topics", _TOPIC, "--groups", "accounting"]
    subprocess.run([sys.executable, *words], check=True)


@contextlib.contextmanager
def several_clusters(east: str, west: str) -> Iterator[list[Scene]]:
    """Yield the scenes of a console of both clusters, while the groups have members."""
    options = ["--cluster", f"east={east}", "--cluster", f"west={west}", "--interval", "4"]
    with _groups(west), console_output(*options) as output:
        url = read_line(output, READY)
        time.sleep(_SAMPLED_S)
        pages = [f"/west/group?id={_STREAMS}", f"/west/group?id={_SHARE}"]
        yield [
            Scene("`/` of several clusters", lambda browser: browser.open(url)),
            *(page_scene(url, page) for page in pages),
        ]


@contextlib.contextmanager
def _groups(west: str) -> Iterator[None]:
    """Give a share group a member that acknowledges records, and a streams group its member."""
    keys: Any = {"bootstrap_servers": west, "group_id": _SHARE}
    with Client(west) as client, ShareConsumer(_TOPIC, **keys) as consumer:
        resource = ConfigResource(ResourceType.GROUP, _SHARE)
        client.admin.alter_configs(resource, {"share.auto.offset.reset": "earliest"})
        # A poll acknowledges the records of the one before.
        for _ in range(5):
            consumer.poll(1.0)
        member = StreamsMember(west, client.admin, _STREAMS, _TOPIC, [_CHANGELOG])
        member.join()
        yield
        member.leave()
