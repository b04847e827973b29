"""Writers for PySpark: tasks write Parquet files, and the driver commits them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from barnabas.spark.batch_identity import BatchIdentity, task_query_id
from barnabas.spark.delta.columns import columns_of
from barnabas.spark.delta.plan import plan_write
from barnabas.spark.delta.table import commit_files, load_table, open_files, remove_unnamed
from barnabas.spark.partitioned_files import write_all
from barnabas.spark.row_types import stored_schema
from barnabas.spark.shown_errors import message_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from barnabas.spark.delta.columns import Column
    from barnabas.spark.delta.files import WrittenFile
    from barnabas.spark.delta.plan import WritePlan
    from barnabas.spark.delta.table_options import TableOptions


@dataclass
class WrittenFiles(WriterCommitMessage):
    """Result of a task: its files."""

    files: list[WrittenFile]
    # Id of the task's streaming query; empty without one.
    query_id: str


@message_first
class DeltaWriter(DataSourceArrowWriter):
    """Writes a DataFrame in one commit."""

    def __init__(self, options: TableOptions, schema: StructType, overwrite: bool) -> None:
        self._options = options
        self._plan = plan_write(
            options, row_columns(schema), load_table(options), removes_rows=overwrite
        )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task to files."""
        return write_files(self._options, self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the files of all tasks to the table."""
        files, _ = _gather(messages)
        commit_files(self._options, self._plan, files, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the written files after a task or the commit failed."""
        remove_unnamed(self._options, _gather(messages)[0])


@message_first
class DeltaStreamWriter(DataSourceStreamArrowWriter):
    """Writes each micro-batch in one commit, exactly once. Spark makes one for each batch."""

    def __init__(self, options: TableOptions, schema: StructType, overwrite: bool) -> None:
        self._options = options
        table = load_table(options)
        self._is_new = table is None
        self._plan = plan_write(options, row_columns(schema), table, removes_rows=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task to files."""
        return write_files(self._options, self._plan, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the files of all tasks, unless the table already has the batch."""
        files, query_id = _gather(messages)
        if not query_id or not (files or self._plan.removes_rows or self._is_new):
            # Without rows there is nothing to commit, and the same holds for a repetition of the
            # batch. A new table is created all the same: the first rows of an aggregation come
            # some batches later, and until then readers find a table without rows.
            return
        identity = BatchIdentity(query_id, batchId)
        if not commit_files(self._options, self._plan, files, identity):
            remove_unnamed(self._options, files)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,
    ) -> None:
        """Delete the written files after a task or the commit failed."""
        remove_unnamed(self._options, _gather(messages)[0])


def row_columns(schema: StructType) -> list[Column]:
    """Convert Spark's schema to nullable columns of Delta; timestamps are UTC, in microseconds.

    Raises:
        OptionError: a Delta table cannot store one of the types.
    """
    # A column of nulls fits each column that the table has.
    return columns_of(stored_schema(schema, "barnabas_delta", accepts_null=True))


def write_files(
    options: TableOptions, plan: WritePlan, batches: Iterator[pa.RecordBatch]
) -> WrittenFiles:
    """Write rows to uncommitted files; a failed task deletes its own files."""
    from barnabas.spark.delta.files import TableFiles

    files = TableFiles(open_files(options), plan.schema, plan.partition_by)
    return WrittenFiles(write_all(files, plan.fitted(batches)), task_query_id())


def _gather(messages: Sequence[WriterCommitMessage | None]) -> tuple[list[WrittenFile], str]:
    """Return the files of all tasks and the id of their query."""
    reported = [each for each in messages if isinstance(each, WrittenFiles)]
    files = [file for each in reported for file in each.files]
    return files, reported[0].query_id if reported else ""
