"""A console whose brokers stop and come back, beside a cluster that goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.client.facade import Client
from barnabas.console.settings import ClusterSettings, ConsoleSettings
from barnabas.testing.broker_process import BrokerProcess
from console_in_process import ConsoleInProcess, table_rows
from waiting import eventually

pytestmark = pytest.mark.conformance

SECONDS = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("stopping")) as running:
        yield running


def test_pages_show_their_last_data_until_the_brokers_are_back(
    broker: BrokerProcess, clients_bootstrap: str
) -> None:
    with Client(broker.bootstrap) as client:
        client.create_topic("kept", 1, 1)
    settings = ConsoleSettings(
        "",
        {},
        clusters=(
            ClusterSettings("east", broker.bootstrap, {}),
            ClusterSettings("west", clients_bootstrap, {}),
        ),
        interval=3600.0,
        timeout=SECONDS,
    )
    with ConsoleInProcess(settings) as console:
        east, west = console.site.consoles
        eventually(lambda: "kept" in console.get("/east/topics").text)
        broker.stop()
        eventually(lambda: east.cluster.reachability.is_down)
        # The page is shown at once: it may wait for a minute.
        answer = console.get("/east/topics")
        assert answer.status == 200
        assert "kept" in answer.text
        assert "No broker responds since 20" in answer.text
        assert "This page shows what was known at 20" in answer.text
        # A page that was not shown before has no data.
        assert console.get("/east/groups").status == 503
        assert console.get("/west/groups").status == 200
        assert not west.cluster.reachability.is_down
        rows = table_rows(console.get("/").text)
        assert rows["east"]["State"] == "no broker responds"
        assert rows["west"]["State"] != "no broker responds"
        broker.restart()
        eventually(lambda: console.get("/east/groups").status == 200)
        assert "No broker responds" not in console.get("/east/topics").text
