"""Commits the files of all tasks to a Delta table on the driver, exactly once.

A commit contains an application transaction (Delta protocol, action `txn`) with the number of the
batch and the id of the query; the checkpoint stores this id. If Spark repeats a batch after a
crash, its number is already in the table, and the commit adds nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import unquote

from barnabas.spark.delta.columns import delta_schema
from barnabas.spark.delta.errors import DeltaTableError
from barnabas.spark.delta.plan import renewed, table_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow.fs as pafs
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction

    from barnabas.spark.batch_identity import BatchIdentity
    from barnabas.spark.delta.files import WrittenFile
    from barnabas.spark.delta.plan import WritePlan
    from barnabas.spark.delta.table_options import TableOptions


def open_files(options: TableOptions) -> pafs.FileSystem:
    """Open the table's directory as a file system; create it if it is local and missing."""
    import pyarrow.fs as pafs
    from deltalake.fs import DeltaStorageHandler

    if options.is_local:
        pafs.LocalFileSystem().create_dir(options.address, recursive=True)
    handler = DeltaStorageHandler(options.address, options.storage)
    return pafs.PyFileSystem(handler)


def load_table(options: TableOptions) -> DeltaTable | None:
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


def remove_unnamed(options: TableOptions, files: Sequence[WrittenFile]) -> None:
    """Delete the files that the table does not contain.

    The table may contain them although the commit failed: an error can follow the actual commit.
    """
    import pyarrow as pa
    from deltalake import DeltaTable

    if not files:
        return
    named: set[str] = set()
    if DeltaTable.is_deltatable(options.address, options.storage):
        table = DeltaTable(options.address, storage_options=options.storage)
        actions = pa.table(table.get_add_actions(flatten=True))
        # The log has them percent-encoded.
        named.update(unquote(each) for each in actions.column("path").to_pylist())
    filesystem = open_files(options)
    for file in files:
        if file.path not in named:
            filesystem.delete_file(file.path)


def commit_files(
    options: TableOptions,
    plan: WritePlan,
    files: Sequence[WrittenFile],
    identity: BatchIdentity | None,
) -> bool:
    """Add the files to the table in one commit; create the table if it does not exist.

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
        DeltaError: another writer caused a conflict, or the object store failed.
    """
    from deltalake import CommitProperties, Transaction
    from deltalake.transaction import create_table_with_add_actions

    transactions = None
    if identity is not None:
        transactions = [Transaction(identity.query_id, identity.batch_id)]
    properties = CommitProperties(app_transactions=transactions)
    actions = [_add_action(each) for each in files]
    table = load_table(options)
    if table is None:
        create_table_with_add_actions(
            options.address,
            delta_schema(plan.columns),
            actions,
            partition_by=list(plan.partition_by),
            storage_options=options.storage,
            commit_properties=properties,
        )
        return True
    if identity is not None and has_batch(table, identity, options.address):
        return False
    plan = renewed(options, plan, table)
    if not plan.removes_rows:
        add_columns(options, plan, table)
    table.create_write_transaction(
        [*actions],
        "overwrite" if plan.removes_rows else "append",
        delta_schema(plan.columns) if plan.removes_rows else table.schema(),
        partition_by=list(plan.partition_by),
        commit_properties=properties,
    )
    return True


def add_columns(options: TableOptions, plan: WritePlan, table: DeltaTable) -> None:
    """Add the new columns and fields of the plan to the table."""
    from deltalake import Field

    old = table_state(table, options.address).columns
    changed = [each for each in plan.columns if each not in old]
    if changed:
        table.alter.add_columns([Field.from_json(json.dumps(each)) for each in changed])


def has_batch(table: DeltaTable, identity: BatchIdentity, address: str) -> bool:
    """Return whether the table has a batch already.

    Raises:
        DeltaTableError: the table is newer than the checkpoint.
    """
    last = table.transaction_version(identity.query_id)
    if last is None or last < identity.batch_id:
        return False
    if last == identity.batch_id:
        return True
    # Spark repeats only the last batch. An earlier batch comes from an older checkpoint, and may
    # hold other records than the batch in the table.
    raise DeltaTableError(
        f"{address} has batch {last} of this query already, and the checkpoint is at batch "
        f"{identity.batch_id}: it is older than the table. Restore the table to the version that "
        "matches the checkpoint. Or start with a new checkpoint and a new table: it lacks the rows "
        "whose records were deleted"
    )


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
