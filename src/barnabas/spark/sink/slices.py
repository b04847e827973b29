"""The part of a batch that one task writes: its transactional id, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

if TYPE_CHECKING:
    from barnabas.client.transactions.state import OpenTransaction

__all__ = ["Slice", "WrittenSlice", "slice_of_task"]


@dataclass(frozen=True, slots=True)
class Slice:
    """The rows of one task; all attempts of the task have the same slice."""

    transactional_id: str
    partition: int
    # In a streaming query: the batch, and the group of the query's marker.
    batch_id: int | None = None
    query_group: str = ""

    def __str__(self) -> str:
        """Name the slice in messages."""
        batch = "" if self.batch_id is None else f" of batch {self.batch_id}"
        return f"slice {self.partition}{batch}"


@dataclass
class WrittenSlice(WriterCommitMessage):
    """Result of a task: its transaction, which the driver ends."""

    slice: Slice
    records: int
    # None if the task has no rows, or an earlier run of the batch committed the slice.
    transaction: OpenTransaction | None = None
    # A topic of the rows; None without rows.
    topic: str | None = None
    # When the transaction began, in ms since 1970.
    began_ms: int = 0


def slice_of_task(prefix: str, job: str) -> Slice:
    """Return the slice of the running task.

    Args:
        prefix: option transactionalIdPrefix.
        job: identifies a batch write; a streaming query is identified by its id.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "a writer runs in a task"
    partition = context.partitionId()
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    if query is None or batch is None:
        return Slice(f"{prefix}-{job}-{partition}", partition)
    group = f"{prefix}-{query}"
    return Slice(f"{group}-{partition}", partition, int(batch), group)
