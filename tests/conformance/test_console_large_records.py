"""Large records in the console: another process reads them, and they are whole in downloads."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from barnabas.client.facade import Client
from barnabas.console.messages.decoded import Decoded
from barnabas.console.messages.formats import FormatRule
from barnabas.console.messages.masking import MaskRule
from barnabas.console.messages.reading import LARGE_BYTES
from barnabas.console.settings import ConsoleSettings, SearchLimits
from conformance.console_brokers import SECONDS, address, client
from console_in_process import Answer, ConsoleInProcess
from selection import nightly_rows_unless

pytestmark = pytest.mark.conformance
__all__ = ["address", "client"]

TOPIC, MASKED, NAMED = "large", "large-masked", "large-named"
SECRET = "4111-1111-1111-1234"
VALUES = [
    f'{{"n": {number}, "card": "{SECRET}", "pad": "'.encode() + b"x" * LARGE_BYTES + b'"}'
    for number in range(3)
]


def named(data: bytes) -> Decoded:
    """Return the id of the process that decodes."""
    return Decoded("text", str(os.getpid()).encode(), data, len(data))


@pytest.fixture(scope="module")
def console(address: str, client: Client) -> Iterator[ConsoleInProcess]:
    for topic in (TOPIC, MASKED, NAMED):
        client.create_topic(topic, 1, 1, {"max.message.bytes": "20000000"})
        with client.producer(max_request_size=20_000_000) as producer:
            for value in VALUES:
                producer.send(topic, b"small" if topic == NAMED else value, b"key")
                producer.flush()
    settings = ConsoleSettings(
        address,
        {},
        interval=3600.0,
        timeout=SECONDS,
        search=SearchLimits(page_seconds=SECONDS),
        masks=(MaskRule(MASKED, "value", ("card",)),),
        formats=(FormatRule(NAMED, "value", named),),
        costly_per_minute=0,
    )
    with ConsoleInProcess(settings) as running:
        yield running


def test_another_process_decodes_records(console: ConsoleInProcess) -> None:
    pages = [
        console.get("/messages", topic=NAMED),
        console.get("/message", topic=NAMED, partition=0, offset=1),
        console.get("/message/versions", topic=NAMED, partition=0, offset=1),
    ]
    processes = {each for page in pages for each in re.findall(r"<pre[^>]*>(\d+)</pre>", page.text)}
    assert len(processes) == 1
    assert str(os.getpid()) not in processes


def test_downloads_at_once_have_whole_values(console: ConsoleInProcess) -> None:
    def download(name: str) -> Answer:
        fields = {"from": "beginning"} if name == "beginning" else {"limit": 3}
        return console.get("/messages/download", topic=TOPIC, format="jsonl", **fields)

    with ThreadPoolExecutor() as threads:
        found = list(threads.map(download, ("beginning", "newest", "beginning")))
    for answer, offsets in zip(found, ([0, 1, 2], [2, 1, 0], [0, 1, 2]), strict=True):
        rows = [json.loads(line) for line in answer.body.splitlines()]
        assert [row.get("offset") for row in rows] == offsets
        assert [row["value"].encode() for row in rows] == [VALUES[each] for each in offsets]


@pytest.mark.parametrize(
    ("path", "fields", "size"),
    nightly_rows_unless(
        lambda row: row[0] == "/message/raw" or row[1].get("format") == "csv",
        [
            ("/messages/download", {"from": "beginning", "format": "jsonl"}, 3 * len(VALUES[0])),
            ("/messages/download", {"from": "beginning", "format": "csv"}, 3 * len(VALUES[0])),
            ("/messages/download", {"limit": 3}, 3 * len(VALUES[0])),
            ("/message/raw", {"partition": 0, "offset": 1, "part": "value"}, len(VALUES[1])),
        ],
    ),
    ids=["json lines", "csv", "newest", "raw"],
)
def test_a_client_that_reads_slowly_delays_no_other(
    console: ConsoleInProcess, path: str, fields: dict[str, object], size: int
) -> None:
    with console.slow_reader(path, topic=TOPIC, **fields) as slow:
        place = {"topic": TOPIC, "partition": 0, "offset": 2}
        others = [
            console.get("/messages/download", topic=TOPIC, **{"from": "beginning"}),
            console.get("/message/raw", **place, part="value"),
            console.get("/messages", topic=TOPIC, **{"from": "beginning"}),
        ]
        assert [row["offset"] for row in map(json.loads, others[0].body.splitlines())] == [0, 1, 2]
        assert others[1].body == VALUES[2]
        assert others[2].text.count('<tr id="m0-') == 3
        assert not slow.done()
    answer = slow.result(SECONDS)
    assert len(answer.body) >= size
    assert b"truncated" not in answer.body


def test_the_page_has_the_beginning_and_a_link_to_the_bytes(console: ConsoleInProcess) -> None:
    page = console.get("/message", topic=TOPIC, partition=0, offset=1)
    assert len(page.body) < 500_000
    found = re.search(r'href="(/message/raw[^"]*part=value[^"]*)"', page.text)
    assert found is not None
    path, _, query = found[1].replace("&amp;", "&").partition("?")
    answer = console.request("GET", path, query=query)
    assert answer.body == VALUES[1]
    assert answer.headers["content-disposition"] == 'attachment; filename="large-0-1.value"'
    searched = console.get("/messages", topic=TOPIC, value='xx"}', **{"from": "beginning"})
    assert searched.text.count('<tr id="m0-') == 3


def test_no_response_has_the_secret_of_a_large_value(console: ConsoleInProcess) -> None:
    place = {"topic": MASKED, "partition": 0, "offset": 1}
    answers = [
        console.get("/messages", topic=MASKED, **{"from": "beginning"}),
        console.get("/message", **place),
        console.get("/message/difference", **place, other_partition=0, other_offset=0),
        console.get("/messages/download", topic=MASKED, format="csv", **{"from": "beginning"}),
        console.get("/message/raw", **place, part="value"),
    ]
    assert [each.status for each in answers] == [200, 200, 200, 200, 403]
    for each in answers:
        assert SECRET.encode() not in each.body


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_messages_of_a_large_batch_are_not_sent_again(
    console: ConsoleInProcess, client: Client, compression: str
) -> None:
    topic = f"large-again-{compression}"
    client.create_topic(topic, 1, 1, {"max.message.bytes": "20000000"})
    config = {"compression.type": compression, "max.request.size": 20_000_000}
    with client.producer(**config) as producer:
        for value in (b"small", b"x" * LARGE_BYTES, b"small too"):
            producer.send(topic, value)
            producer.flush()
    refused = console.get("/resend", topic=topic, at="0-1")
    assert refused.status == 400
    assert "has offset 1 in a batch of 6 MiB or more" in refused.text
    # The large batch between two others is not decoded.
    query = f"topic={topic}&at=0-0&at=0-2"
    assert console.request("GET", "/resend", query=query).status == 200
