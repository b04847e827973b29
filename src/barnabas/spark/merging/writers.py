"""Writers for PySpark: tasks stage rows in files, and the driver merges them in one commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from barnabas.spark.batch_identity import BatchIdentity, task_query_id
from barnabas.spark.merging.staging import StagedFile, latest_rows, read_staged
from barnabas.spark.partitioned_files import write_all
from barnabas.spark.row_types import arrow_rows
from barnabas.spark.shown_errors import message_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from barnabas.spark.merging.merge_options import MergeOptions
    from barnabas.spark.merging.staging import StagingStorage


class MergeTarget(Protocol):
    """A table of either kind; it travels to the executors."""

    @property
    def merge(self) -> MergeOptions:
        """How rows change the table."""

    @property
    def staging_directory(self) -> str:
        """Path of the directory for staged rows."""

    def open_storage(self) -> StagingStorage:
        """Connect to the file system of the table."""

    def create_if_missing(self) -> None:
        """Create the table without rows if it does not exist."""

    def merge_rows(self, rows: pa.Table, identity: BatchIdentity | None) -> None:
        """Merge one row for each key in one commit, unless the table has the batch already.

        Args:
            rows: staged rows.
            identity: identity of the batch, None if Spark does not repeat it.
        """


@dataclass
class StagedRows(WriterCommitMessage):
    """Result of a task: its files."""

    paths: list[str]
    # Id of the task's streaming query; empty without one.
    query_id: str


@message_first
class _MergingWriter:
    """What both writers share."""

    def __init__(self, target: MergeTarget, schema: StructType) -> None:
        self._target = target
        self._rows = arrow_rows(schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of one task."""
        target, query_id = self._target, task_query_id()
        file = StagedFile(
            target.open_storage(),
            target.staging_directory,
            target.merge,
            self._rows,
            query_id or "job",
        )
        return StagedRows(write_all(file, iterator), query_id)

    def _merge(self, messages: Sequence[WriterCommitMessage | None], batch: int | None) -> None:
        reported = [each for each in messages if isinstance(each, StagedRows)]
        paths = [path for each in reported for path in each.paths]
        if not paths:
            # Without rows there is nothing to commit, and the same holds for a repetition of the
            # batch. Readers find a new table already now.
            self._target.create_if_missing()
            return
        identity = None if batch is None else BatchIdentity(reported[0].query_id, batch)
        storage = self._target.open_storage()
        rows = latest_rows(read_staged(storage, paths), self._target.merge)
        self._target.merge_rows(rows, identity)
        for path in paths:
            storage.delete(path)

    def _delete_staged(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        storage = self._target.open_storage()
        for each in messages:
            if isinstance(each, StagedRows):
                for path in each.paths:
                    storage.delete(path)


@message_first
class MergingWriter(_MergingWriter, DataSourceArrowWriter):
    """Merges a DataFrame in one commit."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Merge the rows of all tasks."""
        self._merge(messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the staged rows after a task or the merge failed."""
        self._delete_staged(messages)


@message_first
class MergingStreamWriter(_MergingWriter, DataSourceStreamArrowWriter):
    """Merges each micro-batch in one commit, exactly once."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Merge the rows of all tasks, unless the table already has the batch."""
        self._merge(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Delete the staged rows after a task or the merge failed."""
        self._delete_staged(messages)
