"""Lists on pages of the console: their headers sort them, and the address keeps it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from barnabas.client.facade import Client
from barnabas.console.connect.addresses import connect_settings
from barnabas.console.settings import ConsoleSettings
from barnabas.spark.metrics import QueryMetrics, QueryMetricsServer
from barnabas.testing.broker_process import BrokerProcess
from console_in_process import ConsoleInProcess, table_rows
from unit.console.connect_server import SINK, ConnectServer
from unit.spark.query_batches import batch
from waiting import eventually

TOPIC = "sorted-lists"


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
        settings = ConsoleSettings(
            broker.bootstrap,
            {},
            interval=0.2,
            queries=(driver.address,),
            connect=connect_settings([f"local={connect.url}"], {}),
        )
        with ConsoleInProcess(settings) as running:
            eventually(lambda: "alpha" in running.get("/pipelines").text)
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
    names = [re.sub("&#34;", '"', each) for each in table_rows(text)]
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
