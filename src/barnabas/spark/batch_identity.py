"""Which batch of which query: what a table remembers, because Spark may repeat the batch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """Identifies a batch that Spark may repeat."""

    # Id of the streaming query; constant over restarts from the same checkpoint.
    query_id: str
    batch_id: int


def task_query_id() -> str:
    """Return the id of the streaming query of this task; empty without one."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return (context.getLocalProperty("sql.streaming.queryId") if context else None) or ""
