"""Commits the files of all tasks to an Iceberg table on the driver, exactly once.

The snapshot of a batch carries the id of the query and the number of the batch, and the same
commit sets them as a property of the table. The property outlives the snapshot when it expires.
If Spark repeats a batch after a crash, its number is already in the table, and the commit adds
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from barnabas.spark.errors import IcebergTableError
from barnabas.spark.iceberg.catalog import open_table
from barnabas.spark.tables.commits import CLOCKS_MS, retry_conflicts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from barnabas.spark.iceberg.catalog import TableName
    from barnabas.spark.iceberg.layout import FilePlan
    from barnabas.spark.tables.commits import BatchIdentity
    from barnabas.spark.tables.rows import PartitionedFiles
    from barnabas.spark.tables.writers import WrittenFiles

# Properties of a snapshot.
QUERY_ID, BATCH_ID = "barnabas.query-id", "barnabas.batch-id"
# Property of the table for each query: the last batch and its snapshot, as BATCH@SNAPSHOT.
LAST_BATCH_PREFIX = "barnabas.last-batch."

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class IcebergTarget:
    """An Iceberg table to which rows are added, or whose rows they replace."""

    name: TableName
    plan: FilePlan
    overwrite: bool

    def task_files(self, query_id: str) -> PartitionedFiles[DataFile]:
        """Return new files for the rows of one task."""
        from barnabas.spark.iceberg.files import task_files

        return task_files(self.plan)

    def commit(self, written: WrittenFiles, identity: BatchIdentity | None) -> None:
        """Commit the files of all tasks, unless the table already has the batch."""
        has_tasks = identity is None or identity.query_id
        if not has_tasks or not (written.files or self.overwrite):
            # Without rows there is nothing to commit, and the same holds for a repetition of the
            # batch.
            return
        try:
            added = commit_files(self.name, self.plan, written.files, self.overwrite, identity)
        except IcebergTableError:
            remove_unnamed(self.name, written.files, written.since_ms)
            raise
        if not added:
            remove_unnamed(self.name, written.files, written.since_ms)

    def abort(self, written: WrittenFiles, *, has_failed_task: bool) -> None:
        """Delete the files of the other tasks after a task failed.

        If all tasks are done, the commit failed. A catalog that did not answer may still add the
        files, so they stay until they are old.
        """
        if has_failed_task:
            remove_unnamed(self.name, written.files, written.since_ms)


def commit_files(
    name: TableName,
    plan: FilePlan,
    files: Sequence[DataFile],
    overwrite: bool,
    identity: BatchIdentity | None,
) -> bool:
    """Add the files to the table in one commit.

    Args:
        name: the table.
        plan: the layout by which the files were written.
        files: the files of all tasks.
        overwrite: whether the files replace all existing rows.
        identity: identity of the batch, None if Spark does not repeat it.

    Returns:
        False if the table already has this batch; then the files are not added.

    Raises:
        IcebergTableError: the table was changed, or is newer than the checkpoint.
        CommitFailedException: other writers changed the table during all attempts.
    """
    attempted: list[int] = []

    def attempt() -> bool:
        table = loaded(name)
        if any(table.snapshot_by_id(each) for each in attempted):
            # An earlier attempt succeeded, and its response was lost.
            return True
        if identity is not None and has_batch(table, identity, name.table):
            return False
        check_plan(table, plan, name.table)
        _commit_once(table, files, overwrite, identity, attempted)
        return True

    return retried(attempt)


def loaded(name: TableName) -> Table:
    """Load a table whose commits fail after a conflict, for `retried`.

    `pyiceberg` would repeat an append against the new state without a look at it. That state may
    have the batch already: from another driver of the same query.
    """
    table = open_table(name)
    properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table


def retried(attempt: Callable[[], T]) -> T:
    """Repeat a commit until no other writer was faster.

    Raises:
        CommitFailedException: time is up.
    """
    from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

    return retry_conflicts(attempt, (CommitFailedException, CommitStateUnknownException))


def _commit_once(
    table: Table,
    files: Sequence[DataFile],
    overwrite: bool,
    identity: BatchIdentity | None,
    attempted: list[int],
) -> None:
    """Commit the files; before, add the id of the new snapshot to `attempted`."""
    from pyiceberg.expressions import AlwaysTrue

    with table.transaction() as transaction:
        properties = identity_properties(identity)
        if overwrite and _has_rows(table):
            transaction.delete(AlwaysTrue(), snapshot_properties=properties)
        snapshot = None
        if files:
            with transaction.update_snapshot(properties).merge_append() as append:
                for file in files:
                    append.append_data_file(file)
            snapshot = append.snapshot_id
            attempted.append(snapshot)
        if identity is not None:
            transaction.set_properties(batch_property(identity, snapshot))


def _has_rows(table: Table) -> bool:
    current = table.current_snapshot()
    return current is not None and any(current.manifests(table.io))


def identity_properties(identity: BatchIdentity | None) -> dict[str, str]:
    """Return the properties of a batch's snapshot."""
    if identity is None:
        return {}
    return {QUERY_ID: identity.query_id, BATCH_ID: str(identity.batch_id)}


def batch_property(identity: BatchIdentity, snapshot: int | None) -> dict[str, str]:
    """Return the table's property that names a query's last batch, and its snapshot if any."""
    value = f"{identity.batch_id}@{'none' if snapshot is None else snapshot}"
    return {f"{LAST_BATCH_PREFIX}{identity.query_id}": value}


def has_batch(table: Table, identity: BatchIdentity, name: str) -> bool:
    """Return whether the table has a batch already.

    Raises:
        IcebergTableError: the table is newer than the checkpoint.
    """
    last = last_batch(table, identity.query_id)
    restore = "Roll the table back to the snapshot"
    return identity.is_in(name, last, IcebergTableError, restore)


def last_batch(table: Table, query_id: str) -> int | None:
    """Return the number of a query's last batch in the table; None without one."""
    stored = table.properties.get(f"{LAST_BATCH_PREFIX}{query_id}")
    if stored is None:
        return None
    batch, _, snapshot = stored.partition("@")
    snapshots = {each.snapshot_id: each for each in table.snapshots()}
    if not snapshot.isdigit() or int(snapshot) not in snapshots:
        # A batch without rows, or an expired snapshot.
        return int(batch)
    history = _ancestors(table, snapshots)
    # Where snapshots between have expired, the way back to the batch's snapshot is gone.
    reach = history[-1].sequence_number or 0 if history else 0
    recorded = snapshots[int(snapshot)]
    if recorded in history or (recorded.sequence_number or 0) < reach:
        return int(batch)
    # The table was rolled back to before this batch.
    batches = [
        int(summary[BATCH_ID] or -1)
        for each in history
        if (summary := each.summary) is not None and summary.get(QUERY_ID) == query_id
    ]
    return max(batches, default=None)


def _ancestors(table: Table, snapshots: dict[int, Snapshot]) -> list[Snapshot]:
    """Return the current snapshot and those before it that have not expired."""
    found = []
    current = table.current_snapshot()
    while current is not None:
        found.append(current)
        parent = current.parent_snapshot_id
        current = None if parent is None else snapshots.get(parent)
    return found


def check_plan(table: Table, plan: FilePlan, name: str) -> None:
    """Refuse files whose field ids or partitions are not those of the table any more."""
    schema, spec = plan.parsed()
    now = table.schema()
    written = {each.field_id: (each.name, each.field_type) for each in schema.fields}
    fits = table.location() == plan.location and table.spec() == spec
    for field in now.fields:
        found = written.pop(field.field_id, None)
        fits = fits and (not field.required if found is None else found[0] == field.name)
    if written or not fits:
        raise IcebergTableError(
            f"the layout of {name} was changed while the batch was written. Nothing was added;"
            " start the query again"
        )


def remove_unnamed(name: TableName, files: Sequence[DataFile], since_ms: int) -> None:
    """Delete the files that no snapshot of the table contains.

    The table may contain them although the commit failed: an error can follow the actual commit.

    Args:
        name: the table.
        files: the files.
        since_ms: when the first of their tasks began, by the clock of its machine.
    """
    from pyiceberg.exceptions import NoSuchTableError

    if not files:
        return
    try:
        table = open_table(name)
    except NoSuchTableError:
        return
    paths = {each.file_path for each in files}
    recent = [each for each in table.snapshots() if each.timestamp_ms >= since_ms - CLOCKS_MS]
    manifests = {
        manifest.manifest_path: manifest
        for snapshot in recent
        for manifest in snapshot.manifests(table.io)
    }
    for manifest in manifests.values():
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            paths.discard(entry.data_file.file_path)
    for path in paths:
        table.io.delete(path)
