"""The metrics of queries, from the events of their runs to the text for Prometheus."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from barnabas.metrics.catalogue import QUERY_CATALOGUE
from barnabas.metrics.metrics_listener import exposition_name, pieces
from barnabas.spark.metrics import (
    QUERIES_MAX,
    QueryMetrics,
    QueryMetricsListener,
    QueryMetricsServer,
)
from barnabas.spark.query_progress import query_progress
from unit.spark.query_batches import BATCH, batch

WITHOUT_STATE = {
    **{key: value for key, value in BATCH.items() if key != "eventTime"},
    "stateOperators": [],
    "sink": {"numOutputRows": -1},
}


def values(metrics: QueryMetrics) -> dict[tuple[str, ...], float]:
    """Return the samples by name and values of labels, as Prometheus reads them."""
    text = b"".join(pieces(metrics.families())).decode()
    labels = ("query", "topic", "partition", "phase", "le")
    return {
        (
            sample.name.removeprefix("barnabas_query_"),
            *(sample.labels[label] for label in labels if label in sample.labels),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_batch_has_rows_times_lag_state_and_watermark() -> None:
    metrics = QueryMetrics()
    metrics.on_started("copy")
    metrics.on_progress("copy", batch())
    found = values(metrics)
    buckets = {key: found.pop(key) for key in list(found) if key[0] == "batch_seconds_bucket"}
    assert found == {
        ("barnabas_running_queries",): 1,
        ("running", "copy"): 1,
        ("starts_total", "copy"): 1,
        ("failures_total", "copy"): 0,
        ("rows_read_total", "copy"): 100,
        ("rows_written_total", "copy"): 80,
        ("late_rows_total", "copy"): 1,
        ("rows_per_second", "copy"): 50,
        ("batch_seconds_count", "copy"): 1,
        ("batch_seconds_sum", "copy"): 2,
        ("last_batch_seconds", "copy"): 2,
        ("phase_seconds_total", "copy", "addBatch"): 1.5,
        ("phase_seconds_total", "copy", "walCommit"): 0.04,
        ("last_trigger_timestamp_seconds", "copy"): 1795759965.5,
        ("lag", "copy", "t", "0"): 10,
        ("lag", "copy", "t", "1"): 0,
        ("watermark_timestamp_seconds", "copy"): 1795759043,
        ("state_rows", "copy"): 6,
        ("state_bytes", "copy"): 1000,
    }
    assert [value for _, value in sorted(buckets.items(), key=lambda item: float(item[0][2]))] == [
        *[0.0] * 4,
        *[1.0] * 10,
    ]


def test_counters_grow_over_batches_and_restarts_and_gauges_are_those_of_the_last_batch() -> None:
    metrics = QueryMetrics()
    for end in (40, 90):
        metrics.on_started("copy")
        source = {"endOffset": {"t": {"0": end}}, "latestOffset": {"t": {"0": 100}}}
        metrics.on_progress("copy", batch(sources=[source], batchDuration=end))
        metrics.on_ended("copy", failed=end == 40)
    found = values(metrics)
    assert (found["starts_total", "copy"], found["failures_total", "copy"]) == (2, 1)
    assert (found["rows_read_total", "copy"], found["batch_seconds_count", "copy"]) == (200, 2)
    assert (found["lag", "copy", "t", "0"], found["last_batch_seconds", "copy"]) == (10, 0.09)
    assert (found["running", "copy"], found["barnabas_running_queries",]) == (0, 0)


def test_what_a_query_does_not_have_is_missing() -> None:
    metrics = QueryMetrics()
    metrics.on_progress("copy", batch())
    metrics.on_progress("plain", query_progress(json.dumps(WITHOUT_STATE)))
    found = values(metrics)
    for name in ("watermark_timestamp_seconds", "state_rows", "state_bytes", "rows_written_total"):
        assert (name, "copy") in found
        assert (name, "plain") not in found


def test_a_trigger_without_data_changes_only_the_time_of_the_last_trigger() -> None:
    metrics = QueryMetrics()
    metrics.on_progress("copy", batch())
    before = values(metrics)
    metrics.on_idle("copy", "2026-11-27T06:13:00.000Z")
    changed = dict(values(metrics).items() - before.items())
    assert changed == {("last_trigger_timestamp_seconds", "copy"): 1795759980}


def test_every_metric_of_the_catalogue_has_its_name_and_kind() -> None:
    text = b"".join(pieces(QueryMetrics().families())).decode()
    shown = {family.name: family.type for family in text_string_to_metric_families(text)}
    assert shown == {
        exposition_name(name, row.kind): row.kind.value for name, row in QUERY_CATALOGUE.items()
    }


def test_ended_queries_are_dropped_when_there_are_too_many() -> None:
    metrics = QueryMetrics()
    metrics.on_started("running")
    for number in range(QUERIES_MAX + 5):
        metrics.on_started(f"q{number}")
        metrics.on_ended(f"q{number}", failed=False)
    found = values(metrics)
    starts = [key[1] for key in found if key[0] == "starts_total"]
    assert len(starts) == QUERIES_MAX
    assert "running" in starts
    assert f"q{QUERIES_MAX + 4}" in starts
    assert "q0" not in starts


def event(identity: uuid.UUID, **more: Any) -> Any:
    return SimpleNamespace(id=identity, **more)


def progressed(identity: uuid.UUID, name: str | None) -> Any:
    text = json.dumps({**BATCH, "id": str(identity), "name": name})
    return SimpleNamespace(progress=SimpleNamespace(json=text, name=name))


def test_queries_are_named_by_their_name_else_by_their_id() -> None:
    metrics = QueryMetrics()
    listener = QueryMetricsListener(metrics)
    named, plain = uuid.uuid4(), uuid.uuid4()
    listener.onQueryStarted(event(named, name="copy"))
    listener.onQueryStarted(event(plain, name=None))
    listener.onQueryProgress(progressed(named, "copy"))
    listener.onQueryIdle(event(plain, timestamp="2026-11-27T06:13:00.000Z"))
    listener.onQueryTerminated(event(named, exception="no broker"))
    listener.onQueryTerminated(event(plain, exception=None))
    found = values(metrics)
    assert (found["starts_total", "copy"], found["failures_total", "copy"]) == (1, 1)
    assert (found["starts_total", str(plain)], found["failures_total", str(plain)]) == (1, 0)
    assert found["last_trigger_timestamp_seconds", str(plain)] == 1795759980


def test_a_query_that_ran_before_the_listener_is_running_from_its_first_batch() -> None:
    metrics = QueryMetrics()
    listener = QueryMetricsListener(metrics)
    for _ in range(2):
        listener.onQueryProgress(progressed(uuid.UUID(BATCH["id"]), "copy"))
    found = values(metrics)
    assert (found["running", "copy"], found["starts_total", "copy"]) == (1, 1)


def get(address: str, path: str) -> tuple[int, str]:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
        return answer.status, answer.read().decode()


def test_the_metrics_are_served_until_the_server_is_closed() -> None:
    metrics = QueryMetrics()
    with QueryMetricsServer(metrics, "127.0.0.1", 0) as server:
        metrics.on_started('with "quotes"')
        status, text = get(server.address, "/metrics")
        assert status == 200
        assert 'barnabas_query_running{query="with \\"quotes\\""} 1.0' in text
        assert "process_cpu_seconds_total" in text
        assert get(server.address, "/readyz") == (200, "ok\n")
        with pytest.raises(OSError, match="in use"):
            QueryMetricsServer(metrics, *address_of(server))
    with pytest.raises(urllib.error.URLError, match="refused"):
        get(server.address, "/metrics")


def address_of(server: QueryMetricsServer) -> tuple[str, int]:
    host, _, port = server.address.rpartition(":")
    return host, int(port)
