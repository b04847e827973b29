"""Lists on pages of the console: their headers sort them, and the address keeps it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from barnabas.client.facade import Client
from barnabas.console.connect.addresses import connect_settings
from barnabas.console.settings import ConsoleSettings
from barnabas.spark.metrics import QueryMetrics, QueryMetricsServer
from barnabas.testing.broker_process import BrokerProcess
from console_in_process import FORM, HOST, ConsoleInProcess, table_rows
from unit.console.connect_server import SINK, ConnectServer
from unit.console.samples import owned
from unit.spark.query_batches import batch
from waiting import eventually

TOPIC, MANY, GROUP = "sorted-lists", "sorted-partitions", "sorted-group"
HEADERS = [("b", b"2"), ("a", b"3"), ("c", b"1")]
MESSAGE = {"topic": TOPIC, "partition": 0, "offset": 0}


@pytest.fixture(scope="module")
def console() -> Iterator[ConsoleInProcess]:
    metrics = QueryMetrics()
    for name in ("alpha", "beta"):
        metrics.on_started(name)
        metrics.on_progress(name, batch())
    with (
        BrokerProcess() as broker,
        QueryMetricsServer(metrics, "127.0.0.1", 0) as driver,
        ConnectServer() as connect,
    ):
        connect.add("orders", table="orders", mode="upsert")
        connect.offsets["orders"] = [
            {"partition": {"file": name}, "offset": {"line": line}}
            for name, line in (("a", 2), ("b", 1))
        ]
        with Client(broker.bootstrap) as client:
            client.create_topic(TOPIC, 3, 1, {"retention.ms": "-1", "cleanup.policy": "compact"})
            client.create_topic(MANY, 12, 1)
            with client.producer() as producer:
                for value in (b"bb", b"a", b"ccc"):
                    producer.send(TOPIC, value, b"key", partition=0, headers=HEADERS)
                    producer.flush()
                for partition in range(12):
                    producer.send(MANY, b"v", partition=partition)
            client.commit_offsets(GROUP, {(MANY, number): number % 2 for number in range(12)})
        settings = ConsoleSettings(
            broker.bootstrap,
            {},
            interval=0.2,
            allow_changes=True,
            queries=(driver.address,),
            connect=connect_settings([f"local={connect.url}"], {}),
        )
        with ConsoleInProcess(settings) as running:
            eventually(lambda: "alpha" in running.get("/pipelines").text)
            running.log_in()
            yield running


@pytest.mark.parametrize(
    ("page", "fields", "sort", "first", "last"),
    [
        ("/topic", {"name": TOPIC}, "set.sort=-name", "retention.ms", "cleanup.policy"),
        ("/topic", {"name": TOPIC}, "config.sort=-name", "segment.ms", "flush.ms"),
        ("/broker", {"id": 1}, "replicas.sort=-partition", f"{TOPIC} :2", f"{TOPIC} :0"),
        ("/pipelines", {}, "queries0.sort=-query", "beta", "alpha"),
        ("/connect", {}, "plugins.local.sort=-class", SINK, "org.example.Rename"),
        ("/connect/connector", {}, "config.sort=-name", "table", "mode"),
        ("/connect/connector", {}, "offsets.sort=offset", '{"file": "b"}', '{"file": "a"}'),
        ("/message", MESSAGE, "headers.sort=-name", "c", "a"),
        ("/message", MESSAGE, "headers.sort=number", "b", "a"),
        ("/message", MESSAGE, "headers.sort=value", "c", "b"),
        ("/message/versions", MESSAGE, "versions.sort=offset", "0", "1"),
        ("/message/versions", MESSAGE, "versions.sort=-offset", "2 newest", "1"),
        ("/message/versions", MESSAGE, "versions.sort=-size", "2 newest", "0"),
        ("/message/versions", MESSAGE, "versions.sort=value", "1", "0"),
    ],
)
def test_a_list_is_sorted_by_a_header(
    console: ConsoleInProcess, page: str, fields: dict[str, object], sort: str, first: str,
    last: str,
) -> None:  # fmt: skip
    if page == "/connect/connector":
        fields = {"cluster": "local", "name": "orders"}
    name, _, order = sort.partition("=")
    text = console.get(page, **fields, **{name: order}).text
    names = [" ".join(re.sub("&#34;", '"', each).split()) for each in table_rows(text)]
    assert names.index(first) < names.index(last), names
    # The header is a link that turns the order.
    assert re.search(rf'href="[^"]*{re.escape(name)}=', text)


def test_a_list_that_is_folded_away_is_open_when_the_address_sorts_it(
    console: ConsoleInProcess,
) -> None:
    others = r"<details( open)?>\s*<summary>All other configs"
    closed = re.search(others, console.get("/topic", name=TOPIC).text)
    asked = re.search(others, console.get("/topic", name=TOPIC, **{"config.q": "segment"}).text)
    assert closed is not None
    assert closed[1] is None
    assert asked is not None
    assert asked[1] == " open"


def test_a_filter_looks_in_names_and_values_of_configs(console: ConsoleInProcess) -> None:
    fields = {"cluster": "local", "name": "orders", "config.q": "upsert"}
    rows = table_rows(console.get("/connect/connector", **fields).text)
    assert "mode" in rows
    assert "table" not in rows


@pytest.mark.parametrize(
    ("page", "name", "query", "found", "hidden"),
    [
        ("/transactions/producers", "q", f"{MANY}:11", "11", "10"),
        ("/transactions/producers", "q", f"{MANY}-11", "11", "10"),
        ("/group", "q", f"{MANY}:11", f"{MANY}:11", f"{MANY}:10"),
        ("/pipelines", "queries0.q", "ALPHA running", "alpha", "beta"),
    ],
)
def test_a_list_is_filtered_by_words(
    console: ConsoleInProcess, page: str, name: str, query: str, found: str, hidden: str
) -> None:
    rows = table_rows(console.get(page, **{"topic": MANY, "id": GROUP, name: query}).text)
    names = [each.replace(" ", "") for each in rows]
    assert found in names
    assert hidden not in names


def test_a_filter_of_brokers_looks_in_ids_addresses_and_states(console: ConsoleInProcess) -> None:
    for query, is_found in (("127.0.0.1 active", True), ("fenced", False)):
        page = console.get("/", **{"brokers.q": query}).text
        assert (f"Nothing matches {query}" in page) is not is_found


def test_a_long_list_of_producers_has_a_filter_that_keeps_its_topic(
    console: ConsoleInProcess,
) -> None:
    page = console.get("/transactions/producers", topic=MANY).text
    assert re.search(rf'name="topic" value="{MANY}">\s*<label>Partition or producer id', page)


def test_the_difference_of_a_version_is_that_from_the_one_before_in_any_order(
    console: ConsoleInProcess,
) -> None:
    for order in ("offset", "-offset", "value"):
        rows = table_rows(
            console.get("/message/versions", **MESSAGE, **{"versions.sort": order}).text
        )
        found = {name.split()[0]: row["Difference"] for name, row in rows.items()}
        assert found == {"0": "the oldest", "1": "from 0", "2": "from 1"}


def test_partitions_that_moved_are_sorted_by_their_owners(console: ConsoleInProcess) -> None:
    assignments = console.console.history.assignments
    for at, owners in enumerate((("x", "z", "y"), ("c", "a", "b"))):
        assignments.add(GROUP, at, owned(*owners))
    # Samples add that nothing is read.
    [index] = [
        index
        for index, each in enumerate(assignments.of(GROUP))
        if set(each.owners.values()) == {"a", "b", "c"}
    ]
    for order, wanted in (
        ("-partition", ["t:2", "t:1", "t:0"]),
        (str(index), ["t:1", "t:2", "t:0"]),
        (f"-{index}", ["t:0", "t:2", "t:1"]),
    ):
        page = console.get("/group", id=GROUP, **{"moved.sort": order}).text
        assert [each for each in table_rows(page) if each.startswith("t:")] == wanted


PURGE = {"name": MANY, "to": "offset", "offset": 1}


def previewed(console: ConsoleInProcess, query: str, **more: str) -> list[list[str]]:
    """Return the rows of a preview, whose form is sent to an address with this query."""
    console.forms_page = f"/topic?name={MANY}"
    fields = {"csrf": console.token, "here": console.forms_page, **PURGE, **more}
    body = urlencode(fields).encode()
    headers = {"content-type": FORM, "origin": f"http://{HOST}"}
    answer = console.request("POST", "/topic/purge", query, headers, body)
    assert answer.status == 200, answer.text
    assert 'name="confirmed" value="1"' in answer.text
    return [
        [
            re.sub(r"<[^>]+>|\s+", " ", cell).strip()
            for cell in re.findall(r"<t[hd].*?</t[hd]>", row)
        ]
        for row in re.findall(r"<tr>\s*<th scope=\"row\".*?</tr>", answer.text, re.DOTALL)
    ]


def test_a_preview_is_sorted_by_sending_its_form_again(console: ConsoleInProcess) -> None:
    names = [row[0] for row in previewed(console, "")]
    assert len(names) == 12
    backwards = [row[0] for row in previewed(console, "sort=-0")]
    # Numbers of partitions are numbers.
    assert backwards == [f"{MANY}-{number}" for number in range(11, -1, -1)]
    assert sorted(names) == sorted(backwards)


def test_the_headers_of_a_preview_are_buttons_of_a_form_without_the_confirmation(
    console: ConsoleInProcess,
) -> None:
    console.forms_page = f"/topic?name={MANY}"
    page = console.preview("/topic/purge", **PURGE).text
    again = re.search(r'<form [^>]*id="again".*?</form>', page, re.DOTALL)
    assert again is not None
    assert "confirmed" not in again[0]
    assert 'name="offset" value="1"' in again[0]
    assert re.search(
        r'<button class="link" form="again" formaction="/topic/purge\?sort=[^"]+">Partition<', page
    )


def test_a_preview_is_filtered_and_changes_all_rows(console: ConsoleInProcess) -> None:
    rows = previewed(console, "sort=-0", **{"preview.q": "many-11"})
    assert not rows
    rows = previewed(console, "sort=-0", **{"preview.q": "partitions-1"})
    assert [row[0] for row in rows] == [f"{MANY}-{number}" for number in (11, 10, 1)]
    console.forms_page = f"/topic?name={MANY}"
    page = console.preview("/topic/purge", **PURGE, **{"preview.q": "partitions-1"}).text
    assert "3 of 12 rows are shown. The button below applies to all of them." in page
    limits = re.search(r'name="limits" value="([^"]*)"', page)
    assert limits is not None
    assert len(limits[1].split()) == 12
    # The filter belongs to the page, and not to the change.
    confirmation = page[page.rindex("<form") :]
    assert 'name="confirmed"' in confirmation
    assert "preview.q" not in confirmation


def test_the_audit_log_has_counts_of_a_preview_as_numbers(console: ConsoleInProcess) -> None:
    console.forms_page = f"/topic?name={TOPIC}"
    fields = {"name": TOPIC, "partitions": "5"}
    console.change("/topic/partitions", **fields, confirmed="1")
    effects = console.console.shared.audit.entries[0]["effects"]
    assert effects == [["Topic", "Partitions now", "Partitions after"], [TOPIC, 3, 5]]
