"""Writes deploy/grafana/barnabas.json from the table below: `python tools/grafana_dashboard.py`."""

# ruff: noqa: E501 - a query is one line

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

DASHBOARD = Path(__file__).parents[1] / "deploy" / "grafana" / "barnabas.json"
JOB = 'job="$job"'
# The nodes that the user has chosen.
INSTANCES = f'{JOB}, instance=~"$instance"'
# Grafana replaces this by an interval of at least four scrapes.
RATE = "$__rate_interval"
_WIDTH = 24
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Query(NamedTuple):
    """One query of a panel."""

    # @ stands for the selector of the nodes.
    expression: str
    legend: str


class Panel(NamedTuple):
    """One panel: a number (`stat`) or lines over time (`timeseries`)."""

    title: str
    # Grafana's name of the unit: "short", "Bps", "ms", "s", "percentunit", "bytes".
    unit: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    text: str = ""
    # The smallest value at which the panel is red.
    red_from: float | None = None


def _number(title: str, expression: str, text: str, red_from: float | None = 1) -> Panel:
    return Panel(title, "short", (Query(expression, ""),), "stat", text, red_from)


_CONTROLLER = "kafka_controller_kafkacontroller"
# The topics that the user has chosen.
_TOPIC = 'topic=~"$topic"'

HEALTH = [
    _number("Nodes up", "sum(up{@})", "Nodes whose metrics can be read.", None),
    _number(
        "Active controllers",
        f"sum({_CONTROLLER}_activecontrollercount{{@}})",
        "1 in a healthy cluster.",
        2,
    ),
    _number(
        "Voters silent",
        "max(barnabas_quorum_silent_voters{@})",
        "More than 0: the metadata quorum is lost.",
    ),
    _number(
        "Offline partitions",
        f"max({_CONTROLLER}_offlinepartitionscount{{@}})",
        "Partitions without a leader.",
    ),
    _number(
        "Under min ISR",
        "sum(kafka_server_replicamanager_underminisrpartitioncount{@})",
        "Partitions to which producers with acks=all cannot write.",
    ),
    _number(
        "Under-replicated",
        "sum(kafka_server_replicamanager_underreplicatedpartitions{@})",
        "Partitions that have a replica out of sync.",
    ),
    _number(
        "Offline directories",
        "sum(kafka_log_logmanager_offlinelogdirectorycount{@})",
        "Data directories that have failed.",
    ),
    _number("Alerts", 'count(ALERTS{alertstate="firing"}) or vector(0)', "Alerts that fire."),
]

LINES = [
    Panel(
        "Records in",
        "short",
        (
            Query(
                f'sum by (topic) (rate(kafka_server_brokertopicmetrics_messagesin_total{{@, topic!="", {_TOPIC}}}[{RATE}]))',
                "{{topic}}",
            ),
        ),
        text="Records per second that producers wrote.",
    ),
    Panel(
        "Bytes in and out",
        "Bps",
        (
            *tuple(
                Query(
                    f'sum(rate(kafka_server_brokertopicmetrics_{name}_total{{@, topic=""}}[{RATE}]))',
                    legend,
                )
                for name, legend in (("bytesin", "in"), ("bytesout", "out"))
            ),
            Query(
                f"sum(rate(kafka_server_brokertopicmetrics_replicationbytesin_total{{@}}[{RATE}]))",
                "replication",
            ),
        ),
        text="Without the bytes of replication, which have a line of their own.",
    ),
    Panel(
        "Time of requests, 99th percentile",
        "s",
        (
            Query(
                f'histogram_quantile(0.99, sum by (request, le) (rate(barnabas_request_seconds_bucket{{@, request=~"Produce|Metadata|OffsetCommit"}}[{RATE}])))',
                "{{request}}",
            ),
        ),
        text="Of the requests in each interval. Fetches are left out: they wait for data.",
    ),
    Panel(
        "Requests",
        "short",
        (
            Query(
                f"sum by (request) (rate(kafka_network_requestmetrics_requests_total{{@}}[{RATE}])) > 0",
                "{{request}}",
            ),
        ),
        text="Per second, by API.",
    ),
    Panel(
        "Errors",
        "short",
        (
            Query(
                f'sum by (request, error) (rate(kafka_network_requestmetrics_errors_total{{@, error!="NONE"}}[{RATE}])) > 0',
                "{{request}} {{error}}",
            ),
        ),
        text="Per second. Empty when all is well; after an election clients hear NOT_LEADER_OR_FOLLOWER.",
    ),
    Panel(
        "Lag of groups",
        "short",
        (
            Query(
                f'barnabas:consumergroup_lag{{{_TOPIC}, consumergroup=~"$group"}}',
                "{{consumergroup}} {{topic}}",
            ),
        ),
        text="Records that a group has not committed. Recorded by barnabas-rules.yml.",
    ),
    Panel(
        "Lag of followers",
        "short",
        (
            Query(
                "max by (instance) (kafka_server_replicafetchermanager_maxlag{@})",
                "{{instance}}",
            ),
        ),
        text="Records by which the slowest replica of a broker is behind.",
    ),
    Panel(
        "Size of topics",
        "bytes",
        (Query(f"sum by (topic) (kafka_log_log_size{{@, {_TOPIC}}})", "{{topic}}"),),
        text="Bytes of all replicas, without indexes.",
    ),
    Panel(
        "Free disk",
        "percentunit",
        (
            Query(
                "barnabas_log_directory_usable_bytes{@} / barnabas_log_directory_bytes{@}",
                "{{instance}} {{logDirectory}}",
            ),
        ),
        text="Share of the file system of each data directory.",
    ),
    Panel(
        "Processor time",
        "percentunit",
        (Query(f"rate(process_cpu_seconds_total{{@}}[{RATE}])", "{{instance}}"),),
        text="A broker uses one core at most, but for what compression and compaction take.",
    ),
    Panel(
        "Resident memory",
        "bytes",
        (Query("process_resident_memory_bytes{@}", "{{instance}}"),),
        text="Without the page cache, in which the records are.",
    ),
    Panel(
        "Lag of the event loop",
        "s",
        (
            Query(
                f"rate(barnabas_loop_lag_seconds_sum{{@}}[{RATE}]) / rate(barnabas_loop_lag_seconds_count{{@}}[{RATE}])",
                "{{instance}}",
            ),
        ),
        text="How late timers are called, on average. All requests wait for so long.",
    ),
    Panel(
        "Long turns of the loop",
        "short",
        (
            Query(
                f"sum by (instance, clock) (rate(barnabas_loop_long_turns_total{{@}}[{RATE}]))",
                "{{instance}} {{clock}}",
            ),
        ),
        text="Turns over 100 ms per second. Only clock=cpu is the broker's own work.",
    ),
    Panel(
        "Open files",
        "percentunit",
        (Query("process_open_fds{@} / process_max_fds{@}", "{{instance}}"),),
        text="Share of the limit of file descriptors.",
    ),
    Panel(
        "Partitions led",
        "short",
        (Query("kafka_server_replicamanager_leadercount{@}", "{{instance}}"),),
        text="Run barnabas partitions elect to give leadership back to preferred replicas.",
    ),
    Panel(
        "Changes of in-sync replicas",
        "short",
        tuple(
            Query(f"sum(rate(kafka_server_replicamanager_isr{name}_total{{@}}[{RATE}]))", name)
            for name in ("shrinks", "expands")
        ),
        text="Per second.",
    ),
    Panel(
        "Connections",
        "short",
        (
            Query(
                "sum by (instance, listener) (kafka_server_socket_server_metrics_connection_count{@})",
                "{{instance}} {{listener}}",
            ),
        ),
        text="Open connections.",
    ),
]


# The queries that the user has chosen. Their driver is no node of the cluster.
_QUERY = 'query=~"$query"'

STREAMING = [
    Panel(
        "Lag of queries",
        "short",
        (Query(f"barnabas:query_lag{{{_QUERY}, {_TOPIC}}}", "{{query}} {{topic}}"),),
        text="Records that a query of Spark had not read after its last batch. Recorded by barnabas-rules.yml.",
    ),
    Panel(
        "Rows of queries",
        "short",
        (Query(f"rate(barnabas_query_rows_read_total{{{_QUERY}}}[{RATE}])", "{{query}}"),),
        text="Rows per second that queries read.",
    ),
    Panel(
        "Time since the last batch",
        "s",
        (
            Query(
                f"time() - barnabas_query_last_trigger_timestamp_seconds{{{_QUERY}}} and barnabas_query_running == 1",
                "{{query}}",
            ),
        ),
        text="Since the start of the last batch, or of the last trigger that found no data. Of queries that run.",
    ),
    Panel(
        "Duration of batches",
        "s",
        (Query(f"barnabas_query_last_batch_seconds{{{_QUERY}}}", "{{query}}"),),
        text="Of the last batch of each query.",
    ),
    Panel(
        "Phases of batches",
        "percentunit",
        (
            Query(
                f'rate(barnabas_query_phase_seconds_total{{{_QUERY}, phase!="triggerExecution"}}[{RATE}])',
                "{{query}} {{phase}}",
            ),
        ),
        text="Share of the time that queries spend in each phase, by Spark's names.",
    ),
    Panel(
        "State of queries",
        "short",
        (Query(f"barnabas_query_state_rows{{{_QUERY}}}", "{{query}}"),),
        text="Rows of state. A state that only grows lacks a watermark.",
    ),
]


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
    panels = [_panel(each, index, 3, 4, 0) for index, each in enumerate(HEALTH)]
    panels += [_panel(each, index, 8, 7, 4) for index, each in enumerate(LINES)]
    below = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in panels)
    panels += [_panel(each, index, 8, 7, below) for index, each in enumerate(STREAMING)]
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


def _panel(panel: Panel, index: int, width: int, height: int, top: int) -> dict[str, Any]:
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
