"""Reads the rows of data files by `pyiceberg`, and keeps NULL lists and maps as they are.

`pyiceberg` builds lists and maps of structs anew, from their offsets and values only. So a NULL
list would become an empty one, and merges and compactions would write that into the table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyiceberg.io.pyarrow as projection
from pyiceberg.expressions import AlwaysTrue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.types import ListType, MapType


class _Projection(projection.ArrowProjectionVisitor):
    """Fits rows of a file to a schema of the table."""

    def list(self, list_type: ListType, list_array: Any, value_array: Any) -> Any:
        return _with_nulls(super().list(list_type, list_array, value_array), list_array)

    def map(self, map_type: MapType, map_array: Any, key_result: Any, value_result: Any) -> Any:
        return _with_nulls(super().map(map_type, map_array, key_result, value_result), map_array)


def _with_nulls(found: pa.Array | None, stored: pa.Array) -> pa.Array | None:
    """Return the array with NULL where the stored array has it."""
    if found is None or found.null_count == stored.null_count:
        return found
    return pc.if_else(stored.is_null(), pa.scalar(None, found.type), found)


# pyiceberg offers no other way to change how it fits rows.
vars(projection)["ArrowProjectionVisitor"] = _Projection


def read_file(table: Table, task: FileScanTask, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one file that are not deleted, with the columns and types of a schema."""
    scan = projection.ArrowScan(table.metadata, table.io, schema, AlwaysTrue())
    yield from scan.to_record_batches([task])
