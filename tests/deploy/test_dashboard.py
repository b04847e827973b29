"""Queries of the dashboard and the rules against a real Prometheus that scrapes brokers."""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.dashboard_queries import DASHBOARD, filled, panels
from deploy.observed_cluster import Observed, observed_cluster
from deploy.prometheus_server import CONFIGURATION, IS_INSTALLED, RULES
from tools.grafana_dashboard import text
from waiting import eventually

HISTORIES = [Path(__file__).with_name(f"rules_{name}.yml") for name in ("test", "long_test")]
# How long a follower is paused. It stays in the ISR, so that producers wait for it.
SPIKE_S = 4.0
# Numbers of a cluster in which all is well.
HEALTHY = {
    "Nodes up": 3,
    "Active controllers": 1,
    "Silent voters": 0,
    "Offline partitions": 0,
    "Under min ISR": 0,
    "Offline directories": 0,
}

pytestmark = pytest.mark.skipif(not IS_INSTALLED, reason="prometheus is missing")


def expressions() -> dict[str, list[str]]:
    """The queries of each panel, as Grafana would send them."""
    return {
        panel["title"]: [filled(target["expr"]) for target in panel["targets"]]
        for panel in panels()
    }


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    with observed_cluster(tmp_path_factory.mktemp("observed")) as found:
        yield found


@pytest.mark.conformance
@pytest.mark.parametrize("title", expressions())
def test_every_query_of_a_panel_returns_data(observed: Observed, title: str) -> None:
    for expression in expressions()[title]:
        eventually(
            lambda asked=expression: observed.prometheus.query(asked), f"no data: {expression}"
        )


@pytest.mark.conformance
@pytest.mark.parametrize(("title", "value"), HEALTHY.items())
def test_the_numbers_of_a_healthy_cluster_are_correct(
    observed: Observed, title: str, value: int
) -> None:
    [expression] = expressions()[title]
    eventually(
        lambda: (
            [float(each["value"][1]) for each in observed.prometheus.query(expression)] == [value]
        ),
        lambda: observed.prometheus.query(expression),
    )


@pytest.mark.conformance
def test_the_99th_percentile_shows_a_new_spike_and_forgets_it(observed: Observed) -> None:
    [expression] = expressions()["Time of requests, 99th percentile"]

    def produce_s() -> float:
        found = observed.prometheus.query(expression)
        times = [float(e["value"][1]) for e in found if e["metric"]["request"] == "Produce"]
        return next((time for time in times if not math.isnan(time)), 0.0)

    # Thousands of fast requests come before the spike.
    eventually(lambda: 0 < produce_s() < SPIKE_S / 4, produce_s)
    follower = observed.cluster.brokers[2]
    follower.pause()
    paused_s = time.monotonic()
    try:
        eventually(lambda: time.monotonic() - paused_s > SPIKE_S)
    finally:
        follower.resume()
    eventually(lambda: produce_s() > SPIKE_S / 4, produce_s)
    eventually(lambda: 0 < produce_s() < SPIKE_S / 4, produce_s)


@pytest.mark.conformance
def test_panels_are_filtered_by_node_topic_and_group(observed: Observed) -> None:
    by_title = {each["title"]: each for each in panels()}

    def shown(title: str, label: str, **chosen: str) -> set[str]:
        found = observed.prometheus.query(filled(by_title[title]["targets"][0]["expr"], **chosen))
        return {each["metric"][label] for each in found}

    instance = next(iter(shown("Resident memory", "instance")))
    assert shown("Resident memory", "instance", instance=instance) == {instance}
    for title in ("Records in", "Size of topics"):
        eventually(lambda title=title: shown(title, "topic", topic="orders") == {"orders"})
    for lag in ("Lag of groups in records", "Lag of groups in seconds"):
        eventually(
            lambda lag=lag: (
                shown(lag, "consumergroup", topic="orders", group="billing") == {"billing"}
            )
        )
        assert shown(lag, "consumergroup", group="another") == set()


@pytest.mark.conformance
def test_a_client_that_writes_much_is_named_with_its_bytes(observed: Observed) -> None:
    panel = next(each for each in panels() if each["title"] == "Clients with the most bytes in")
    expression = filled(panel["targets"][0]["expr"])

    def largest() -> str:
        found = observed.prometheus.query(expression)
        return max(found, key=lambda each: float(each["value"][1]))["metric"]["client_id"]

    eventually(lambda: observed.prometheus.query(expression) and largest() == "shop")


@pytest.mark.conformance
def test_quorum_alerts_fire_during_a_loss_and_end_afterwards(observed: Observed) -> None:
    first, second, _ = observed.cluster.brokers
    first.kill()
    second.kill()
    wanted = {"BarnabasQuorumLost", "BarnabasNoActiveController", "BarnabasNodeDown"}
    eventually(
        lambda: wanted <= observed.prometheus.firing(), observed.prometheus.firing, within_s=240
    )
    first.start()
    second.start()
    eventually(
        lambda: not wanted & observed.prometheus.firing(), observed.prometheus.firing, within_s=240
    )


def test_the_dashboard_equals_the_output_of_the_tool() -> None:
    assert DASHBOARD.read_text() == text()


def test_each_panel_answers_the_question_of_its_text() -> None:
    assert [each["title"] for each in panels() if "?" not in each["description"]] == []
    titles = [each["title"] for each in panels()]
    assert len(set(titles)) == len(titles)


def test_prometheus_accepts_configuration_and_rules() -> None:
    for words in (["check", "config", CONFIGURATION], ["check", "rules", RULES]):
        subprocess.run(["promtool", *words], check=True, cwd=CONFIGURATION.parent, timeout=120)


def test_each_alert_fires_only_on_its_own_history() -> None:
    done = subprocess.run(
        ["promtool", "test", "rules", *HISTORIES], check=False,
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    texts = [path.read_text() for path in HISTORIES]
    named = set(" ".join(texts).replace('"', " ").split())
    alerts = [line.split()[-1] for line in RULES.read_text().splitlines() if "- alert:" in line]
    assert not [name for name in alerts if name not in named]
