"""Makes the event of a finished batch of a flow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.spark.pipelines.expectations import expectation_counts

if TYPE_CHECKING:
    from barnabas.spark.query_progress import QueryProgress


def progress_event(flow: str, progress: QueryProgress) -> dict[str, Any]:
    """Return the event of one finished batch.

    Args:
        flow: the key of the flow.
        progress: the progress of its query.
    """
    behind: dict[str, int] = {}
    for tp, offsets in progress.lag.items():
        behind[tp.topic] = behind.get(tp.topic, 0) + offsets
    return {
        "event": "progress",
        "flow": flow,
        "query": progress.query_id,
        "batch": progress.batch,
        "time": progress.time,
        "rows_read": progress.rows_read,
        # None for flows of SQL files, except into sinks that count.
        "rows_written": progress.rows_written,
        "seconds": progress.seconds,
        # Rows read.
        "rows_per_second": progress.rows_per_second,
        # By topic, then by partition: the next offset to read.
        "offsets": progress.offsets,
        # By topic: records that had not been read at the end of the batch.
        "lag": behind,
        "watermark": progress.watermark,
        # None for a flow without state.
        "state_rows": progress.state_rows,
        "late_rows": progress.late_rows,
        "expectations": expectation_counts(progress.observed),
    }
