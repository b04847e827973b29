"""Writers for PySpark: tasks write Parquet files, and the driver commits them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from barnabas.spark.batch_identity import BatchIdentity, task_query_id
from barnabas.spark.iceberg.commit import commit_files, remove_unnamed
from barnabas.spark.iceberg.errors import IcebergTableError
from barnabas.spark.iceberg.layout import prepare_table
from barnabas.spark.partitioned_files import write_all
from barnabas.spark.row_types import stored_schema
from barnabas.spark.shown_errors import message_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyiceberg.manifest import DataFile
    from pyspark.sql.types import StructType

    from barnabas.spark.iceberg.layout import FilePlan
    from barnabas.spark.iceberg.sink_options import SinkOptions


@dataclass
class WrittenDataFiles(WriterCommitMessage):
    """Result of a task: its files."""

    files: list[DataFile]
    # Id of the task's streaming query; empty without one.
    query_id: str
    # When the task began to write, ms.
    since_ms: int


@message_first
class _TableWriter:
    """What both writers share. Spark makes one for each batch."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        self._name = options.name
        self._plan = prepare_table(options, row_schema(schema))
        self._overwrite = overwrite

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task to files."""
        return write_files(self._plan, iterator)

    def _commit(self, found: WrittenDataFiles, identity: BatchIdentity | None) -> None:
        try:
            added = commit_files(self._name, self._plan, found.files, self._overwrite, identity)
        except IcebergTableError:
            remove_unnamed(self._name, found.files, found.since_ms)
            raise
        if not added:
            remove_unnamed(self._name, found.files, found.since_ms)

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        # If all tasks are done, the commit failed. A catalog that did not answer may still add the
        # files, so they stay until they are old.
        if any(each is None for each in messages):
            found = _gather(messages)
            remove_unnamed(self._name, found.files, found.since_ms)


@message_first
class IcebergWriter(_TableWriter, DataSourceArrowWriter):
    """Writes a DataFrame in one commit."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the files of all tasks to the table."""
        found = _gather(messages)
        if found.files or self._overwrite:
            self._commit(found, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the files of the other tasks after a task failed."""
        self._abort(messages)


@message_first
class IcebergStreamWriter(_TableWriter, DataSourceStreamArrowWriter):
    """Writes each micro-batch in one commit, exactly once."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the files of all tasks, unless the table already has the batch."""
        found = _gather(messages)
        if not found.query_id or not (found.files or self._overwrite):
            # Without rows there is nothing to commit, and the same holds for a repetition of the
            # batch.
            return
        self._commit(found, BatchIdentity(found.query_id, batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Delete the files of the other tasks after a task failed."""
        self._abort(messages)


def row_schema(schema: StructType) -> pa.Schema:
    """Convert Spark's schema to Arrow's: timestamps are UTC, in microseconds.

    Raises:
        OptionError: an Iceberg table cannot store one of the types.
    """
    return stored_schema(schema, "barnabas_iceberg")


def write_files(plan: FilePlan, batches: Iterator[pa.RecordBatch]) -> WrittenDataFiles:
    """Write rows to uncommitted files; a failed task deletes its own files."""
    from barnabas.spark.iceberg.files import IcebergFiles

    since_ms = int(time.time() * 1000)
    written = write_all(IcebergFiles(plan), batches)
    return WrittenDataFiles(written, task_query_id(), since_ms)


def _gather(messages: Sequence[WriterCommitMessage | None]) -> WrittenDataFiles:
    """Return the files of all tasks as if one task had written them."""
    reported = [each for each in messages if isinstance(each, WrittenDataFiles)]
    return WrittenDataFiles(
        [file for each in reported for file in each.files],
        reported[0].query_id if reported else "",
        min((each.since_ms for each in reported), default=0),
    )
