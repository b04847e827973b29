"""Writers of tables for PySpark: tasks write files, and the driver commits them.

There is one writer for all tables. A `TableTarget` has what differs:

| | Delta | Iceberg | upserts |
|---|---|---|---|
| files of a task | values of partitions in the log | field ids of the table | staged rows |
| commit | application transaction | snapshot, and a property of the table | one merge |
| commit without rows | overwrites or creates the table | overwrites | creates the table |
| after an error | deletes unnamed files | only after an error of a task | deletes the files |
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from barnabas.spark.tables.commits import BatchIdentity
from barnabas.spark.tables.rows import write_all
from barnabas.spark.worker_process import message_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from barnabas.spark.tables.rows import TaskFiles

    Messages = list[WriterCommitMessage | None]


@dataclass
class WrittenFiles(WriterCommitMessage):
    """Result of a task, or of all tasks of a job or batch: files that are not committed yet."""

    # Descriptions of the files, as the target makes them.
    files: list[Any]
    # Id of the tasks' streaming query; empty without one, and without tasks.
    query_id: str
    # When the first task began to write, ms.
    since_ms: int = 0


class TableTarget(Protocol):
    """A table, and how rows get into it; it travels to the executors."""

    def task_files(self, query_id: str) -> TaskFiles[Any]:
        """Return new files for the rows of one task; the id is empty without a streaming query."""

    def commit(self, written: WrittenFiles, identity: BatchIdentity | None) -> None:
        """Add the rows of all tasks in one commit, unless the table already has the batch.

        Args:
            written: the files of all tasks.
            identity: identity of the batch, None if Spark does not repeat it.
        """

    def abort(self, written: WrittenFiles, *, has_failed_task: bool) -> None:
        """Delete files after a task or the commit failed."""


@message_first
class _TargetWriter:
    """Writes rows to a table. Spark gives the number of the batch if they are of a stream."""

    def __init__(self, target: TableTarget) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task to files; a failed task deletes its own files."""
        since_ms = int(time.time() * 1000)
        query_id = _task_query_id()
        files = write_all(self._target.task_files(query_id), iterator)
        return WrittenFiles(files, query_id, since_ms)

    def commit(self, messages: Messages, batchId: int | None = None) -> None:
        """Commit the files of all tasks, unless the table already has the batch of a stream."""
        written = _gather(messages)
        identity = None if batchId is None else BatchIdentity(written.query_id, batchId)
        self._target.commit(written, identity)

    def abort(self, messages: Messages, batchId: int | None = None) -> None:
        """Delete the written files after a task or the commit failed."""
        has_failed_task = any(each is None for each in messages)
        self._target.abort(_gather(messages), has_failed_task=has_failed_task)


class TableWriter(_TargetWriter, DataSourceArrowWriter):
    """Writes a DataFrame in one commit."""


class TableStreamWriter(_TargetWriter, DataSourceStreamArrowWriter):
    """Writes each micro-batch in one commit, exactly once. Spark makes one for each batch."""


def _gather(messages: Sequence[WriterCommitMessage | None]) -> WrittenFiles:
    """Return the files of all tasks as if one task had written them."""
    reported = [each for each in messages if isinstance(each, WrittenFiles)]
    return WrittenFiles(
        [file for each in reported for file in each.files],
        reported[0].query_id if reported else "",
        min((each.since_ms for each in reported), default=0),
    )


def _task_query_id() -> str:
    """Return the id of the streaming query of this task; empty without one."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return (context.getLocalProperty("sql.streaming.queryId") if context else None) or ""
