"""Tasks write Parquet files, the driver commits them (PySpark's Arrow writers)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from barnabas.spark.delta.table import BatchIdentity, commit_files, open_files, remove_unnamed
from barnabas.spark.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from barnabas.spark.delta.files import WrittenFile
    from barnabas.spark.delta.table import TableOptions


@dataclass
class WrittenFiles(WriterCommitMessage):
    """What a task tells the driver."""

    files: list[WrittenFile]
    # Of the streaming query that the task belongs to; empty if there is none.
    query_id: str


class DeltaWriter(DataSourceArrowWriter):
    """Writes a DataFrame in one commit."""

    def __init__(self, options: TableOptions, schema: StructType, overwrite: bool) -> None:
        self._options = options
        self._schema = table_schema(schema)
        self._overwrite = overwrite

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows to files."""
        return write_files(self._options, self._schema, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the rows of all tasks the table's."""
        files, _ = _gather(messages)
        commit_files(self._options, self._schema, files, self._overwrite, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task or the commit failed: remove what was written."""
        remove_unnamed(self._options, _gather(messages)[0])


class DeltaStreamWriter(DataSourceStreamArrowWriter):
    """Writes each micro-batch in one commit, exactly once."""

    def __init__(self, options: TableOptions, schema: StructType, overwrite: bool) -> None:
        self._options = options
        self._schema = table_schema(schema)
        self._overwrite = overwrite

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows to files."""
        return write_files(self._options, self._schema, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Make the rows of all tasks the table's, unless the table has the batch already."""
        files, query_id = _gather(messages)
        if not query_id or not (files or self._overwrite):
            # No task ran, or none had a row: nothing to add, nor would be when it is repeated.
            return
        identity = BatchIdentity(query_id, batchId)
        if not commit_files(self._options, self._schema, files, self._overwrite, identity):
            remove_unnamed(self._options, files)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: ARG002, N803
    ) -> None:
        """A task or the commit failed: remove what was written."""
        remove_unnamed(self._options, _gather(messages)[0])


def table_schema(schema: StructType) -> pa.Schema:
    """The rows' types as Delta has them: times are UTC, in microseconds.

    Raises:
        OptionError: a type that a Delta table cannot hold.
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
    """Write rows to files that no commit names yet; a task that fails removes its own."""
    from pyspark import TaskContext

    from barnabas.spark.delta.files import TableFiles

    files = TableFiles(open_files(options), schema, options.partition_by)
    try:
        for batch in batches:
            if batch.num_rows:
                files.write(batch)
        written = files.close()
    except BaseException:
        files.discard()
        raise
    context = TaskContext.get()
    query_id = context.getLocalProperty("sql.streaming.queryId") if context else None
    return WrittenFiles(written, query_id or "")


def _gather(messages: Sequence[WriterCommitMessage | None]) -> tuple[list[WrittenFile], str]:
    """The files of all tasks, and the query that they are of."""
    told = [each for each in messages if isinstance(each, WrittenFiles)]
    files = [file for each in told for file in each.files]
    return files, told[0].query_id if told else ""
