"""The queries of the dashboard, as Grafana would send them."""

from __future__ import annotations

from deploy.prometheus_server import ROOT

DASHBOARD = ROOT / "deploy/grafana/barnabas.json"


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
