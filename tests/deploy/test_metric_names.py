"""The rules, their histories and the dashboard name metrics that brokers and drivers expose."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from barnabas.metrics.catalogue import CATALOGUE, QUERY_CATALOGUE
from barnabas.metrics.metrics_listener import exposition_name
from barnabas.metrics.registry import MetricKind
from deploy.dashboard_queries import DASHBOARD, panels
from deploy.prometheus_server import ROOT, RULES
from page_anchors import anchors

HISTORIES = [Path(__file__).with_name(f"rules_{name}.yml") for name in ("test", "long_test")]


SUFFIXES = {
    MetricKind.COUNTER: ("_total",),
    MetricKind.GAUGE: ("",),
    MetricKind.SUMMARY: ("", "_sum", "_count"),
    MetricKind.HISTOGRAM: ("_bucket", "_sum", "_count"),
}
METRIC = re.compile(r"\b(?:barnabas|kafka)[_:][\w:]+")


def exposed() -> set[str]:
    """All names in the text of a scrape."""
    return {
        exposition_name(name, row.kind) + suffix
        for name, row in (CATALOGUE | QUERY_CATALOGUE).items()
        for suffix in SUFFIXES[row.kind]
    }


def rules() -> list[dict[str, Any]]:
    return [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def histories() -> list[str]:
    tests = [test for path in HISTORIES for test in yaml.safe_load(path.read_text())["tests"]]
    return [series["series"] for test in tests for series in test["input_series"]]


def dashboard() -> list[str]:
    found = json.loads(DASHBOARD.read_text())
    filters = [each["query"] for each in found["templating"]["list"]]
    return filters + [each["expr"] for panel in panels() for each in panel["targets"]]


@pytest.mark.parametrize(
    "expressions",
    [[rule["expr"] for rule in rules()], histories(), dashboard()],
    ids=["rules", "histories", "panels"],
)
def test_every_named_metric_exists(expressions: list[str]) -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    # The values of labels are no metrics.
    plain = [re.sub(r'"[^"]*"', "", each) for each in expressions]
    named = {name for each in plain for name in METRIC.findall(each)}
    assert len(named) > 15
    assert named - recorded - exposed() == set()


RUNBOOK = ROOT / "docs/runbook.md"


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_each_alert_tells_what_to_do_and_where_it_is_described(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("critical", "warning")
    assert {"summary", "action", "runbook_url"} == set(alert["annotations"])
    page, _, section = alert["annotations"]["runbook_url"].partition("#")
    assert page == "docs/runbook.md"
    assert section in anchors(RUNBOOK.read_text())
