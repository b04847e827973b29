"""The console's page of messages with a broker of each kind: search, filter, columns, downloads."""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import parse_qsl, urlencode

import pyarrow.parquet as pq
import pytest

from barnabas.client.facade import Client
from barnabas.console.messages.masking import MaskRule
from barnabas.console.settings import ConsoleSettings, SearchLimits
from conformance.console_brokers import SECONDS, address, client
from console_in_process import Answer, ConsoleInProcess
from waiting import eventually, eventually_equal

pytestmark = pytest.mark.conformance
__all__ = ["address", "client"]

COUNT = 600
TOPIC = "console-orders"
HOSTILE = '"><script>alert(1)</script>'
# Pages wait for their searches, so that no test sees one that still runs.
LIMITS = SearchLimits(page_seconds=SECONDS)
BEGINNING = {"from": "beginning"}


def _value(number: int) -> bytes | None:
    if number == 7:
        return None
    order = {"n": number, "amount": number / 2, "customer": {"id": number % 10, "name": "Ann"}}
    if number == 10:
        order["note"] = HOSTILE
    return json.dumps(order, separators=(",", ":")).encode()


def _headers(number: int) -> list[tuple[str, bytes]]:
    return [("trace", b"%d" % (number % 5))]


@pytest.fixture(scope="module", autouse=True)
def topic(client: Client) -> str:
    """A topic with two partitions, over which the orders are spread."""
    client.create_topic(TOPIC, 2, 1, {"retention.ms": "-1"})
    with client.producer() as producer:
        for partition in range(2):
            numbers = range(partition, COUNT, 2)
            records = [(b"order-%d" % n, _value(n), _headers(n), 1000 * n) for n in numbers]
            producer.send_batch(TOPIC, records, partition)
    return TOPIC


@pytest.fixture(scope="module")
def console(address: str) -> Iterator[ConsoleInProcess]:
    settings = ConsoleSettings(
        address, {}, interval=3600.0, timeout=SECONDS, search=LIMITS, costly_per_minute=0
    )
    with ConsoleInProcess(settings) as running:
        yield running


def found(page: Answer) -> list[int]:
    """Return the number of each order on a page."""
    assert page.status == 200, page.text
    places = re.findall(r">(\d+):(\d+)</a>", page.text)
    return [2 * int(offset) + int(partition) for partition, offset in places]


def follow(console: ConsoleInProcess, page: Answer, text: str) -> Answer | None:
    """Return the page behind a link; None if there is no such link."""
    link = re.search(rf'href="/messages\?([^"]*)"[^>]*>{text}</a>', page.text)
    return None if link is None else console.get("/messages", **dict(parse_qsl(unescape(link[1]))))


@pytest.mark.parametrize(
    ("fields", "numbers"),
    [
        ({"value": '"amount": 67.5'}, [135]),
        ({"value": '"amount":67.5'}, [135]),
        ({"text": "ORDER-13", "case": "ignore", "partition": 0}, [138, 136, 134, 132, 130]),
        ({"filter": "value.amount == 67.5"}, [135]),
        ({"filter": "value.amount > 298.0 && partition == 1"}, [599, 597]),
        ({"filter": 'has(value.note) && value.note.contains("script")'}, [10]),
        ({"filter": "value == null"}, [7]),
        ({"filter": 'key.endsWith("-13") && headers.trace == "3"'}, [13]),
        ({"filter": 'time == timestamp("1970-01-01T00:05:00Z")'}, [300]),
        ({"filter": "value.n > 590", "text": '"id": 7'}, [597]),
        ({"offset": 299}, [598, 599]),
        ({"time": "1970-01-01T00:09:58", "zone": "UTC"}, [598, 599]),
        ({"time": "1970-01-01T01:09:58", "zone": "Europe/Vienna"}, [598, 599]),
    ],
)
def test_messages_are_found(
    console: ConsoleInProcess, fields: dict[str, object], numbers: list[int]
) -> None:
    assert found(console.get("/messages", topic=TOPIC, **fields)) == numbers


@pytest.mark.parametrize(("text", "first"), [("Older messages", {}), ("Next messages", BEGINNING)])
def test_pages_go_through_all_messages(
    console: ConsoleInProcess, text: str, first: dict[str, str]
) -> None:
    page: Answer | None = console.get("/messages", topic=TOPIC, limit=250, **first)
    numbers: list[int] = []
    while page is not None:
        numbers += found(page)
        last, page = page, follow(console, page, text)
    assert "Everything was examined" in last.text
    assert sorted(numbers) == list(range(COUNT))
    if not first:
        assert numbers == sorted(numbers, reverse=True)


def test_found_messages_are_sorted_by_a_header(console: ConsoleInProcess) -> None:
    fields = {"filter": "value.n < 13", "columns": "value.n,size", **BEGINNING}
    page: Answer | None = console.get("/messages", topic=TOPIC, **fields)
    assert page is not None
    numbers = sorted(found(page))
    for expected in (numbers, numbers[::-1]):
        page = follow(console, page, "value.n")
        assert page is not None
        assert found(page) == expected
    assert 'aria-sort="descending"' in page.text


def test_a_filter_that_is_not_valid_shows_the_place(console: ConsoleInProcess) -> None:
    page = console.get("/messages", topic=TOPIC, filter="value.n >> 1")
    assert page.status == 400
    assert "<pre>value.n &gt;&gt; 1\n         ^</pre>" in page.text
    assert 'value="value.n &gt;&gt; 1"' in page.text
    for path in ("/messages/download", "/messages/tail"):
        assert console.get(path, topic=TOPIC, filter="value.n >> 1").status == 400


def test_messages_for_which_a_filter_fails_are_counted(console: ConsoleInProcess) -> None:
    page = console.get("/messages", topic=TOPIC, filter='value.note != ""')
    assert found(page) == [10]
    assert "the filter failed for 599 of them" in page.text
    assert "there is no member &#34;note&#34;" in page.text


def test_paths_are_columns_which_are_added_and_removed_by_links(console: ConsoleInProcess) -> None:
    columns = "time,size,value.customer.id,headers.trace,value.note"
    page = console.get(
        "/messages", topic=TOPIC, columns=columns, zone="Asia/Tokyo", offset=5, limit=1
    )
    [row] = re.findall(r'<tr id="m.*?</tr>', page.text, re.DOTALL)
    cells = [
        re.sub(r"<[^>]+>", "", each).strip() for each in re.findall(r"<td.*?</td>", row, re.DOTALL)
    ]
    number = found(page)[0]
    assert cells[0].startswith("1970-01-01 09:00:1")
    assert cells[0].endswith("+09:00")
    assert cells[2:4] == [str(number % 10), str(number % 5)]
    assert ("\u2013" if number != 10 else HOSTILE) in unescape(cells[4])
    assert "<script>alert" not in page.text
    added = follow(console, page, "value.customer.name")
    assert added is not None
    assert 'data-label="value.customer.name" class="value text">Ann</td>' in added.text
    removed = follow(console, page, "\u00d7")
    assert removed is not None
    assert 'data-label="Time"' not in removed.text
    assert console.get("/messages", topic=TOPIC, columns="value[").status == 400


def test_the_zone_is_remembered_by_the_browser(console: ConsoleInProcess) -> None:
    chosen = console.get("/messages", topic=TOPIC, zone="Europe/Vienna", limit=1)
    cookie = chosen.headers["set-cookie"].split(";")[0]
    request = {"query": urlencode({"topic": TOPIC, "limit": 1}), "headers": {"cookie": cookie}}
    assert "1970-01-01 01:09:59.000+01:00" in console.request("GET", "/messages", **request).text
    assert console.get("/messages", topic=TOPIC, zone="Nowhere").status == 400


@pytest.mark.parametrize(
    ("field", "wrong"), [("time", "soon"), ("offset", "-5"), ("zone", "Nowhere"), ("limit", "0")]
)
def test_a_wrong_field_of_a_search_keeps_the_form(
    console: ConsoleInProcess, field: str, wrong: str
) -> None:
    page = console.get("/messages", topic=TOPIC, text="kept words", **{field: wrong})
    assert page.status == 400
    assert 'value="kept words"' in page.text
    assert re.search(rf'role="alert">[^<]*{re.escape(wrong)}', page.text)


def test_results_are_downloaded(console: ConsoleInProcess) -> None:
    fields = {
        "topic": TOPIC,
        "filter": "value.n >= 590",
        "columns": "offset,value.n,time",
        **BEGINNING,
    }
    lines = console.get("/messages/download", format="jsonl", **fields)
    assert lines.headers["content-disposition"] == f'attachment; filename="{TOPIC}.jsonl"'
    rows = [json.loads(line) for line in lines.body.splitlines()]
    assert sorted(row["value.n"] for row in rows) == list(range(590, 600))
    text = console.get("/messages/download", format="csv", **fields).text.splitlines()
    assert text[0] == "offset,value.n,time"
    assert "295,590,1970-01-01T00:09:50.000Z" in text
    data = console.get("/messages/download", format="parquet", **fields).body
    assert pq.read_table(io.BytesIO(data)).column("value.n").to_pylist()[0] in ("590", "591")
    assert console.get("/messages/download", format="xlsx", **fields).status == 400
    assert console.get("/messages/download", topic="absent").status == 404


def test_a_long_search_shows_how_far_it_is_stops_and_goes_on(address: str) -> None:
    """Each look ends at once, and each round examines few records."""
    limits = SearchLimits(records=100, page_seconds=0.0)
    settings = ConsoleSettings(address, {}, interval=3600.0, search=limits, costly_per_minute=0)
    search = {"topic": TOPIC, "value": '"n": 299,', **BEGINNING}
    with ConsoleInProcess(settings) as running:
        values = (f'"n": {number},' for number in itertools.count(300))

        def stop() -> bool:
            """Stop a new search; it may have reached its limit of records before."""
            page = running.get("/messages", **{**search, "value": next(values)})
            stopped = follow(running, page, "Stop")
            return stopped is not None and "it was stopped" in stopped.text

        eventually(stop)
        page = running.get("/messages", **search)
        [job] = set(re.findall(r"job=(\w+)", page.text))
        state: list[str] = []

        def go_on() -> str:
            part = running.get("/found", topic=TOPIC, job=job, have=-1)
            state[:] = re.findall(r'data-state="(\w+)"', part.text)
            if state == ["paused"]:
                running.get("/messages", **search, job=job, do="go")
            return part.text if state == ["done"] else ""

        eventually_equal(lambda: ">1:149</a>" in go_on(), True)
        text = running.get("/found", topic=TOPIC, job=job, have=1).text
        assert "<strong>1</strong> found" in text
        assert 'id="messages"' not in text
        assert running.get("/found", topic=TOPIC, job="other").status == 404


SECRET = "topsecret-4711"


def test_a_masked_part_leaves_the_console_by_no_way(address: str) -> None:
    topic = "console-masked"
    value = json.dumps({"secret": SECRET, "open": "shown"}).encode()
    with Client(address) as client:
        client.create_topic(topic, 1, 1)
        with client.producer() as producer:
            producer.send(topic, value, b"shown", headers=[("token", SECRET.encode())])
    rules = (MaskRule("console-masked", "value", ("secret",)), MaskRule("console-masked", "header"))
    settings = ConsoleSettings(
        address, {}, interval=3600.0, search=LIMITS, masks=rules, costly_per_minute=0
    )
    part = SECRET[:9]
    with ConsoleInProcess(settings) as running:
        for fields in (
            {}, {"columns": "value.secret,headers.token,value,key"}, {"open": 1},
            {"filter": 'value.open == "shown"'}, {"filter": "value.secret == headers.token"},
            {"filter": "value.secret"}, {"filter": "headers"},
        ):  # fmt: skip
            page = running.get("/messages", topic=topic, **fields)
            assert part not in page.text, fields
        for fields in ({"text": part}, {"header": f"token={part}"},
                       {"filter": f'value.secret.startsWith("{part}")'}):  # fmt: skip
            assert found(running.get("/messages", topic=topic, **fields)) == [], fields
        for name in ("jsonl", "csv", "parquet"):
            for columns in ("", "value.secret,value.open,headers.token"):
                answer = running.get(
                    "/messages/download", topic=topic, format=name, columns=columns
                )
                data = answer.body
                if name == "parquet":
                    data = str(pq.read_table(io.BytesIO(data)).to_pylist()).encode()
                assert b"shown" in data
                assert part.encode() not in data
