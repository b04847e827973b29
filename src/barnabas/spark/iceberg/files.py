"""Parquet files that a task writes for an Iceberg table, at least one per table partition."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from barnabas.spark.iceberg.errors import IcebergTableError
from barnabas.spark.iceberg.partitions import RowPartitions, partition_key
from barnabas.spark.partitioned_files import FILE_BYTES, PartitionedFiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.io.pyarrow import DataFileStatistics
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionKey
    from pyiceberg.schema import Schema
    from pyiceberg.typedef import Record

    from barnabas.spark.iceberg.layout import FilePlan

# The table's property for the compression of files, and Iceberg's default of it.
_CODEC, _CODEC_DEFAULT = "write.parquet.compression-codec", "zstd"


class _DataFileWriter:
    """One file that is being written."""

    __slots__ = ("_io", "_key", "_output", "_path", "_plan", "_schema", "_writer")

    def __init__(
        self, io: FileIO, plan: FilePlan, schema: Schema, arrow: pa.Schema, key: PartitionKey | None
    ) -> None:
        import pyarrow.parquet as pq
        from pyiceberg.table.locations import load_location_provider

        locations = load_location_provider(plan.location, plan.table_properties)
        self._path = locations.new_data_location(f"{uuid.uuid4()}.parquet", key)
        self._io = io
        self._plan = plan
        self._schema = schema
        self._key = key
        # `tell` and `closed` are missing in the protocol of pyiceberg.
        self._output: Any = io.new_output(self._path).create()
        codec = plan.table_properties.get(_CODEC, _CODEC_DEFAULT)
        self._writer = pq.ParquetWriter(
            self._output,
            arrow,
            compression="none" if codec == "uncompressed" else codec,
            store_decimal_as_integer=True,
        )

    def write(self, batch: pa.RecordBatch) -> int:
        """Append rows; return the bytes written to the file so far."""
        self._writer.write_batch(batch)
        return int(self._output.tell())

    def close(self) -> DataFile:
        from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
        from pyiceberg.typedef import Record

        self._writer.close()
        size = self._output.tell()
        self._output.close()
        statistics = self._statistics()
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=self._path,
            file_format=FileFormat.PARQUET,
            partition=self._key.partition if self._key else Record(),
            file_size_in_bytes=size,
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
        file.spec_id = self._plan.parsed()[1].spec_id
        return file

    def _statistics(self) -> DataFileStatistics:
        from pyiceberg.io.pyarrow import (
            MetricModeTypes,
            MetricsMode,
            compute_statistics_plan,
            data_file_statistics_from_parquet_metadata,
            parquet_path_to_id_mapping,
        )
        from pyiceberg.types import DateType, TimestampType, TimestamptzType

        columns = compute_statistics_plan(self._schema, self._plan.table_properties)
        metadata = self._writer.writer.metadata
        names = parquet_path_to_id_mapping(self._schema)
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

    def delete(self) -> None:
        if not self._output.closed:
            self._writer.close()
            self._output.close()
        self._io.delete(self._path)


class IcebergFiles:
    """Writes batches of rows to files; `close` returns the files.

    Args:
        plan: layout of the table.
        file_bytes: size at which a file is closed.
        partition: the partition of all rows; None: the rows have those of their columns.
    """

    def __init__(
        self, plan: FilePlan, file_bytes: int = FILE_BYTES, partition: Record | None = None
    ) -> None:
        from pyiceberg.io.pyarrow import schema_to_pyarrow

        schema, spec = plan.parsed()
        io = plan.open_files()
        arrow = schema_to_pyarrow(schema, include_field_ids=True)
        self._arrow = arrow

        partitions = RowPartitions(schema, spec)

        def open_file(values: tuple[Any, ...]) -> _DataFileWriter:
            record = partitions.record(values) if partition is None else partition
            return _DataFileWriter(io, plan, schema, arrow, partition_key(schema, spec, record))

        def keys(batch: pa.RecordBatch) -> Sequence[pa.Array]:
            return partitions.keys(batch) if partition is None else ()

        self._files: PartitionedFiles[DataFile] = PartitionedFiles(keys, open_file, file_bytes)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows; their columns are cast to the table's types."""
        self._files.write(conformed(batch, self._arrow))

    def close(self) -> list[DataFile]:
        """Close all files and return them."""
        return self._files.close()

    def discard(self) -> None:
        """Delete all written files after a failed task."""
        self._files.discard()


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
