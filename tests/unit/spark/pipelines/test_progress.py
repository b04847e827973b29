"""Events of finished batches, and errors of Spark reduced to what happened."""

from __future__ import annotations

import json
from typing import Any

from barnabas.spark.pipelines.explained import explain, is_summary
from barnabas.spark.pipelines.flow_progress import progress_event

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
    },
}


def test_a_batch_has_lag_state_and_expectations() -> None:
    event = progress_event("t/minutes", json.dumps(BATCH))
    assert (event["batch"], event["rows"], event["seconds"]) == (2, 100, 22.414)
    assert event["lag"] == {"numbers": 10}
    assert event["offsets"] == {"numbers": {"0": 90, "1": 5}}
    assert event["watermark"] == "2026-11-27T05:57:23.501Z"
    assert (event["state_rows"], event["late_rows"]) == (6, 1)
    assert event["expectations"] == {"has a key": {"otherwise": "drop", "rows": 100, "failed": 3}}


def test_a_flow_without_state_and_watermark_has_none() -> None:
    plain = {k: v for k, v in BATCH.items() if k not in ("eventTime", "observedMetrics")}
    event = progress_event("t/f", json.dumps({**plain, "stateOperators": []}))
    assert (event["watermark"], event["state_rows"], event["expectations"]) == (None, None, {})


def test_an_error_of_our_source_is_found_in_its_traceback() -> None:
    error = (
        "[STREAM_FAILED] Query [id = a, runId = b] terminated with exception: [PYTHON_STREAMING] "
        "Traceback (most recent call last):\n"
        '  File "stream_reader.py", line 169, in _lost\n    raise DataLossError(problem)\n'
        "barnabas.spark.errors.DataLossError: Partitions are gone: t-0. Raise retention.ms.\n"
        " SQLSTATE: 38000\n=== Streaming Query ===\nIdentifier: x"
    )
    assert explain(error) == "Partitions are gone: t-0. Raise retention.ms."


def test_an_error_of_spark_keeps_its_class() -> None:
    error = "[UNRESOLVED_COLUMN] A column `topic` cannot be resolved. SQLSTATE: 42703;\n'Aggregate"
    assert explain(error) == "[UNRESOLVED_COLUMN] A column `topic` cannot be resolved.; 'Aggregate"


def test_long_errors_are_cut() -> None:
    assert len(explain("x" * 5000)) == 1001


def test_a_summary_of_flows_is_told_from_an_error() -> None:
    assert is_summary("\nFailed to resolve flows in the pipeline.\n\nA flow can fail")
    assert not is_summary("[STREAM_FAILED] Query")
