"""Commits the files of all tasks to a Delta table on the driver, exactly once.

A commit contains an application transaction (Delta protocol, action `txn`) with the number of the
batch and the id of the query; the checkpoint stores this id. If Spark repeats a batch after a
crash, its number is already in the table, and the commit adds nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from barnabas.spark.delta.columns import delta_schema
from barnabas.spark.delta.plan import plan_write, renewed, table_state
from barnabas.spark.errors import DeltaTableError
from barnabas.spark.tables.commits import CLOCKS_MS, retry_conflicts

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow.fs as pafs
    from deltalake import CommitProperties, DeltaTable
    from deltalake.transaction import AddAction

    from barnabas.spark.delta.columns import Column
    from barnabas.spark.delta.files import WrittenFile
    from barnabas.spark.delta.options import DeltaOptions
    from barnabas.spark.delta.plan import WritePlan
    from barnabas.spark.tables.commits import BatchIdentity
    from barnabas.spark.tables.rows import PartitionedFiles
    from barnabas.spark.tables.writers import WrittenFiles


@dataclass(frozen=True, slots=True)
class DeltaTarget:
    """A Delta table to which rows are added, or whose rows they replace."""

    options: DeltaOptions
    plan: WritePlan
    # Whether the table does not exist yet.
    is_new: bool

    @classmethod
    def planned(cls, options: DeltaOptions, rows: list[Column], *, overwrite: bool) -> DeltaTarget:
        """Look at the table, and plan how the rows are written to it.

        Raises:
            DeltaTableError: the rows do not fit the table, or the sink does not support the table.
        """
        table = load_table(options)
        plan = plan_write(options, rows, table, removes_rows=overwrite)
        return cls(options, plan, table is None)

    def task_files(self, query_id: str) -> PartitionedFiles[WrittenFile]:
        """Return new files for the rows of one task."""
        from barnabas.spark.delta.files import task_files

        return task_files(open_files(self.options), self.plan)

    def commit(self, written: WrittenFiles, identity: BatchIdentity | None) -> None:
        """Commit the files of all tasks, unless the table already has the batch."""
        has_changes = written.files or self.plan.removes_rows or self.is_new
        if identity is not None and not (identity.query_id and has_changes):
            # Without rows there is nothing to commit, and the same holds for a repetition of the
            # batch. A new table is created all the same: the first rows of an aggregation come
            # some batches later, and until then readers find a table without rows.
            return
        if not commit_files(self.options, self.plan, written.files, identity):
            remove_unnamed(self.options, written.files, written.since_ms)

    def abort(self, written: WrittenFiles, *, has_failed_task: bool) -> None:
        """Delete the written files, unless the failed commit has added them after all."""
        remove_unnamed(self.options, written.files, written.since_ms)


def open_files(options: DeltaOptions) -> pafs.FileSystem:
    """Open the table's directory as a file system; create it if it is local and missing."""
    import pyarrow.fs as pafs
    from deltalake.fs import DeltaStorageHandler

    if options.is_local:
        pafs.LocalFileSystem().create_dir(options.address, recursive=True)
    handler = DeltaStorageHandler(options.address, options.storage)
    return pafs.PyFileSystem(handler)


def load_table(options: DeltaOptions) -> DeltaTable | None:
    """Load the current state of a table; return None if it does not exist.

    Raises:
        DeltaTableError: `delta-rs` cannot read the table.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    if not DeltaTable.is_deltatable(options.address, options.storage):
        return None
    try:
        return DeltaTable(options.address, storage_options=options.storage)
    except DeltaError as error:
        raise DeltaTableError(
            f"delta-rs cannot open the table {options.address}: {error}"
        ) from error


def remove_unnamed(options: DeltaOptions, files: Sequence[WrittenFile], since_ms: int) -> None:
    """Delete the files that no version of the table contains.

    The table may contain them although the commit failed: an error can follow the actual commit.
    An overwrite or a compaction may then have removed them from the current version, but readers
    of earlier versions need them.

    Args:
        options: address of the table.
        files: the files.
        since_ms: when the first of their tasks began, by the clock of its machine.
    """
    import pyarrow as pa
    from deltalake import DeltaTable

    if not files:
        return
    filesystem = open_files(options)
    # The log has paths percent-encoded.
    added: set[str] = set()
    if DeltaTable.is_deltatable(options.address, options.storage):
        table = DeltaTable(options.address, storage_options=options.storage)
        current = pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist()
        added = set(map(unquote, current))
        added |= _added_since(filesystem, table.version(), since_ms - CLOCKS_MS)
    for file in files:
        if file.path not in added:
            filesystem.delete_file(file.path)


def _added_since(filesystem: pafs.FileSystem, last_version: int, since_ms: int) -> set[str]:
    """Return the paths of the files that commits have added since a time.

    Args:
        filesystem: the table's directory.
        last_version: version of the newest commit that is read.
        since_ms: time of the oldest commit that is read.
    """
    added: set[str] = set()
    for version in range(last_version, -1, -1):
        try:
            with filesystem.open_input_stream(f"_delta_log/{version:020}.json") as stream:
                actions = [json.loads(line) for line in stream.readall().splitlines()]
        except FileNotFoundError:
            # Old commits are deleted when a checkpoint has their content.
            break
        added.update(unquote(each["add"]["path"]) for each in actions if "add" in each)
        info: dict[str, Any] = next(
            (each["commitInfo"] for each in actions if "commitInfo" in each), {}
        )
        if info.get("timestamp", since_ms) < since_ms:
            break
    return added


def commit_files(
    options: DeltaOptions,
    plan: WritePlan,
    files: Sequence[WrittenFile],
    identity: BatchIdentity | None,
) -> bool:
    """Add the files to the table in one commit; create the table if it does not exist.

    Each attempt looks at the table anew: another writer may have changed its columns, or may be a
    second driver of the same query.

    Args:
        options: address and layout of the table.
        plan: the plan by which the files were written.
        files: the files of all tasks.
        identity: identity of the batch, None if Spark does not repeat it.

    Returns:
        False if the table already has this batch; then the files are not added.

    Raises:
        DeltaTableError: the rows do not fit the table any more, or the table is newer than the
            checkpoint.
        CommitFailedError: other writers changed the table during all attempts.
        DeltaError: the object store failed.
    """
    from deltalake.exceptions import CommitFailedError

    return retry_conflicts(
        lambda: _commit_once(options, plan, files, identity), (CommitFailedError,)
    )


def _commit_once(
    options: DeltaOptions,
    plan: WritePlan,
    files: Sequence[WrittenFile],
    identity: BatchIdentity | None,
) -> bool:
    actions = [_add_action(each) for each in files]
    table = load_table(options)
    if table is None:
        _create(options, plan, actions, identity)
        return True
    if identity is not None and has_batch(table, identity, options.address):
        return False
    _write(options, table, renewed(options, plan, table), actions, identity)
    return True


def _create(
    options: DeltaOptions,
    plan: WritePlan,
    actions: list[AddAction],
    identity: BatchIdentity | None,
) -> None:
    """Create the table with files.

    Raises:
        CommitFailedError: another writer has just created it.
    """
    from deltalake.exceptions import CommitFailedError, DeltaError
    from deltalake.transaction import create_table_with_add_actions

    # delta-rs would write a lost first commit as the second one: the rows would be there twice.
    properties = commit_properties(identity, max_retries=0)
    try:
        create_table_with_add_actions(
            options.address,
            delta_schema(plan.columns),
            actions,
            partition_by=list(plan.partition_by),
            storage_options=options.storage,
            commit_properties=properties,
        )
    except DeltaError as error:
        if load_table(options) is None:
            raise
        raise CommitFailedError(f"{options.address} was created meanwhile: {error}") from error


def _write(
    options: DeltaOptions,
    table: DeltaTable,
    plan: WritePlan,
    actions: list[AddAction],
    identity: BatchIdentity | None,
) -> None:
    """Commit files, and the changed columns of the table with them."""
    properties = commit_properties(identity)
    mode = "overwrite" if plan.removes_rows else "append"
    selected: list[tuple[str, str, list[str]]] | None = None
    if mode == "append" and new_columns(options, plan, table):
        column = _simple_column(table_state(table, options.address).columns)
        if column is None:
            add_columns(options, plan, table)
        else:
            # delta-rs changes columns in an overwrite only. This one selects no file to remove.
            mode, selected = "overwrite", [(column, "in", [])]
            properties.custom_metadata = {"userMetadata": "added columns; no row was removed"}
    table.create_write_transaction(
        [*actions],
        mode,
        delta_schema(plan.columns),
        partition_by=list(plan.partition_by),
        partition_filters=selected,
        commit_properties=properties,
    )


def _simple_column(columns: Sequence[Column]) -> str | None:
    """Return the name of a column that is no struct, array or map, by which files are selected."""
    return next((each["name"] for each in columns if isinstance(each["type"], str)), None)


def commit_properties(
    identity: BatchIdentity | None, max_retries: int | None = None
) -> CommitProperties:
    """Return the properties of a batch's commit.

    Args:
        identity: identity of the batch, None if Spark does not repeat it.
        max_retries: how often delta-rs itself repeats the commit; None for its default.
    """
    from deltalake import CommitProperties, Transaction

    transactions = None
    if identity is not None:
        transactions = [Transaction(identity.query_id, identity.batch_id)]
    return CommitProperties(app_transactions=transactions, max_commit_retries=max_retries)


def new_columns(options: DeltaOptions, plan: WritePlan, table: DeltaTable) -> list[Column]:
    """Return the columns of the plan that the table does not have, or not with all fields."""
    old = table_state(table, options.address).columns
    return [each for each in plan.columns if each not in old]


def add_columns(options: DeltaOptions, plan: WritePlan, table: DeltaTable) -> None:
    """Add the new columns and fields of the plan to the table, in a commit of their own.

    If no commit of rows follows, the table keeps columns without values.
    """
    from deltalake import Field

    changed = new_columns(options, plan, table)
    if changed:
        table.alter.add_columns([Field.from_json(json.dumps(each)) for each in changed])


def has_batch(table: DeltaTable, identity: BatchIdentity, address: str) -> bool:
    """Return whether the table has a batch already.

    Raises:
        DeltaTableError: the table is newer than the checkpoint.
    """
    last = table.transaction_version(identity.query_id)
    restore = "Restore the table to the version"
    return identity.is_in(address, last, DeltaTableError, restore)


def _add_action(file: WrittenFile) -> AddAction:
    from deltalake.transaction import AddAction

    return AddAction(
        path=file.path,
        size=file.size,
        partition_values=file.partition_values,
        modification_time=file.modified_ms,
        data_change=True,
        stats=file.statistics,
    )
