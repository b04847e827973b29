"""The rules, their histories and the dashboard name metrics that brokers and drivers expose."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from barnabas.metrics.catalogue import CATALOGUE, QUERY_CATALOGUE
from barnabas.metrics.metrics_listener import exposition_name
from barnabas.metrics.registry import MetricKind
from deploy.dashboard_queries import DASHBOARD
from deploy.prometheus_server import RULES

HISTORIES = Path(__file__).parent / "rules_test.yml"


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


def rules() -> list[dict[str, str]]:
    return [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]


def histories() -> list[str]:
    tests = yaml.safe_load(HISTORIES.read_text())["tests"]
    return [series["series"] for test in tests for series in test["input_series"]]


def panels() -> list[str]:
    found = json.loads(DASHBOARD.read_text())
    filters = [each["query"] for each in found["templating"]["list"]]
    return filters + [each["expr"] for panel in found["panels"] for each in panel["targets"]]


@pytest.mark.parametrize(
    "expressions",
    [[rule["expr"] for rule in rules()], histories(), panels()],
    ids=["rules", "histories", "panels"],
)
def test_every_named_metric_exists(expressions: list[str]) -> None:
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    # The values of labels are no metrics.
    plain = [re.sub(r'"[^"]*"', "", each) for each in expressions]
    named = {name for each in plain for name in METRIC.findall(each)}
    assert len(named) > 15
    assert named - recorded - exposed() == set()
