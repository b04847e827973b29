"""Maintenance of an Iceberg table."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.spark.commit_retries import TIMEOUT_S
from barnabas.spark.iceberg.catalog import open_table
from barnabas.spark.iceberg.commit import LAST_BATCH_PREFIX, last_batch
from barnabas.spark.tables.errors import MaintenanceError
from barnabas.spark.tables.iceberg_compaction import compact, planned_files
from barnabas.spark.tables.iceberg_expiry import expire_snapshots, expired_snapshots, unnamed_files
from barnabas.spark.tables.reports import SMALL_SHARE, Expiry, TableStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.table import FileScanTask, Table

    from barnabas.spark.iceberg.catalog import TableName
    from barnabas.spark.tables.reports import Compaction, Progress


class MaintainedIceberg:
    """An Iceberg table under maintenance."""

    def __init__(self, name: TableName) -> None:
        self._name = name

    def status(self, target_bytes: int) -> TableStatus:
        """Return the state of the table."""
        table = open_table(self._name)
        tasks = planned_files(table, self._name)
        files = [each.file for each in tasks]
        current = table.current_snapshot()
        queries = [
            name.removeprefix(LAST_BATCH_PREFIX)
            for name in table.properties
            if name.startswith(LAST_BATCH_PREFIX)
        ]
        batches = {each: last_batch(table, each) for each in queries}
        return TableStatus(
            kind="iceberg",
            snapshot=None if current is None else current.snapshot_id,
            rows=sum(_live_rows(table, each) for each in tasks),
            files=len(files),
            size=sum(each.file_size_in_bytes for each in files),
            small_files=sum(each.file_size_in_bytes < SMALL_SHARE * target_bytes for each in files),
            snapshots=len(table.snapshots()),
            oldest_ms=min((each.timestamp_ms for each in table.snapshots()), default=None),
            queries={query: batch for query, batch in batches.items() if batch is not None},
        )

    def compact(self, target_bytes: int, progress: Progress) -> Compaction:
        """Replace small files by files of about the target size."""
        with self._losing_to_writers():
            return compact(self._name, target_bytes, progress)

    def expire(self, before_ms: int, *, execute: bool, progress: Progress) -> Expiry:
        """Remove old snapshots, and files that no snapshot names."""
        if execute:
            with self._losing_to_writers():
                snapshots = expire_snapshots(self._name, before_ms)
            files = unnamed_files(self._name, before_ms, ())
            io = open_table(self._name).io
            for done, path in enumerate(files):
                progress(done, len(files))
                io.delete(path)
            progress(len(files), len(files))
        else:
            snapshots = expired_snapshots(open_table(self._name), before_ms)
            files = unnamed_files(self._name, before_ms, snapshots)
        return Expiry(tuple(snapshots), tuple(files))

    @contextmanager
    def _losing_to_writers(self) -> Iterator[None]:
        """Explain the error if other writers were faster in all attempts of a commit."""
        from pyiceberg.exceptions import CommitFailedException

        try:
            yield
        except CommitFailedException as error:
            raise MaintenanceError(
                f"{self._name.table} was changed by other writers during each attempt of"
                f" {TIMEOUT_S:.0f} s: run the command again when they commit less often ({error})"
            ) from error


def _live_rows(table: Table, task: FileScanTask) -> int:
    """Return how many rows of a file are not deleted.

    Files with deletes are read: a file of deletes may name a row twice, or rows of other files.
    """
    from barnabas.spark.iceberg.scan import read_file

    if not task.delete_files:
        return task.file.record_count
    schema = table.schema()
    column = schema.select(schema.fields[0].name)
    return sum(batch.num_rows for batch in read_file(table, task, column))
