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
from barnabas.spark.delta.table import commit_files, open_files, remove_unnamed
from barnabas.spark.errors import OptionError
from barnabas.spark.partitioned_files import write_all
from barnabas.spark.shown_errors import message_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from barnabas.spark.delta.files import WrittenFile
    from barnabas.spark.delta.table import TableOptions


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
        self._schema = table_schema(schema)
        self._overwrite = overwrite

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task to files."""
        return write_files(self._options, self._schema, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the files of all tasks to the table."""
        files, _ = _gather(messages)
        commit_files(self._options, self._schema, files, self._overwrite, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the written files after a task or the commit failed."""
        remove_unnamed(self._options, _gather(messages)[0])


@message_first
class DeltaStreamWriter(DataSourceStreamArrowWriter):
    """Writes each micro-batch in one commit, exactly once."""

    def __init__(self, options: TableOptions, schema: StructType, overwrite: bool) -> None:
        self._options = options
        self._schema = table_schema(schema)
        self._overwrite = overwrite

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task to files."""
        return write_files(self._options, self._schema, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the files of all tasks, unless the table already has the batch."""
        files, query_id = _gather(messages)
        if not query_id or not (files or self._overwrite):
            # Without rows there is nothing to commit, and the same holds for a repetition of the
            # batch.
            return
        identity = BatchIdentity(query_id, batchId)
        if not commit_files(self._options, self._schema, files, self._overwrite, identity):
            remove_unnamed(self._options, files)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,
    ) -> None:
        """Delete the written files after a task or the commit failed."""
        remove_unnamed(self._options, _gather(messages)[0])


def table_schema(schema: StructType) -> pa.Schema:
    """Convert Spark's schema to Delta's types: timestamps are UTC, in microseconds.

    Raises:
        OptionError: a Delta table cannot store one of the types.
    """
    from deltalake import Schema
    from pyspark.sql.pandas.types import to_arrow_schema

    arrow = to_arrow_schema(schema, timezone="UTC")
    try:
        Schema.from_arrow(arrow)
    except Exception as error:
        raise OptionError(f"the rows cannot be stored in a Delta table: {error}") from error
    return arrow


def write_files(
    options: TableOptions, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> WrittenFiles:
    """Write rows to uncommitted files; a failed task deletes its own files."""
    from barnabas.spark.delta.files import TableFiles

    files = TableFiles(open_files(options), schema, options.partition_by)
    return WrittenFiles(write_all(files, batches), task_query_id())


def _gather(messages: Sequence[WriterCommitMessage | None]) -> tuple[list[WrittenFile], str]:
    """Return the files of all tasks and the id of their query."""
    reported = [each for each in messages if isinstance(each, WrittenFiles)]
    files = [file for each in reported for file in each.files]
    return files, reported[0].query_id if reported else ""
