"""The progress of a batch, for tests of the metrics of queries."""

from __future__ import annotations

import json
from typing import Any

from barnabas.spark.query_progress import QueryProgress, query_progress

# As Spark 4.2.1 reports it, without the parts that are not used.
BATCH: dict[str, Any] = {
    "id": "3bfece11-93d3-40c4-a4ba-e1a5e7f4a7d1",
    "name": "copy",
    "timestamp": "2026-11-27T06:12:45.500Z",
    "batchId": 2,
    "batchDuration": 2000,
    "numInputRows": 100,
    "processedRowsPerSecond": 50.0,
    "durationMs": {"addBatch": 1500, "walCommit": 40},
    "eventTime": {"watermark": "2026-11-27T05:57:23.000Z"},
    "stateOperators": [
        {"numRowsTotal": 4, "memoryUsedBytes": 900, "numRowsDroppedByWatermark": 1},
        {"numRowsTotal": 2, "memoryUsedBytes": 100, "numRowsDroppedByWatermark": 0},
    ],
    "sources": [
        {"endOffset": {"t": {"0": 90, "1": 5}}, "latestOffset": {"t": {"0": 100, "1": 5}}},
    ],
    "sink": {"description": "FileSink", "numOutputRows": 80},
}


def batch(**changed: Any) -> QueryProgress:
    """Return the progress with some parts changed."""
    return query_progress(json.dumps({**BATCH, **changed}))
