"""Maintenance of a Delta table, by delta-rs."""

from __future__ import annotations

import datetime as dt
import math
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from barnabas.spark.delta.columns import decimal_columns, file_properties
from barnabas.spark.delta.merge import old_staged_files
from barnabas.spark.delta.plan import table_state, unreplaceable_path
from barnabas.spark.delta.table import open_files
from barnabas.spark.errors import MaintenanceError
from barnabas.spark.tables.maintenance import SMALL_SHARE, Compaction, Expiry, TableStatus

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from barnabas.spark.delta.columns import Column
    from barnabas.spark.delta.options import DeltaOptions
    from barnabas.spark.tables.maintenance import Progress


_HOUR_MS = 3_600_000
# A long compaction commits so often: what came before survives a kill.
_COMMIT_INTERVAL = dt.timedelta(seconds=30)
# How often a commit is tried while others change the table.
_ATTEMPTS = 10


class MaintainedDelta:
    """A Delta table under maintenance."""

    def __init__(self, options: DeltaOptions) -> None:
        self._options = options

    def status(self, target_bytes: int) -> TableStatus:
        """Return the state of the table."""
        import pyarrow as pa

        table = self._load()
        # Statistics may have dates that Python does not have.
        names = ["path", "size_bytes", "num_records"]
        found = pa.table(table.get_add_actions(flatten=True)).select(names)
        actions: list[dict[str, Any]] = found.to_pylist()
        history = table.history()
        sizes = [each["size_bytes"] for each in actions]
        return TableStatus(
            kind="delta",
            snapshot=table.version(),
            rows=sum(map(self._stored_rows, actions)) - _deleted_rows(table),
            files=len(actions),
            size=sum(sizes),
            small_files=sum(each < SMALL_SHARE * target_bytes for each in sizes),
            snapshots=len(history),
            oldest_ms=min((each["timestamp"] for each in history), default=None),
        )

    def compact(self, target_bytes: int, progress: Progress) -> Compaction:
        """Replace small files by files of about the target size."""
        from deltalake.exceptions import CommitFailedError

        total = self.status(target_bytes).small_files
        progress(0, total)
        for attempt in range(_ATTEMPTS):
            try:
                table = self._load()
                columns = table_state(table, self._options.address).columns
                self._check_files(table, columns)
                metrics = table.optimize.compact(
                    target_size=target_bytes,
                    min_commit_interval=_COMMIT_INTERVAL,
                    writer_properties=file_properties(columns, "ZSTD"),
                )
                break
            except CommitFailedError:
                # A writer that is no stream in append mode removed files.
                if attempt == _ATTEMPTS - 1:
                    raise
        progress(total, total)
        return Compaction(metrics["numFilesRemoved"], metrics["numFilesAdded"])

    def expire(self, before_ms: int, *, execute: bool, progress: Progress) -> Expiry:
        """Remove files that no version names or only old ones need, and old parts of the log.

        delta-rs counts in hours. Below one hour, files that no version ever named are left: they
        may be of a batch that is being written.
        """
        age_ms = max(time.time() * 1000 - before_ms, 0)
        hours = math.ceil(age_ms / _HOUR_MS) if age_ms >= _HOUR_MS else int(age_ms > 60_000)
        table = self._load()
        files = table.vacuum(
            hours,
            dry_run=not execute,
            enforce_retention_duration=False,
            full=hours > 0,
        )
        # delta-rs leaves out directories whose names begin with an underscore.
        staged = old_staged_files(self._options, before_ms) if hours else []
        if execute:
            storage = open_files(self._options)
            for path in staged:
                storage.delete_file(path)
            table = self._load()
            table.create_checkpoint()
            table.cleanup_metadata()
        files = sorted([*files, *staged])
        progress(len(files), len(files))
        return Expiry((), tuple(files))

    def _stored_rows(self, action: dict[str, Any]) -> int:
        """Return the rows of a file, also of those that a deletion vector removed."""
        import pyarrow.parquet as pq

        if action["num_records"] is not None:
            return int(action["num_records"])
        # The writer has left out the statistics. The log has the path percent-encoded.
        with open_files(self._options).open_input_file(unquote(action["path"])) as file:
            return int(pq.read_metadata(file).num_rows)

    def _check_files(self, table: DeltaTable, columns: list[Column]) -> None:
        """Refuse to rewrite files that delta-rs cannot replace, or whose partitions it would spoil.

        Raises:
            MaintenanceError: the table has such files.
        """
        import pyarrow as pa

        path = unreplaceable_path(table)
        if path is not None:
            raise MaintenanceError(
                f"{self._options.address} has the file {path!r}, which delta-rs cannot replace: it"
                " would write another path to the log, and the rows would be there twice. Nothing"
                " was changed. Compact the table with Spark and Delta's jar (OPTIMIZE)"
            )

        values = pa.table(table.get_add_actions(flatten=True))
        for name in decimal_columns(columns, table.metadata().partition_columns):
            if any(
                each is not None and each < 0 for each in values[f"partition.{name}"].to_pylist()
            ):
                raise MaintenanceError(
                    f"{self._options.address} has partitions of negative decimals ({name}), and"
                    " delta-rs would write their values so that no reader accepts them. Nothing was"
                    " changed. Compact the table with Spark and Delta's jar, or partition it by"
                    " another column"
                )

    def _load(self) -> DeltaTable:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(self._options.address, storage_options=self._options.storage)
        except TableNotFoundError as error:
            raise MaintenanceError(
                f"{self._options.address} is no Delta table. For an Iceberg table, name its catalog"
            ) from error


def _deleted_rows(table: DeltaTable) -> int:
    """Return how many rows of current files deletion vectors removed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    deleted = 0
    # One row for each file with a vector: whether each of its rows is live, up to the last that is
    # not.
    for each in table.deletion_vectors():
        is_live = pc.list_flatten(pa.record_batch(each)["selection_vector"])
        deleted += len(is_live) - (pc.sum(is_live).as_py() or 0)
    return deleted
