"""Expires snapshots of an Iceberg table, and finds files that no snapshot names.

`pyiceberg` removes snapshots from the metadata and leaves the files. Here all files of the table's
directories are compared with those that its metadata names. This also finds the files of killed
tasks and compactions, and it may be killed and repeated at any point.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.spark.iceberg.catalog import open_table
from barnabas.spark.iceberg.commit import loaded, retried
from barnabas.spark.tables.errors import MaintenanceError

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.table import Table

    from barnabas.spark.iceberg.catalog import TableName

# Files with other names are not of the table.
_ENDINGS = (".parquet", ".avro", ".orc", ".puffin", ".stats", ".metadata.json")


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
