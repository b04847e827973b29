"""Commits the files of all tasks to a Delta table on the driver, exactly once.

A commit contains an application transaction (Delta protocol, action `txn`) with the number of the
batch and the id of the query; the checkpoint stores this id. If Spark repeats a batch after a
crash, its number is already in the table, and the commit adds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.spark.delta.errors import DeltaTableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    import pyarrow.fs as pafs
    from deltalake import DeltaTable, Schema
    from deltalake.transaction import AddAction

    from barnabas.spark.batch_identity import BatchIdentity
    from barnabas.spark.delta.files import WrittenFile


@dataclass(frozen=True, slots=True)
class TableOptions:
    """Address and layout of a table."""

    # A directory, or an address such as s3://bucket/table.
    address: str
    partition_by: tuple[str, ...] = ()
    # Settings of the object store.
    storage: dict[str, str] = field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Whether the table is a local directory."""
        return "://" not in self.address


def open_files(options: TableOptions) -> pafs.FileSystem:
    """Open the table's directory as a file system; create it if it is local and missing."""
    import pyarrow.fs as pafs
    from deltalake.fs import DeltaStorageHandler

    if options.is_local:
        pafs.LocalFileSystem().create_dir(options.address, recursive=True)
    handler = DeltaStorageHandler(options.address, options.storage)
    return pafs.PyFileSystem(handler)


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
        named.update(actions.column("path").to_pylist())
    filesystem = open_files(options)
    for file in files:
        if file.path not in named:
            filesystem.delete_file(file.path)


def commit_files(
    options: TableOptions,
    schema: pa.Schema,
    files: Sequence[WrittenFile],
    overwrite: bool,
    identity: BatchIdentity | None,
) -> bool:
    """Add the files to the table in one commit; create the table if it does not exist.

    Args:
        options: address and layout of the table.
        schema: the types of the rows.
        files: the files of all tasks.
        overwrite: whether the files replace all existing rows.
        identity: identity of the batch, None if Spark does not repeat it.

    Returns:
        False if the table already has this batch; then the files are not added.

    Raises:
        DeltaTableError: the rows do not fit the table, or the table is newer than the checkpoint.
        DeltaError: another writer caused a conflict, or the object store failed.
    """
    from deltalake import CommitProperties, DeltaTable, Transaction
    from deltalake.transaction import create_table_with_add_actions

    transactions = None
    if identity is not None:
        transactions = [Transaction(identity.query_id, identity.batch_id)]
    properties = CommitProperties(app_transactions=transactions)
    if not DeltaTable.is_deltatable(options.address, options.storage):
        create_table_with_add_actions(
            options.address,
            _delta_schema(schema),
            [_add_action(each) for each in files],
            partition_by=list(options.partition_by),
            storage_options=options.storage,
            commit_properties=properties,
        )
        return True
    table = DeltaTable(options.address, storage_options=options.storage)
    if identity is not None and _has_batch(table, identity, options.address):
        return False
    _check_layout(table, options, schema)
    table.create_write_transaction(
        [_add_action(each) for each in files],
        "overwrite" if overwrite else "append",
        _delta_schema(schema),
        partition_by=list(options.partition_by),
        commit_properties=properties,
    )
    return True


def _has_batch(table: DeltaTable, identity: BatchIdentity, address: str) -> bool:
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


def _check_layout(table: DeltaTable, options: TableOptions, schema: pa.Schema) -> None:
    partition_by = tuple(table.metadata().partition_columns)
    if partition_by != options.partition_by:
        raise DeltaTableError(
            f"{options.address} is partitioned by ({', '.join(partition_by)}): set the option "
            f"partitionColumns to that, not to ({', '.join(options.partition_by)})"
        )
    table_types = {each.name: each.type for each in table.schema().fields}
    row_types = {each.name: each.type for each in _delta_schema(schema).fields}
    if row_types == table_types:
        return
    wrong = [
        f"{name} is {row_types.get(name, 'missing')} in the rows and "
        f"{table_types.get(name, 'missing')} in the table"
        for name in [*table_types, *(name for name in row_types if name not in table_types)]
        if row_types.get(name) != table_types.get(name)
    ]
    raise DeltaTableError(
        f"the rows do not fit {options.address}: {'; '.join(wrong)}. Select and cast the columns "
        "that the table has, or alter the table"
    )


def _delta_schema(schema: pa.Schema) -> Schema:
    from deltalake import Schema

    return Schema.from_arrow(schema)


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
