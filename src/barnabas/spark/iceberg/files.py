"""Parquet files of an Iceberg table: those that a task writes, and the rows of stored ones."""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from barnabas.spark.errors import IcebergTableError
from barnabas.spark.iceberg.partitions import RowPartitions, partition_key
from barnabas.spark.tables.rows import FILE_BYTES, ParquetFile, PartitionedFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyiceberg.io import FileIO
    from pyiceberg.io.pyarrow import DataFileStatistics
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionKey
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.typedef import Record
    from pyiceberg.types import ListType, MapType

    from barnabas.spark.iceberg.layout import FilePlan

# The table's property for the compression of files, and Iceberg's default of it.
_CODEC, _CODEC_DEFAULT = "write.parquet.compression-codec", "zstd"


class IcebergStorage:
    """The file system of a table, with the names of pyarrow's file systems."""

    def __init__(self, io: FileIO) -> None:
        self._io = io

    def open_output_stream(self, path: str) -> Any:
        """Create a file."""
        return self._io.new_output(path).create()

    def open_input_file(self, path: str) -> Any:
        """Open a file."""
        return self._io.new_input(path).open()

    def delete_file(self, path: str) -> None:
        """Delete a file."""
        self._io.delete(path)


def task_files(
    plan: FilePlan, file_bytes: int = FILE_BYTES, partition: Record | None = None
) -> PartitionedFiles[DataFile]:
    """Return new files for rows, whose columns are cast to the types of the table.

    Args:
        plan: layout of the table.
        file_bytes: size at which a file is closed.
        partition: the partition of all rows; None: the rows have those of their columns.
    """
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.table.locations import load_location_provider

    schema, spec = plan.parsed()
    storage = IcebergStorage(plan.open_files())
    arrow = schema_to_pyarrow(schema, include_field_ids=True)
    partitions = RowPartitions(schema, spec)
    locations = load_location_provider(plan.location, plan.table_properties)
    codec = plan.table_properties.get(_CODEC, _CODEC_DEFAULT)

    def open_file(values: tuple[Any, ...]) -> ParquetFile[DataFile]:
        record = partitions.record(values) if partition is None else partition
        key = partition_key(schema, spec, record)
        path = locations.new_data_location(f"{uuid.uuid4()}.parquet", key)
        return ParquetFile(
            storage,
            path,
            arrow,
            lambda size, metadata: _data_file(plan, path, key, size, metadata),
            compression="none" if codec == "uncompressed" else codec,
            store_decimal_as_integer=True,
        )

    def keys(batch: pa.RecordBatch) -> Sequence[pa.Array]:
        return partitions.keys(batch) if partition is None else ()

    return PartitionedFiles(lambda batch: conformed(batch, arrow), keys, open_file, file_bytes)


def _data_file(
    plan: FilePlan, path: str, key: PartitionKey | None, size: int, metadata: pq.FileMetaData
) -> DataFile:
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    schema, spec = plan.parsed()
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=key.partition if key else Record(),
        file_size_in_bytes=size,
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
        **_statistics(schema, plan.table_properties, metadata).to_serialized_dict(),
    )
    file.spec_id = spec.spec_id
    return file


def _statistics(
    schema: Schema, properties: dict[str, str], metadata: pq.FileMetaData
) -> DataFileStatistics:
    from pyiceberg.io.pyarrow import (
        MetricModeTypes,
        MetricsMode,
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )
    from pyiceberg.types import DateType, TimestampType, TimestamptzType

    columns = compute_statistics_plan(schema, properties)
    names = parquet_path_to_id_mapping(schema)
    try:
        return data_file_statistics_from_parquet_metadata(metadata, columns, names)
    except OverflowError:
        # Python has no dates after the year 9999, which Spark has. Bounds are optional.
        counts = MetricsMode(MetricModeTypes.COUNTS)
        times = (DateType, TimestampType, TimestamptzType)
        columns = {
            key: replace(each, mode=counts) if isinstance(each.iceberg_type, times) else each
            for key, each in columns.items()
        }
        return data_file_statistics_from_parquet_metadata(metadata, columns, names)


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the table's columns and types; columns that it lacks are null.

    Raises:
        IcebergTableError: a column has nulls that the table does not accept.
    """
    import pyarrow as pa

    names = set(batch.schema.names)
    columns = []
    for field in schema:
        if field.name not in names:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(field.name)
        if not field.nullable and column.null_count:
            raise IcebergTableError(
                f"{field.name} is null in {column.null_count} rows, and required in the table"
            )
        columns.append(column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def read_file(table: Table, task: FileScanTask, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one file that are not deleted, with the columns and types of a schema."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    _keep_nulls()
    scan = ArrowScan(table.metadata, table.io, schema, AlwaysTrue())
    yield from scan.to_record_batches([task])


@cache
def _keep_nulls() -> None:
    """Let `pyiceberg` keep NULL lists and maps as they are when it fits rows to a schema.

    It builds lists and maps of structs anew, from their offsets and values only. So a NULL list
    would become an empty one, and merges and compactions would write that into the table.
    `pyiceberg` offers no other way to change how it fits rows.
    """
    import pyiceberg.io.pyarrow as projection

    class Projection(projection.ArrowProjectionVisitor):
        def list(self, list_type: ListType, list_array: Any, value_array: Any) -> Any:
            return _with_nulls(super().list(list_type, list_array, value_array), list_array)

        def map(self, map_type: MapType, map_array: Any, key_result: Any, values: Any) -> Any:
            return _with_nulls(super().map(map_type, map_array, key_result, values), map_array)

    vars(projection)["ArrowProjectionVisitor"] = Projection


def _with_nulls(found: pa.Array | None, stored: pa.Array) -> pa.Array | None:
    """Return the array with NULL where the stored array has it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if found is None or found.null_count == stored.null_count:
        return found
    return pc.if_else(stored.is_null(), pa.scalar(None, found.type), found)
