"""Maintenance of an Iceberg table: its status, compaction, and the expiry of snapshots and files.

`pyiceberg` has no compaction. Here small files are rewritten, and one commit replaces each few of
them. A commit replaces files only if all of them are still in the table, unchanged by deletes of
rows. If another commit came between, it is tried again on the new state. So appends of a stream
meanwhile lose nothing. A kill leaves files that no snapshot names.

`pyiceberg` removes snapshots from the metadata and leaves the files. Here all files of the table's
directories are compared with those that its metadata names. This also finds the files of killed
tasks and compactions, and it may be killed and repeated at any point.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.spark.errors import MaintenanceError
from barnabas.spark.iceberg.catalog import open_table
from barnabas.spark.iceberg.commit import LAST_BATCH_PREFIX, check_plan, last_batch, loaded, retried
from barnabas.spark.iceberg.files import read_file, task_files
from barnabas.spark.iceberg.layout import FilePlan
from barnabas.spark.tables.commits import TIMEOUT_S
from barnabas.spark.tables.maintenance import SMALL_SHARE, Compaction, Expiry, TableStatus
from barnabas.spark.tables.rows import write_all

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.typedef import Record

    from barnabas.spark.iceberg.catalog import TableName
    from barnabas.spark.tables.maintenance import Progress

# A commit follows when the files to replace have this size: what came before survives a kill.
_COMMIT_BYTES = 1 << 30
# Property of the snapshots.
_MARK = {"barnabas.operation": "compact"}
# Files with other names are not of the table.
_ENDINGS = (".parquet", ".avro", ".orc", ".puffin", ".stats", ".metadata.json")


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
    if not task.delete_files:
        return task.file.record_count
    schema = table.schema()
    column = schema.select(schema.fields[0].name)
    return sum(batch.num_rows for batch in read_file(table, task, column))


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
    files = task_files(plan, target_bytes, each.partition)
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


def expired_snapshots(table: Table, before_ms: int) -> list[int]:
    """Return the ids of snapshots that are older and neither a branch's current one nor tagged."""
    kept = {each.snapshot_id for each in table.refs().values()}
    return [
        each.snapshot_id
        for each in table.snapshots()
        if each.timestamp_ms < before_ms and each.snapshot_id not in kept
    ]


def expire_snapshots(name: TableName, before_ms: int) -> list[int]:
    """Remove old snapshots from the table's metadata, and return their ids."""
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table.refs import MAIN_BRANCH
    from pyiceberg.table.update import AssertRefSnapshotId

    def attempt() -> list[int]:
        table = loaded(name)
        found = expired_snapshots(table, before_ms)
        if not found:
            return []
        expiry = table.maintenance.expire_snapshots().by_ids(found)
        # Another commit may have made one of them the current one again.
        current = table.metadata.current_snapshot_id
        expiry._requirements += (
            AssertRefSnapshotId.model_validate({"ref": MAIN_BRANCH, "snapshot-id": current}),
        )
        try:
            expiry.commit()
        except ValueError as error:
            # Another process removed one of them at the same time.
            raise CommitFailedException(str(error)) from error
        return found

    return retried(attempt)


def unnamed_files(name: TableName, before_ms: int, without: Collection[int]) -> list[str]:
    """Return the old files that the table does not name.

    The files are listed before the table is loaded: a file that is committed between is named.

    Args:
        name: the table.
        before_ms: younger files are left out; they may be of a batch that is being written.
        without: ids of snapshots whose files count as unnamed.

    Raises:
        MaintenanceError: the file system of the table cannot be listed.
    """
    from pyiceberg.io.pyarrow import PyArrowFileIO

    table = open_table(name)
    if not isinstance(table.io, PyArrowFileIO):
        raise MaintenanceError(
            f"the files of {name.table} cannot be listed: set the catalog's property py-io-impl to"
            " pyiceberg.io.pyarrow.PyArrowFileIO"
        )
    listed = _old_files(table, table.io, before_ms)
    named = {_plain(each) for each in _named(open_table(name), without)}
    return [address for path, address in sorted(listed.items()) if path not in named]


def _old_files(table: Table, io: PyArrowFileIO, before_ms: int) -> dict[str, str]:
    """Return the old files in the table's directories: path on the file system -> address."""
    from pyarrow.fs import FileSelector, FileType

    locations = table.location_provider()
    found = {}
    for directory in (locations.data_path, locations.metadata_path):
        # A directory outside may be shared with other tables.
        if not directory.startswith(table.location().rstrip("/") + "/"):
            continue
        scheme, host, path = io.parse_location(directory)
        prefix = directory[: len(directory) - len(path)] if directory.endswith(path) else ""
        selector = FileSelector(path, recursive=True, allow_not_found=True)
        for each in io.fs_by_scheme(scheme, host).get_file_info(selector):
            is_old = each.mtime_ns is not None and each.mtime_ns < before_ms * 1_000_000
            if each.type == FileType.File and is_old and each.path.endswith(_ENDINGS):
                found[each.path] = f"{prefix}{each.path}"
    return found


def _named(table: Table, without: Collection[int]) -> set[str]:
    """Return the addresses of all files that the table names."""
    metadata = table.metadata
    named = {table.metadata_location, *(each.metadata_file for each in metadata.metadata_log)}
    named.update(each.statistics_path for each in metadata.statistics)
    named.update(each.statistics_path for each in metadata.partition_statistics)
    manifests = {}
    for snapshot in table.snapshots():
        if snapshot.snapshot_id in without:
            continue
        named.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            manifests[manifest.manifest_path] = manifest
    for path, manifest in manifests.items():
        named.add(path)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            named.add(entry.data_file.file_path)
    return named


def _plain(address: str) -> str:
    from pyiceberg.io.pyarrow import PyArrowFileIO

    return PyArrowFileIO.parse_location(address)[2]
