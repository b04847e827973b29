"""Every metric of streaming queries: its kind, its tags and its meaning.

The process that starts the queries of Spark exposes them, not a broker. tools/metrics_page.py
generates a table of `docs/metrics.md` from this one. The names are those of Prometheus.
"""

from __future__ import annotations

from typing import Final

from barnabas.metrics.catalogue import C, G, H, MetricRow

RUNNING_QUERIES: Final = "barnabas_running_queries"
RUNNING: Final = "barnabas_query_running"
STARTS: Final = "barnabas_query_starts_total"
FAILURES: Final = "barnabas_query_failures_total"
ROWS_READ: Final = "barnabas_query_rows_read_total"
ROWS_WRITTEN: Final = "barnabas_query_rows_written_total"
ROWS_PER_SECOND: Final = "barnabas_query_rows_per_second"
BATCH_SECONDS: Final = "barnabas_query_batch_seconds"
LAST_BATCH_SECONDS: Final = "barnabas_query_last_batch_seconds"
PHASE_SECONDS: Final = "barnabas_query_phase_seconds_total"
LAST_TRIGGER: Final = "barnabas_query_last_trigger_timestamp_seconds"
LAG: Final = "barnabas_query_lag"
WATERMARK: Final = "barnabas_query_watermark_timestamp_seconds"
STATE_ROWS: Final = "barnabas_query_state_rows"
STATE_BYTES: Final = "barnabas_query_state_bytes"
LATE_ROWS: Final = "barnabas_query_late_rows_total"

_QUERY = ("query",)

QUERY_CATALOGUE: dict[str, MetricRow] = {
    RUNNING_QUERIES: MetricRow(G, (), "Queries that run."),
    RUNNING: MetricRow(G, _QUERY, "1 while the query runs, 0 after its end."),
    STARTS: MetricRow(C, _QUERY, "Starts of the query."),
    FAILURES: MetricRow(C, _QUERY, "Runs of the query that ended with an error."),
    ROWS_READ: MetricRow(C, _QUERY, "Rows that batches read from all sources."),
    ROWS_WRITTEN: MetricRow(
        C, _QUERY, "Rows that batches wrote. Missing if the sink of the query does not count them."
    ),
    ROWS_PER_SECOND: MetricRow(G, _QUERY, "Rows read per second of the last batch."),
    BATCH_SECONDS: MetricRow(H, (*_QUERY, "le"), "Duration of batches, s."),
    LAST_BATCH_SECONDS: MetricRow(G, _QUERY, "Duration of the last batch, s."),
    PHASE_SECONDS: MetricRow(
        C,
        (*_QUERY, "phase"),
        "Duration of the phases of batches, s, by Spark's name. `triggerExecution` is their sum.",
    ),
    LAST_TRIGGER: MetricRow(
        G, _QUERY, "Start of the last batch, or of the last trigger that found no data, Unix time."
    ),
    LAG: MetricRow(
        G,
        (*_QUERY, "topic", "partition"),
        "Records of a partition that the query had not read at the end of its last batch.",
    ),
    WATERMARK: MetricRow(G, _QUERY, "Watermark, Unix time. Missing without a watermark."),
    STATE_ROWS: MetricRow(G, _QUERY, "Rows of state. Missing without state."),
    STATE_BYTES: MetricRow(G, _QUERY, "Memory of the state, bytes. Missing without state."),
    LATE_ROWS: MetricRow(C, _QUERY, "Rows that the watermark dropped because they were late."),
}
