"""Compacts an Iceberg table: rewrites small files, and replaces them in one commit each few.

`pyiceberg` has no compaction. A commit replaces files only if all of them are still in the table,
unchanged by deletes of rows. If another commit came between, it is tried again on the new state. So
appends of a stream meanwhile lose nothing. A kill leaves files that no snapshot names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.spark.iceberg.catalog import open_table
from barnabas.spark.iceberg.commit import check_plan, loaded, retried
from barnabas.spark.iceberg.files import IcebergFiles
from barnabas.spark.iceberg.layout import FilePlan
from barnabas.spark.partitioned_files import write_all
from barnabas.spark.tables.errors import MaintenanceError
from barnabas.spark.tables.reports import SMALL_SHARE, Compaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.typedef import Record

    from barnabas.spark.iceberg.catalog import TableName
    from barnabas.spark.tables.reports import Progress

# A commit follows when the files to replace have this size: what came before survives a kill.
_COMMIT_BYTES = 1 << 30
# Property of the snapshots.
_MARK = {"barnabas.operation": "compact"}


@dataclass(frozen=True, slots=True)
class _Bin:
    """Small files of one partition that become one file."""

    partition: Record
    tasks: tuple[FileScanTask, ...]

    @property
    def size(self) -> int:
        """Size of the files, bytes."""
        return sum(each.file.file_size_in_bytes for each in self.tasks)


def compact(name: TableName, target_bytes: int, progress: Progress) -> Compaction:
    """Replace small files by files of about the target size.

    Raises:
        MaintenanceError: the table's format has row ids, which would change, or the table has
            equality deletes.
        CommitFailedException: other writers changed the table during all attempts.
    """
    table = open_table(name)
    if table.format_version > 2:
        raise MaintenanceError(
            f"{name.table} has format version {table.format_version}, whose rows have ids that a"
            " compaction here would change: compact it with Spark's or Flink's Iceberg"
        )
    candidates, skipped = _candidates(table, planned_files(table, name), target_bytes)
    bins = list(_bins(candidates, target_bytes))
    total = sum(len(each.tasks) for each in bins)
    removed = added = lost = 0
    progress(0, total)
    for group in _groups(bins):
        count = sum(len(each.tasks) for each in group)
        files = _replace(name, table, group, target_bytes)
        if files is None:
            lost += count
        else:
            removed += count
            added += files
        progress(removed + lost, total)
    return Compaction(removed, added, lost, skipped)


def planned_files(table: Table, name: TableName) -> list[FileScanTask]:
    """Return the files of the current snapshot, with the files that delete rows of them.

    Raises:
        MaintenanceError: the table has deletes that pyiceberg cannot apply.
    """
    try:
        return list(table.scan().plan_files())
    except ValueError as error:
        # pyiceberg has no class of its own for this.
        if "equality deletes" not in str(error):
            raise
        raise MaintenanceError(
            f"{name.table} has equality deletes, which pyiceberg cannot apply. Nothing was changed."
            " Rewrite its files with Spark's or Flink's Iceberg (rewrite_data_files)"
        ) from error


def _candidates(
    table: Table, tasks: Sequence[FileScanTask], target_bytes: int
) -> tuple[list[FileScanTask], dict[str, int]]:
    """Return the small files, and how many cannot be compacted, by reason."""
    found = []
    skipped: dict[str, int] = {}
    for task in tasks:
        if task.file.file_size_in_bytes >= SMALL_SHARE * target_bytes:
            continue
        if task.delete_files:
            reason = "has deleted rows"
        elif task.file.spec_id != table.spec().spec_id:
            reason = "has partitions of an earlier layout"
        else:
            found.append(task)
            continue
        skipped[reason] = skipped.get(reason, 0) + 1
    return found, skipped


def _bins(tasks: Iterable[FileScanTask], target_bytes: int) -> Iterator[_Bin]:
    """Yield groups of at least two files of a partition, each at most of the target size."""
    by_partition: dict[Record, list[FileScanTask]] = {}
    for task in tasks:
        by_partition.setdefault(task.file.partition, []).append(task)
    for partition, several in by_partition.items():
        chosen: list[FileScanTask] = []
        size = 0
        for task in sorted(several, key=lambda each: each.file.file_size_in_bytes):
            if chosen and size + task.file.file_size_in_bytes > target_bytes:
                if len(chosen) > 1:
                    yield _Bin(partition, tuple(chosen))
                chosen, size = [], 0
            chosen.append(task)
            size += task.file.file_size_in_bytes
        if len(chosen) > 1:
            yield _Bin(partition, tuple(chosen))


def _groups(bins: Iterable[_Bin]) -> Iterator[list[_Bin]]:
    """Yield the bins that one commit replaces."""
    group: list[_Bin] = []
    size = 0
    for each in bins:
        group.append(each)
        size += each.size
        if size >= _COMMIT_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _replace(name: TableName, table: Table, group: Sequence[_Bin], target_bytes: int) -> int | None:
    """Rewrite the files of a group and commit; return the new files' count, None if it lost.

    It loses against a writer that replaced one of the files, or deleted rows in it.
    """
    plan = FilePlan.of(table)
    written = [file for each in group for file in _rewritten(table, plan, each, target_bytes)]
    # After an error the commit may have succeeded all the same: `expire` removes unnamed files.
    replaced = _commit(name, plan, [task for each in group for task in each.tasks], written)
    if replaced:
        return len(written)
    for file in written:
        table.io.delete(file.file_path)
    return None


def _rewritten(table: Table, plan: FilePlan, each: _Bin, target_bytes: int) -> list[DataFile]:
    from barnabas.spark.iceberg.scan import read_file

    files = IcebergFiles(plan, target_bytes, each.partition)
    batches = (batch for task in each.tasks for batch in read_file(table, task, table.schema()))
    return write_all(files, batches)


def _commit(
    name: TableName, plan: FilePlan, old: Sequence[FileScanTask], new: Sequence[DataFile]
) -> bool:
    """Replace files in one commit; return False if one of the old files is changed or gone."""
    attempted: list[int] = []

    def attempt() -> bool:
        table = loaded(name)
        if any(table.snapshot_by_id(each) for each in attempted):
            return True
        check_plan(table, plan, name.table)
        now = {task.file.file_path: task for task in table.scan().plan_files()}
        current = [now.get(task.file.file_path) for task in old]
        if any(task is None or task.delete_files for task in current):
            return False
        with (
            table.transaction() as transaction,
            transaction.update_snapshot(_MARK).overwrite() as replacement,
        ):
            for task in current:
                assert task is not None
                replacement.delete_data_file(task.file)
            for file in new:
                replacement.append_data_file(file)
            attempted.append(replacement.snapshot_id)
        return True

    return retried(attempt)
