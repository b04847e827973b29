"""Reduces a progress of Spark to what is shown of a flow, as an event."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from barnabas.spark.lag import source_lags
from barnabas.spark.pipelines.expectations import expectation_counts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

# The name under which Spark reports the rows that a flow gives to its target.
_WRITTEN = "barnabas/written"
_NO_WATERMARK = "1970-01-01T00:00:00.000Z"


def count_written(frame: DataFrame) -> DataFrame:
    """Return the rows of a flow, and let Spark report their number with each batch.

    Spark itself counts the rows that a batch reads. It counts written rows for some sinks only, and
    not for its tables of files.
    """
    from pyspark.sql import functions as f

    return frame.observe(_WRITTEN, f.count(f.lit(1)).alias("rows"))


def progress_event(flow: str, text: str) -> dict[str, Any]:
    """Return the event of one finished batch.

    Args:
        flow: the key of the flow.
        text: Spark's progress as JSON.
    """
    progress: Mapping[str, Any] = json.loads(text)
    operators = progress["stateOperators"]
    watermark = progress.get("eventTime", {}).get("watermark", _NO_WATERMARK)
    behind: dict[str, int] = {}
    ends: dict[str, dict[str, int]] = {}
    for source, lag in zip(progress["sources"], source_lags(dict(progress)), strict=True):
        for tp, offsets in lag.behind_latest.items():
            behind[tp.topic] = behind.get(tp.topic, 0) + offsets
        if lag.behind_latest:
            ends |= source["endOffset"]
    return {
        "event": "progress",
        "flow": flow,
        "query": progress["id"],
        "batch": progress["batchId"],
        "time": progress["timestamp"],
        "rows_read": progress["numInputRows"],
        # None for flows of SQL files, except into sinks that count.
        "rows_written": _written(progress),
        "seconds": progress["batchDuration"] / 1000,
        # By topic, then by partition: the next offset to read.
        "offsets": ends,
        # By topic: records that had not been read at the end of the batch.
        "lag": behind,
        "watermark": None if watermark == _NO_WATERMARK else watermark,
        # None for a flow without state.
        "state_rows": sum(each["numRowsTotal"] for each in operators) if operators else None,
        "late_rows": sum(each["numRowsDroppedByWatermark"] for each in operators),
        "expectations": expectation_counts(progress.get("observedMetrics", {})),
    }


def _written(progress: Mapping[str, Any]) -> int | None:
    observed = progress.get("observedMetrics", {}).get(_WRITTEN)
    if observed is not None:
        return int(observed["rows"])
    counted = int(progress["sink"]["numOutputRows"])
    return counted if counted >= 0 else None
