"""The first page of the console and that of a broker: health, figures, charts over time."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from barnabas.client.facade import Client
from barnabas.console.settings import ConsoleSettings
from conformance.console_brokers import address
from console_in_process import ConsoleInProcess, table_rows

pytestmark = pytest.mark.conformance
__all__ = ["address"]

TOPIC = "console-looks"
GROUP = "console-looks-group"


@pytest.fixture(scope="module")
def console(address: str) -> Iterator[ConsoleInProcess]:
    with Client(address) as client:
        client.create_topic(TOPIC, 2, 1)
        with (
            ConsoleInProcess(ConsoleSettings(address, {}, interval=3600.0, timeout=60)) as made,
            client.producer() as producer,
        ):
            for _ in range(3):
                producer.send(TOPIC, b"value").result()
                client.commit_offsets(GROUP, {(TOPIC, 0): 0})
                made.sample()
            yield made


def test_the_cluster_page_shows_health_brokers_and_charts(console: ConsoleInProcess) -> None:
    text = console.get("/").text
    assert "Healthy: all brokers serve clients" in text
    brokers = re.search(r"<table[^>]*>\s*<caption>Brokers.*?</table>", text, re.DOTALL)
    assert brokers is not None
    broker = table_rows(brokers[0])["1"]
    assert broker["State"].split() == ["active", "controller"]
    assert broker["Kafka features"] == "4.4"
    assert "Machine" not in broker
    assert int(re.sub(r"\D", "", broker["Leads"])) >= 2
    assert broker["Out of sync"] == "0"
    assert re.fullmatch(r"[\d.]+ \w*B", broker["Logs"])
    titles = re.findall(r'<svg class="axes" role="img" aria-label="([^;"]+) from', text)
    assert "Records written" in titles
    assert any(each.startswith(("Lag of groups", "Largest lags")) for each in titles)
    assert f'<a href="/topic?name={TOPIC}">' in text


@pytest.mark.parametrize("span", ["15m", "1h", "6h", "24h"])
def test_the_address_chooses_the_span_of_the_charts(console: ConsoleInProcess, span: str) -> None:
    text = console.get("/", span=span).text
    assert f'<a href="/?span={span}" aria-current="true">{span}</a>' in text
    assert text.count('aria-current="true">') == 1 + text.count('aria-current="true">Cluster')


def test_the_page_of_a_broker_shows_its_figures_and_its_configs(
    console: ConsoleInProcess,
) -> None:
    text = console.get("/broker", id=1).text
    figures = dict(re.findall(r"<dt>([^<]+)</dt><dd[^>]*>([^<]+)", text))
    assert figures["State"].strip() == "active"
    assert figures["Kafka features"] == "4.4"
    assert figures["Out of sync"] == "0"
    assert "Log directories" in text
    found = console.get("/broker", id=1, **{"config.q": "node.id"}).text
    assert table_rows(found)["node.id"]["Value"] == "1"
