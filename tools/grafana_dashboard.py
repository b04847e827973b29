"""Writes deploy/grafana/barnabas.json: `python -m tools.grafana_dashboard`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.dashboard_panels import ROWS, Panel, Query

DASHBOARD = Path(__file__).parents[1] / "deploy" / "grafana" / "barnabas.json"
JOB = 'job="$job"'
# The nodes that the user has chosen.
INSTANCES = f'{JOB}, instance=~"$instance"'
_WIDTH = 24
# Width and height of the panels of each kind.
_SIZES = {"stat": (3, 4), "timeseries": (8, 7)}
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

FILTERS = (
    ("instance", "Node", 'label_values(up{job="$job"}, instance)'),
    ("topic", "Topic", 'label_values(kafka_log_log_size{job="$job"}, topic)'),
    ("group", "Group", "label_values(barnabas:consumergroup_lag, consumergroup)"),
    ("query", "Query", "label_values(barnabas_query_running, query)"),
)


def queries(panel: Panel) -> list[Query]:
    """Return the panel's queries with the selector of the nodes.

    Numbers are those of the whole cluster: only the active controller counts offline partitions.
    """
    selector = JOB if panel.kind == "stat" else INSTANCES
    return [Query(query.expression.replace("@", selector), query.legend) for query in panel.queries]


def dashboard() -> dict[str, Any]:
    """Return the dashboard in Grafana's format."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row in ROWS:
        panels.append(_heading(row.question, top))
        panels += [_panel(each, index, top + 1) for index, each in enumerate(row.panels)]
        top = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in panels)
    for number, panel in enumerate(panels, 1):
        panel["id"] = number
    return {
        "uid": "barnabas",
        "title": "Barnabas",
        "tags": ["barnabas", "kafka"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Prometheus",
                    "type": "datasource",
                    "query": "prometheus",
                },
                {
                    "name": "job",
                    "label": "Job",
                    "type": "query",
                    "datasource": _DATASOURCE,
                    "query": "label_values(barnabas_build_info, job)",
                    "refresh": 1,
                },
                *(_filter(*each) for each in FILTERS),
            ]
        },
        "panels": panels,
    }


def _filter(name: str, label: str, query: str) -> dict[str, Any]:
    """Return a variable with which the user chooses some values of a label, or all."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _DATASOURCE,
        "query": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _heading(question: str, top: int) -> dict[str, Any]:
    return {
        "type": "row",
        "title": question,
        "collapsed": False,
        "gridPos": {"x": 0, "y": top, "w": _WIDTH, "h": 1},
        "panels": [],
    }


def _panel(panel: Panel, index: int, top: int) -> dict[str, Any]:
    width, height = _SIZES[panel.kind]
    a_row = _WIDTH // width
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red_from is not None:
        steps.append({"color": "red", "value": panel.red_from})
    if panel.kind == "stat":
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _DATASOURCE,
        "gridPos": {
            "x": index % a_row * width,
            "y": top + index // a_row * height,
            "w": width,
            "h": height,
        },
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": _DATASOURCE,
                "expr": query.expression,
                "legendFormat": query.legend,
            }
            for number, query in enumerate(queries(panel))
        ],
    }


def text() -> str:
    """Return the contents of the file."""
    return json.dumps(dashboard(), indent=2) + "\n"


if __name__ == "__main__":
    DASHBOARD.parent.mkdir(parents=True, exist_ok=True)
    DASHBOARD.write_text(text())
