"""Events of finished batches, and errors of Spark reduced to what happened."""

from __future__ import annotations

import json
from typing import Any

import pytest

from barnabas.spark.pipelines.explained_errors import explain, is_summary, named_in
from barnabas.spark.pipelines.pipeline_run import progress_event
from barnabas.spark.query_progress import query_progress

# As Spark 4.2.1 reported it, without the parts that are not used.
BATCH: dict[str, Any] = {
    "id": "3bfece11",
    "name": "spark_catalog.default.minutes",
    "timestamp": "2026-11-27T06:12:45.162Z",
    "batchId": 2,
    "batchDuration": 22414,
    "numInputRows": 100,
    "eventTime": {"watermark": "2026-11-27T05:57:23.501Z"},
    "stateOperators": [
        {"operatorName": "stateStoreSave", "numRowsTotal": 4, "numRowsDroppedByWatermark": 1},
        {"operatorName": "dedupe", "numRowsTotal": 2, "numRowsDroppedByWatermark": 0},
    ],
    "sources": [
        {
            "startOffset": None,
            "endOffset": {"numbers": {"0": 90, "1": 5}},
            "latestOffset": {"numbers": {"0": 100, "1": 5}},
        },
        {"startOffset": None, "endOffset": {"logOffset": 0}, "latestOffset": {"logOffset": 0}},
    ],
    "observedMetrics": {
        "expectation/drop/has a key": {"rows": 100, "failed": 3},
        "own": {"rows": 100},
        "barnabas/written": {"rows": 97},
    },
    "sink": {"description": "FileSink", "numOutputRows": -1},
}


def test_a_batch_has_lag_state_and_expectations() -> None:
    event = progress_event("t/minutes", query_progress(json.dumps(BATCH)))
    assert (event["batch"], event["seconds"]) == (2, 22.414)
    assert (event["rows_read"], event["rows_written"]) == (100, 97)
    assert event["lag"] == {"numbers": 10}
    assert event["offsets"] == {"numbers": {"0": 90, "1": 5}}
    assert event["watermark"] == "2026-11-27T05:57:23.501Z"
    assert (event["state_rows"], event["late_rows"]) == (6, 1)
    assert event["expectations"] == {"has a key": {"otherwise": "drop", "rows": 100, "failed": 3}}


def test_a_flow_without_state_and_watermark_has_none() -> None:
    plain = {k: v for k, v in BATCH.items() if k not in ("eventTime", "observedMetrics")}
    event = progress_event("t/f", query_progress(json.dumps({**plain, "stateOperators": []})))
    assert (event["watermark"], event["state_rows"], event["expectations"]) == (None, None, {})


@pytest.mark.parametrize(("counted", "written"), [(12, 12), (-1, None)])
def test_the_rows_of_flows_in_sql_are_those_that_their_sink_counts(
    counted: int, written: int | None
) -> None:
    plain = {k: v for k, v in BATCH.items() if k != "observedMetrics"}
    text = json.dumps({**plain, "sink": {"numOutputRows": counted}})
    assert query_progress(text).rows_written == written


def test_an_error_of_our_source_is_found_in_its_traceback() -> None:
    error = (
        "[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: [PYTHON_STREAMING] "
        "Traceback (most recent call last):\n"
        '  File "stream_reader.py", line 169, in _lost\n    raise DataLossError(problem)\n'
        "barnabas.spark.errors.DataLossError: Partitions are gone: t-0. Raise retention.ms.\n"
        " SQLSTATE: 38000\n=== Streaming Query ===\nIdentifier: x"
    )
    assert explain(error) == "Partitions are gone: t-0. Raise retention.ms."


COLUMN = "[UNRESOLVED_COLUMN] A column `vaule` cannot be resolved. Did you mean [`value`]?"


@pytest.mark.parametrize("end", [";\n'Aggregate", "; line 1 pos 5;\n'Project\n+- 'Filter", ""])
def test_an_error_of_spark_is_its_sentence_without_plan(end: str) -> None:
    error = f"{COLUMN} SQLSTATE: 42703{end}"
    assert explain(error) == COLUMN
    assert named_in(error) == "vaule"


@pytest.mark.parametrize(
    ("error", "name"),
    [
        ("[TABLE_OR_VIEW_NOT_FOUND] The table `c`.`default`.`recrods` cannot be found", "recrods"),
        ("[UNRESOLVED_ROUTINE] Cannot resolve routine `upperr` on path [`system`]", "upperr"),
        ("[PARSE_SYNTAX_ERROR] Syntax error at or near 'AS'. SQLSTATE: 42601", "AS"),
        ('[DATATYPE_MISMATCH] Cannot resolve "(a - b)" due to data type mismatch', None),
    ],
)
def test_an_error_names_what_is_wrong_before_its_suggestions(error: str, name: str | None) -> None:
    assert named_in(error) == name


def test_the_class_of_java_and_the_text_of_a_query_are_left_out() -> None:
    error = (
        "(org.apache.spark.sql.pipelines.graph.DatasetManager$TableMaterializationException) "
        "org.apache.spark.SparkException: [CANNOT_MERGE] Failed. SQLSTATE: 42825\n== SQL ==\nx"
    )
    assert explain(error) == "[CANNOT_MERGE] Failed."


def test_long_errors_are_cut() -> None:
    assert len(explain("x" * 5000)) == 1001


def test_a_summary_of_flows_is_told_from_an_error() -> None:
    assert is_summary("\nFailed to resolve flows in the pipeline.\n\nA flow can fail")
    assert not is_summary("[STREAM_FAILED] Query")
