"""Reduces the progress that Spark reports of a batch to what is shown of a query."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from barnabas.spark.lag import source_lags

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from barnabas.client.topic_partition import TopicPartition

# The name under which Spark reports the rows that a query gives to its sink.
_WRITTEN = "barnabas/written"
_NO_WATERMARK = "1970-01-01T00:00:00.000Z"
_MS_PER_S = 1000


def count_written(frame: DataFrame) -> DataFrame:
    """Return the rows of a query, and let Spark report their number with each batch.

    Spark itself counts the rows that a batch reads. It counts written rows for some sinks only, and
    not for its tables of files.
    """
    from pyspark.sql import functions as f

    return frame.observe(_WRITTEN, f.count(f.lit(1)).alias("rows"))


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """One finished batch of a query."""

    # The id in the checkpoint, which all runs of the query share.
    query_id: str
    batch: int
    # Start of the batch, in ISO 8601.
    time: str
    rows_read: int
    # None if neither `count_written` nor the sink counts them.
    rows_written: int | None
    rows_per_second: float
    seconds: float
    # By Spark's name of the phase (s): latestOffset, queryPlanning, walCommit, addBatch...
    phases: Mapping[str, float]
    # Records that had not been read at the end of the batch.
    lag: Mapping[TopicPartition, int]
    # By topic, then by partition: the next offset to read.
    offsets: Mapping[str, Mapping[str, int]]
    # In ISO 8601. None for a query without watermark, and before its first row.
    watermark: str | None
    # None for a query without state.
    state_rows: int | None
    state_bytes: int | None
    # Rows that the watermark dropped.
    late_rows: int
    # What the query observes, by name.
    observed: Mapping[str, Mapping[str, Any]]


def query_progress(text: str) -> QueryProgress:
    """Return the progress of one batch from Spark's JSON."""
    progress: dict[str, Any] = json.loads(text)
    operators = progress["stateOperators"]
    watermark = progress.get("eventTime", {}).get("watermark", _NO_WATERMARK)
    lag: dict[TopicPartition, int] = {}
    offsets: dict[str, Mapping[str, int]] = {}
    for source, of_source in zip(progress["sources"], source_lags(progress), strict=True):
        for tp, behind in of_source.behind_latest.items():
            lag[tp] = lag.get(tp, 0) + behind
        if of_source.behind_latest:
            offsets |= source["endOffset"] or {}
    return QueryProgress(
        query_id=progress["id"],
        batch=progress["batchId"],
        time=progress["timestamp"],
        rows_read=progress["numInputRows"],
        rows_written=_written(progress),
        rows_per_second=progress.get("processedRowsPerSecond", 0.0),
        seconds=progress["batchDuration"] / _MS_PER_S,
        phases={
            name: duration / _MS_PER_S for name, duration in progress.get("durationMs", {}).items()
        },
        lag=lag,
        offsets=offsets,
        watermark=None if watermark == _NO_WATERMARK else watermark,
        state_rows=sum(each["numRowsTotal"] for each in operators) if operators else None,
        state_bytes=sum(each.get("memoryUsedBytes", 0) for each in operators)
        if operators
        else None,
        late_rows=sum(each["numRowsDroppedByWatermark"] for each in operators),
        observed=progress.get("observedMetrics", {}),
    )


def unix_seconds(moment: str) -> float:
    """Return a time of Spark, in ISO 8601, as seconds since 1970."""
    return datetime.fromisoformat(moment).timestamp()


def _written(progress: Mapping[str, Any]) -> int | None:
    observed = progress.get("observedMetrics", {}).get(_WRITTEN)
    if observed is not None:
        return int(observed["rows"])
    counted = int(progress["sink"]["numOutputRows"])
    return counted if counted >= 0 else None
