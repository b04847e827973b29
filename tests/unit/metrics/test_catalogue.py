"""The catalogue of metrics, and its generated page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from barnabas.metrics import names
from barnabas.metrics.catalogue import CATALOGUE
from barnabas.metrics.metrics_listener import exposition_name
from barnabas.metrics.registry import MetricKind

ROOT = Path(__file__).parents[3]


def test_the_page_equals_the_catalogues() -> None:
    program = "import metrics_page; print(metrics_page.page(), end='')"
    made = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT / "tools",
        capture_output=True,
        text=True,
        check=True,
    )
    page = (ROOT / "docs" / "metrics.md").read_text()
    assert made.stdout == page, "run tools/metrics_page.py"


def test_exposition_names_follow_the_usual_exporter_rules() -> None:
    shown = {name: exposition_name(name, row.kind) for name, row in CATALOGUE.items()}
    assert shown[names.MESSAGES_IN] == "kafka_server_brokertopicmetrics_messagesin"
    assert shown[names.REQUEST_TOTAL_TIME] == "kafka_network_requestmetrics_totaltimems"
    assert (
        shown[names.UNDER_REPLICATED_PARTITIONS]
        == "kafka_server_replicamanager_underreplicatedpartitions"
    )
    assert shown[names.CONNECTION_COUNT] == "kafka_server_socket_server_metrics_connection_count"
    assert len(set(shown.values())) == len(shown)


def test_exactly_the_counts_are_counters() -> None:
    for name, row in CATALOGUE.items():
        if name.startswith("barnabas_"):
            # Not a metric of Kafka: any name is allowed.
            continue
        # Kafka's names of two meters do not show it.
        is_meter = name in (names.VERIFICATION_FAILURES, names.DEAD_LETTER_RECORDS)
        grows = name.endswith(("PerSec", "-total", "-count")) and name not in (
            names.CONNECTION_COUNT,
            names.CONSUMER_GROUPS,
            names.SHARE_GROUPS,
            names.STREAMS_GROUPS,
            names.RAFT_CONNECTIONS,
            names.MARKER_CONNECTIONS,
            names.UNCLEANABLE_PARTITIONS,
        )
        assert (row.kind is MetricKind.COUNTER) == (grows or is_meter), name
