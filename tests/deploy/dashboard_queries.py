"""The queries of the dashboard, as Grafana would send them."""

from __future__ import annotations

import json
from typing import Any

from deploy.prometheus_server import ROOT

DASHBOARD = ROOT / "deploy/grafana/barnabas.json"


def panels() -> list[dict[str, Any]]:
    """The panels with queries, without the headings of rows."""
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return [each for each in found if each["type"] != "row"]


def filled(expression: str, rate_interval: str = "10s", **chosen: str) -> str:
    """Return a query with the values of its variables.

    Args:
        expression: the query.
        rate_interval: the period of rates.
        chosen: the filters for `instance`, `topic`, `group` and `query`; without one, all are
            chosen.
    """
    everything = dict.fromkeys(("instance", "topic", "group", "query"), ".*")
    values = {"job": "barnabas", "__rate_interval": rate_interval, **everything, **chosen}
    for name, value in values.items():
        expression = expression.replace(f"${name}", value)
    return expression
